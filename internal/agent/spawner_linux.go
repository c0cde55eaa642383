package agent

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// spawner is this program as a child of the daemon that does one thing: it
// forks agents. It is small and stays small, which the daemon is not: what a
// fork costs grows with the memory of who forks, and a fork into a new user
// namespace cannot do without the copy. And no copy of the daemon's memory is
// ever in the namespaces of a sandbox, not even between fork and exec.
//
// Agents are its children. The kernel reaps them, since nobody but the daemon
// asks how they ended, and the daemon has a pidfd. They end with the spawner,
// and the spawner with the daemon, by parent-death signals, which count from
// the thread that forked.
type spawner struct {
	conn       conn
	daemonID   string
	null       int            // what agents have as 0, 1 and 2
	leaveFiles map[string]int // the files that lead the thread back, open
	oom        oomScore
}

// agentNamespaces are those an agent has of its own.
const agentNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// runSpawner serves the connection to its end.
func runSpawner(owner string) error {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := autoReapChildren(); err != nil {
		return err
	}
	dropOOMProtection()
	s := &spawner{conn: conn{in: SocketFD, out: SocketFD, passesFDs: true}, daemonID: owner, null: null, leaveFiles: map[string]int{}, oom: spawnerOOMScore()}
	return offMainThread(s.serve)
}

// offMainThread runs f on a thread that is not the process's main one, to which
// the kernel charges the memory of all threads: that one must stay out of the
// control groups that the others enter.
func offMainThread(f func() error) error {
	ended := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() { // hold it, so that the next is another
			ended <- offMainThread(f)
			return
		}
		ended <- f()
	}()
	return <-ended
}

// agentSlack is how late, in nanoseconds, an agent's timers may be. Its runtime
// looks after its threads every 20 µs while it has something to do; late by the
// usual 50 µs these looks are a twentieth of all that a sandbox costs. What is
// started in a sandbox has the usual again, see confineLauncher.
const (
	agentTimerSlack   = 250_000
	defaultTimerSlack = 50_000
)

func (s *spawner) serve() error {
	// Agents inherit it from the thread that forks them, with all their threads.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, agentTimerSlack, 0, 0, 0)
	hello := wire.Hello{Generation: wire.Generation}
	if err := s.conn.write(wire.Frame{Type: wire.TypeHello, Payload: hello.Append(nil)}); err != nil {
		return err
	}
	for {
		f, err := s.conn.read()
		if err != nil {
			return err
		}
		if err := s.onSpawn(f); err != nil {
			return err
		}
	}
}

// onSpawn starts one agent and answers. An error ends the spawner.
func (s *spawner) onSpawn(f wire.Frame) error {
	defer closeAll(f.FDs)
	var r wire.Spawn
	if f.Type != wire.TypeSpawn || r.Decode(f.Payload) != nil || r.Mode != ModeSocket && r.Mode != ModeStream && r.Mode != ModeStage || len(r.Enter) != len(r.Leave) {
		return unix.EPROTO
	}
	attr := &syscall.SysProcAttr{}
	switch len(f.FDs) {
	case 1:
	case 2:
		attr.UseCgroupFD, attr.CgroupFD = true, f.FDs[1]
	default:
		return unix.EPROTO
	}
	agent, step, err := s.start(&r, attr, f.FDs[0])
	if agent.pidfd >= 0 {
		defer unix.Close(agent.pidfd)
	}
	reply := wire.Reply{Data: (&wire.Spawned{PID: uint32(agent.pid)}).Append(nil)}
	answer := wire.Frame{Type: wire.TypeReply, ID: f.ID}
	if err == nil {
		answer.FDs = []int{agent.pidfd}
	} else {
		reply = wire.Reply{Failure: wire.FailSpawn, Errno: errno(err), Text: step}
	}
	answer.Payload = reply.Append(nil)
	if err := s.conn.write(answer); err != nil {
		return err
	}
	if step == stepLeave { // the next agent would be born in this one's group
		return err
	}
	return nil
}

// stepLeave is the step after whose failure the thread cannot be used again.
const stepLeave = "leave the control group"

// spawned is an agent that runs.
type spawned struct{ pid, pidfd int }

// start forks an agent whose first moment is in its groups.
func (s *spawner) start(r *wire.Spawn, attr *syscall.SysProcAttr, socket int) (agent spawned, step string, err error) {
	agent.pidfd = -1
	entered := 0
	for _, file := range r.Enter {
		if err = writeFile(file, "0"); err != nil {
			step = "enter the control group"
			break
		}
		entered++
	}
	if err == nil {
		agent, err = s.fork(r, attr, socket)
		step = "start the agent"
	}
	for _, file := range r.Leave[:entered] {
		if lerr := s.leaveGroup(file); lerr != nil {
			return agent, stepLeave, lerr
		}
	}
	return agent, step, err
}

// goHome moves the thread back to a group it came from.
func (s *spawner) leaveGroup(file string) error {
	fd, open := s.leaveFiles[file]
	if !open {
		var err error
		if fd, err = unix.Open(file, unix.O_WRONLY|unix.O_CLOEXEC, 0); err != nil {
			return err
		}
		s.leaveFiles[file] = fd
	}
	_, err := unix.Write(fd, []byte("0"))
	return err
}

// fork makes the process. The program is this one.
func (s *spawner) fork(r *wire.Spawn, attr *syscall.SysProcAttr, socket int) (spawned, error) {
	agent := spawned{pidfd: -1}
	attr.Cloneflags, attr.Setsid, attr.Pdeathsig, attr.PidFD = agentNamespaces, true, unix.SIGKILL, &agent.pidfd
	attr.UidMappings, attr.GidMappings = idMapping(r.UIDs), idMapping(r.GIDs)
	if r.Ranged {
		attr.GidMappingsEnableSetgroups = true
		attr.Credential = &syscall.Credential{Uid: 0, Gid: 0}
	}
	for c := range uintptr(r.Caps) {
		attr.AmbientCaps = append(attr.AmbientCaps, c)
	}
	back, err := setNamespaceOwner(int(r.Owner))
	if err != nil {
		return agent, err
	}
	defer back()
	s.oom.set(s.oom.raised)
	defer s.oom.restore()
	null := uintptr(s.null)
	pid, err := syscall.ForkExec("/proc/self/exe", []string{Name, r.Mode, s.daemonID}, &syscall.ProcAttr{
		Dir: "/", Env: os.Environ(), Files: []uintptr{null, null, null, uintptr(socket)}, Sys: attr,
	})
	agent.pid = pid
	return agent, err
}

func idMapping(m wire.IDMap) []syscall.SysProcIDMap {
	return []syscall.SysProcIDMap{{ContainerID: int(m.Inside), HostID: int(m.Outside), Size: int(m.Size)}}
}
