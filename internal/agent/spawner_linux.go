package agent

import (
	"os"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// spawner is this program as a child of the daemon that only forks agents. It exists for two
// reasons. The cost of a fork grows with the memory of the parent, and a fork into a new user
// namespace cannot share it (CLONE_VM with CLONE_NEWUSER): the spawner stays small, the daemon does
// not. And no copy of the daemon's memory ever runs in a sandbox's namespaces, not even between
// fork and exec.
//
// Agents are children of the spawner. The kernel reaps them (SA_NOCLDWAIT), because only the daemon
// needs their end, and the daemon has a pidfd. Each agent has PR_SET_PDEATHSIG, which the kernel
// sends when the thread that forked it exits. So agents end with the spawner, and the spawner with
// the daemon.
type spawner struct {
	conn     conn
	daemonID string
	null     int // /dev/null, which agents get as 0, 1 and 2
	// open cgroup.procs files that move the forking thread out of a sandbox's cgroups, by path
	leaveFiles map[string]int
	oom        oomScore
}

// agentNamespaces are the namespaces that each agent gets anew.
const agentNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// runSpawner serves the connection until it ends.
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

// offMainThread runs f on a thread other than the process's main one. In a version 1 memory cgroup
// the kernel charges the memory of all threads to the cgroup of the main thread (memory.txt, mm
// owner). The main thread must therefore stay out of the cgroups that the forking thread enters.
func offMainThread(f func() error) error {
	ended := make(chan error)
	go func() {
		runtime.LockOSThread()
		// this thread is locked to the main one, so the next goroutine gets another
		if unix.Gettid() == unix.Getpid() {
			ended <- offMainThread(f)
			return
		}
		ended <- f()
	}()
	return <-ended
}

// agentTimerSlack is the timer slack of an agent in nanoseconds. The Go runtime's monitor thread
// wakes every 20 µs while the agent is busy; with the default slack of 50 µs these wakeups are 5 %
// of the cost of a sandbox. The launcher restores ProgramTimerSlack for programs, see
// confineLauncher.
const agentTimerSlack = 250_000

// ProgramTimerSlack is the timer slack of programs in nanoseconds, the kernel's default.
const ProgramTimerSlack = 50_000

func (s *spawner) serve() error {
	// Every thread of an agent inherits the slack from the thread that forks it (prctl(2),
	// PR_SET_TIMERSLACK).
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
	if f.Type != wire.TypeSpawn || r.Decode(f.Payload) != nil || !spawnable(r.Mode) || len(r.Enter) != len(r.Leave) {
		return unix.EPROTO
	}
	start := s.start
	if r.Mode == ModeSlot {
		start = s.startSlot
	}
	agent, step, err := start(&r, f.FDs)
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
	// the thread is still in this agent's cgroup, so the next agent would start there
	if step == stepLeave {
		return err
	}
	return nil
}

// spawnable reports whether a spawner starts processes of a mode.
func spawnable(mode string) bool {
	return mode == ModeSocket || mode == ModeStream || mode == ModeStage || mode == ModeMonitor || mode == ModeSlot
}

// stepLeave is the step whose failure makes the thread unusable.
const stepLeave = "leave the control group"

// spawned is a running agent.
type spawned struct{ pid, pidfd int }

// start forks an agent. fds are its connection and, optionally, a version 2 cgroup.
func (s *spawner) start(r *wire.Spawn, fds []int) (agent spawned, step string, err error) {
	attr := &syscall.SysProcAttr{}
	switch len(fds) {
	case 1:
	case 2:
		attr.UseCgroupFD, attr.CgroupFD = true, fds[1]
	default:
		return spawned{pidfd: -1}, "start the agent", unix.EINVAL
	}
	return s.inGroups(r, func() (spawned, string, error) {
		agent, err := s.fork(r, attr, fds[0])
		return agent, "start the agent", err
	})
}

// inGroups calls start, whose process has its first instruction in the cgroups of r.
func (s *spawner) inGroups(r *wire.Spawn, start func() (spawned, string, error)) (agent spawned, step string, err error) {
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
		agent, step, err = start()
	}
	for _, file := range r.Leave[:entered] {
		if lerr := s.leaveGroup(file); lerr != nil {
			return agent, stepLeave, lerr
		}
	}
	return agent, step, err
}

// leaveGroup moves the thread back to a cgroup it came from.
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

// fork starts this same executable as the agent.
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
	files := append([]uintptr{null, null, null, uintptr(socket)}, slices.Repeat([]uintptr{null}, fixedFDs(r.Mode))...)
	pid, err := syscall.ForkExec("/proc/self/exe", []string{Name, r.Mode, s.daemonID}, &syscall.ProcAttr{
		Dir: "/", Env: os.Environ(), Files: files, Sys: attr,
	})
	agent.pid = pid
	return agent, err
}

// fixedFDs returns the number of descriptors after SocketFD that a process of a mode replaces by
// dup3(2) before it executes a program. They are in use from the process's first instruction on:
// otherwise the Go runtime could get one of them for its epoll instance, at any time, and would end
// the process when it finds another file there.
func fixedFDs(mode string) int {
	switch mode {
	case ModeStage:
		return stageFirstFree - SocketFD - 1
	case ModeMonitor:
		return monitorFirstFree - SocketFD - 1
	}
	return 0
}

func idMapping(m wire.IDMap) []syscall.SysProcIDMap {
	return []syscall.SysProcIDMap{{ContainerID: int(m.Inside), HostID: int(m.Outside), Size: int(m.Size)}}
}
