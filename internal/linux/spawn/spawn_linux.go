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

// Spawner starts agents. A small child process, the spawner process, forks them. A fork of the
// daemon itself would cost more the larger the daemon is, and until the exec a copy of its memory
// would be in the sandbox's namespaces.
//
// Agents are children of the spawner process and end with it. If it dies before the daemon, all
// sandboxes are lost: each detects that by the end of its connection. The next Start starts another
// spawner process. A Spawner is safe for concurrent use.
type Spawner struct {
	// Lost, if set, is called when the spawner process has ended by itself or does not answer. It must
	// not call the Spawner. It is set before the first Start.
	Lost func(err error)

	exe   *Program
	owner string
	// Calls for the thread that starts processes. It lives until Close, because the parent-death
	// signal is sent when the thread that forked ends (PR_SET_PDEATHSIG(2const)).
	work chan func()
	done chan struct{} // closed when that thread has ended

	mu      sync.Mutex
	process *spawnerProcess // nil: none runs
	closed  bool
}

// spawnerProcess is a running spawner process.
type spawnerProcess struct {
	*client.Spawner
	proc  *os.Process
	ended chan struct{} // closed when it has been waited for
}

// New starts a Spawner for the daemon with the id owner (package daemonid). The spawner process
// inherits the cgroups of the calling process. exe must stay open until Close.
func New(exe *Program, owner string) (*Spawner, error) {
	s := &Spawner{exe: exe, owner: owner, work: make(chan func()), done: make(chan struct{})}
	go s.runThread()
	p, err := s.startProcess()
	if err != nil {
		s.Close()
		return nil, err
	}
	s.process = p
	return s, nil
}

// runThread calls the functions of work on one thread, until work is closed.
func (s *Spawner) runThread() {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	defer close(s.done)
	for f := range s.work {
		f()
	}
}

// Close kills the spawner process, and with it all remaining agents.
func (s *Spawner) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	s.stopProcess()
	close(s.work)
	<-s.done
}

// stopProcess kills the spawner process, if one runs, and waits for it. The caller holds mu.
func (s *Spawner) stopProcess() {
	if s.process == nil {
		return
	}
	s.process.Close()
	_ = s.process.proc.Kill() // it may have ended by itself
	<-s.process.ended
	s.process = nil
}

// startProcess starts a spawner process.
func (s *Spawner) startProcess() (*spawnerProcess, error) {
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
		p.proc, err = s.startProgram(theirs)
	}
	<-ran
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "starting the spawner process: %w", err)
	}
	go func() {
		_, _ = p.proc.Wait()
		close(p.ended)
	}()
	theirs.Close() // so that the connection ends with the process
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

// agentEnv tunes the Go runtime of agents and of the spawner process: at most two processors, and
// no reading of cgroup files for their number. GOGC=25 lets the first garbage collection start at a
// heap of 1 MiB. The agent stays below that while it builds a sandbox and idles, because one
// collection takes as long as building the sandbox.
var agentEnv = []string{"GOMAXPROCS=2", "GOGC=25", "GODEBUG=containermaxprocs=0,updatemaxprocs=0"}

// AgentEnv returns the environment for agents that are not started by a Spawner.
func AgentEnv() []string { return slices.Clone(agentEnv) }

// startProgram starts the spawner process with socket as its descriptor 3.
func (s *Spawner) startProgram(socket *os.File) (*os.Process, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	return s.exe.start([]string{agent.Name, agent.ModeSpawner, s.owner}, []*os.File{null, null, null, socket},
		&syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL})
}

// Template starts the process of a template (agent.ModeTemplate), in the cgroup g if that is not
// nil. files are its descriptors; the caller closes them. The process is killed when this process
// ends or the Spawner is closed.
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

// Start starts an agent with socket as its connection. If g is not nil, the agent is in that cgroup
// from its first instruction. A slot (agent.ModeSlot) gets its memory, too. The caller closes the
// files.
func (s *Spawner) Start(r *wire.Spawn, g *cgroup.Group, socket *os.File, memory ...*os.File) (*Child, error) {
	fds := []int{int(socket.Fd())}
	for _, f := range memory {
		fds = append(fds, int(f.Fd()))
	}
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
		if err := s.ensureProcess(); err != nil {
			return nil, err
		}
		pid, pidfd, err := s.process.Spawn(r, fds...)
		if err == nil {
			return newChild(pid, pidfd)
		}
		if sandbar.CodeOf(err) != sandbar.Gone {
			return nil, err
		}
		s.stopProcess()
		if s.Lost != nil {
			s.Lost(err)
		}
		if try > 0 {
			return nil, sandbar.Errorf(sandbar.Internal, "%w, twice in a row", err)
		}
	}
}

// ensureProcess starts a spawner process if none runs. The caller holds mu.
func (s *Spawner) ensureProcess() (err error) {
	if s.closed {
		return sandbar.Errorf(sandbar.Unavailable, "the driver has been closed")
	}
	if s.process == nil {
		s.process, err = s.startProcess()
	}
	return err
}

// SocketPair returns two connected Unix stream sockets. Exhausted: out of descriptors or memory.
func SocketPair() (ours, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, sandbar.Errorf(sandbar.Exhausted, "making a socket pair: %w", err)
	}
	return os.NewFile(uintptr(pair[0]), "agent"), os.NewFile(uintptr(pair[1]), "agent"), nil
}
