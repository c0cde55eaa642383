package spawn

import (
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/linux/cgroup"
)

// Spawner starts agents by way of a small process that forks them. Forking from
// the daemon itself would cost more the larger the daemon is, and copy its memory
// into the sandbox's namespaces until the exec.
//
// The agents are that process's children and end with it. If it ends, which it
// does of itself only with the daemon, their sandboxes are lost, which each
// notices by its own connection, and the next spawn starts another.
type Spawner struct {
	exe   *Program
	owner string
	// The thread that starts the process lives as long as the driver: the
	// parent-death signal is sent when the thread that forked ends.
	work chan func()
	done chan struct{}

	mu     sync.Mutex
	now    *spawnerProcess // nil: there is none
	closed bool
}

// spawnerProcess is a process that forks agents.
type spawnerProcess struct {
	*client.Spawner
	proc  *os.Process
	ended chan struct{} // closed when it has been waited for
}

// New starts one for the daemon called owner (package daemonid). The calling
// process must be in the control groups that the spawner is to stay in. exe must
// stay open until Close.
func New(exe *Program, owner string) (*Spawner, error) {
	s := &Spawner{exe: exe, owner: owner, work: make(chan func()), done: make(chan struct{})}
	go s.run()
	p, err := s.begin()
	if err != nil {
		s.Close()
		return nil, err
	}
	s.now = p
	return s, nil
}

// run is the thread.
func (s *Spawner) run() {
	runtime.LockOSThread() // for ever: the thread ends with the goroutine
	defer close(s.done)
	for f := range s.work {
		f()
	}
}

// Close ends the process, and with it every agent that is still there.
func (s *Spawner) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	s.end()
	close(s.work)
	<-s.done
}

// end ends the process that there is, if any. The caller holds mu.
func (s *Spawner) end() {
	if s.now == nil {
		return
	}
	s.now.Close()
	_ = s.now.proc.Kill() // it may have ended by itself
	<-s.now.ended
	s.now = nil
}

// begin starts a process.
func (s *Spawner) begin() (*spawnerProcess, error) {
	ours, theirs, err := SocketPair()
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	defer theirs.Close()
	p := &spawnerProcess{ended: make(chan struct{})}
	ran := make(chan struct{})
	s.work <- func() {
		defer close(ran)
		p.proc, err = s.fork(theirs)
	}
	<-ran
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "starting the process that starts agents: %w", err)
	}
	go func() {
		_, _ = p.proc.Wait() // how it ended is of no interest
		close(p.ended)
	}()
	theirs.Close() // so that its end is seen
	conn, err := net.FileConn(ours)
	if err == nil {
		p.Spawner, err = client.NewSpawner(conn.(*net.UnixConn))
	}
	if err != nil {
		_ = p.proc.Kill()
		<-p.ended
		return nil, err
	}
	return p, nil
}

// agentEnv tunes the runtime of agents, and of the spawner. Few threads and
// caches; a heap that is collected when it reaches a megabyte, which building a
// sandbox and idling in it never do, because one collection costs as much as
// building the sandbox; no looking at cgroups for the number of processors.
var agentEnv = []string{"GOMAXPROCS=2", "GOGC=25", "GODEBUG=containermaxprocs=0,updatemaxprocs=0"}

// AgentEnv is the environment in which an agent is small, for who starts one by
// other means.
func AgentEnv() []string { return slices.Clone(agentEnv) }

// fork starts the agent's program as a spawner.
func (s *Spawner) fork(socket *os.File) (*os.Process, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	return s.exe.start([]string{agent.Name, agent.ModeSpawner, s.owner}, []*os.File{null, null, null, socket},
		&syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL})
}

// Template starts the agent's program as the parent of an interpreter that is to be
// copied into sandboxes, in the group if there is one. files are what agent.ModeTemplate
// says; they remain the caller's. It ends with this process.
func (s *Spawner) Template(g *cgroup.Group, files []*os.File) (p *os.Process, err error) {
	attr := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	start := func() (err error) {
		p, err = s.exe.start([]string{agent.Name, agent.ModeTemplate, s.owner}, files, attr)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, sandbar.Errorf(sandbar.Unavailable, "the driver has been closed")
	}
	ran := make(chan struct{})
	s.work <- func() {
		defer close(ran)
		if g != nil {
			err = g.Start(attr, start)
		} else {
			err = start()
		}
	}
	<-ran
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "starting a template: %w", err)
	}
	return p, nil
}

// Start starts an agent, with socket as its connection, whose first moment is
// already in the group, if there is one. socket remains the caller's.
func (s *Spawner) Start(r *wire.Spawn, g *cgroup.Group, socket *os.File) (*Child, error) {
	fds := []int{int(socket.Fd())}
	if g != nil {
		fd, err := g.FD()
		if err != nil {
			return nil, err
		}
		if fd >= 0 {
			fds = append(fds, fd)
		}
		r.Enter, r.Leave = g.TaskFiles()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for try := 0; ; try++ {
		if err := s.ready(); err != nil {
			return nil, err
		}
		pid, pidfd, err := s.now.Spawn(r, fds...)
		if err == nil {
			return newChild(pid, pidfd)
		}
		if sandbar.CodeOf(err) != sandbar.Gone {
			return nil, err
		}
		s.end()
		if try > 0 {
			return nil, sandbar.Errorf(sandbar.Internal, "%w, twice in a row", err)
		}
	}
}

// ready sees to it that there is a process. The caller holds mu.
func (s *Spawner) ready() (err error) {
	if s.closed {
		return sandbar.Errorf(sandbar.Unavailable, "the driver has been closed")
	}
	if s.now == nil {
		s.now, err = s.begin()
	}
	return err
}

// SocketPair makes two connected sockets: a Start's, and the daemon's end of it.
func SocketPair() (ours, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, sandbar.Errorf(sandbar.Exhausted, "making a socket pair: %w", err)
	}
	return os.NewFile(uintptr(pair[0]), "agent"), os.NewFile(uintptr(pair[1]), "agent"), nil
}
