package agent

import (
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// A stage is this program in front of a container runtime: it builds the container's root and then
// executes the runtime. Both run as the first process of namespaces of their own. So the runtime
// has no rights over the host, its mounts, bundle and state are private, and when it exits the
// kernel removes all of them together with the container.
//
// The runtime inherits the connection to the host and the agent's executable, and passes both to
// the container, whose first program is the agent.

// stageFirstFree is the first descriptor that the runtime does not inherit.
const stageFirstFree = wire.StageAgentFD + 1

// runStage returns only after an error, which it has sent to the host.
func runStage() {
	l := conn{in: SocketFD, out: SocketFD, passesFDs: true}
	f, err := l.read()
	if err != nil {
		return // the connection is gone, so nobody can receive a report
	}
	var s wire.Stage
	step := "understand the plan"
	if f.Type != wire.TypeSetup || len(f.FDs) < 2 || s.Decode(f.Payload) != nil || len(s.Args) == 0 {
		err = unix.EPROTO
	} else {
		step, err = stage(&s, f.FDs)
	}
	r := wire.Reply{Failure: wire.FailSetup, Errno: errno(err), Text: step}
	_ = l.write(wire.Frame{Type: wire.TypeReply, ID: f.ID, Payload: r.Append(nil)})
}

// stage builds the root and executes the runtime.
func stage(s *wire.Stage, fds []int) (step string, err error) {
	unix.Umask(0)
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return "make mounts private", err
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return "mount the stage's /proc", err
	}
	b := builder{base: s.Base + wire.StageRoot, receivedMounts: fds[2:], sourceMounts: map[string]int{}}
	defer b.close()
	if step, err := b.openSources(s.Mounts); err != nil {
		return step, err
	}
	if err := unix.Mount("tmpfs", s.Base, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0755,size=16m"); err != nil {
		return "mount the stage's files", err
	}
	for _, d := range []string{wire.StageRoot, wire.StageState} {
		if err := mkdirAll(s.Base+d, 0o755); err != nil {
			return "make " + d, err
		}
	}
	if err := os.WriteFile(s.Base+wire.StageBundle+"/config.json", s.Config, 0o444); err != nil {
		return "write the bundle", err
	}
	for i := range s.Mounts {
		m := &s.Mounts[i]
		if err := b.apply(m); err != nil {
			return m.Kind.String() + " " + m.Target, err
		}
	}
	unix.Umask(0o022)
	if err := unix.Chdir(s.Base + wire.StageBundle); err != nil {
		return "enter the bundle", err
	}
	return becomeRuntime(s, fds[0], fds[1])
}

// becomeRuntime executes the runtime with the connection, the agent's executable, and no other
// descriptor.
func becomeRuntime(s *wire.Stage, program, errors int) (step string, err error) {
	self, err := unix.Open("/proc/self/exe", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "open the agent's program", err
	}
	// Move the descriptors above the fixed numbers. The runtime's executable stays there: the Go
	// runtime's epoll descriptor may have a low number, and dup3(2) must not replace it.
	for _, fd := range []*int{&program, &errors, &self} {
		if *fd, err = unix.FcntlInt(uintptr(*fd), unix.F_DUPFD_CLOEXEC, stageFirstFree); err != nil {
			return "arrange descriptors", err
		}
	}
	for _, m := range []struct{ from, to, flags int }{
		{errors, 2, 0},
		{self, wire.StageAgentFD, 0},
	} {
		if err := unix.Dup3(m.from, m.to, m.flags); err != nil {
			return "arrange descriptors", err
		}
	}
	if _, err := unix.FcntlInt(wire.StageSocketFD, unix.F_SETFD, 0); err != nil {
		return "arrange descriptors", err
	}
	if err := unix.CloseRange(stageFirstFree, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return "arrange descriptors", err
	}
	runtime.LockOSThread()
	// the runtime inherits both; gVisor's kernel runs in the runtime's processes, where a switch
	// that the agent sets would have no effect
	if s.Mitigate {
		if err := prctl(unix.Prctl).createCoreCookie(); err != nil {
			return "have a core scheduling cookie", err
		}
		if err := prctl(unix.Prctl).disableSpeculation(); err != nil {
			return "switch speculation off", err
		}
	}
	return "start the runtime", unix.Exec(FDProgram+strconv.Itoa(program), s.Args, s.Env)
}
