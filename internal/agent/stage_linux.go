package agent

import (
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// A stage is this program where a container runtime is to make the sandbox: it
// builds the container's root and becomes the runtime. It is the first process
// of namespaces of its own, and so is the runtime then: it has no right over the
// host, nobody else sees its mounts, bundle and state, and when it ends there is
// nothing left of any of it, nor of the container.
//
// The runtime inherits the connection to the host and the agent's program, and
// hands both to the container, whose first program is the agent.

// stageFirstFree is the first descriptor after those that the runtime inherits.
const stageFirstFree = wire.StageAgentFD + 1

// runStage returns only with an error, of which it has told the host.
func runStage() {
	// Taken before Go polls anything, so that what it polls with is not there.
	if fd, err := unix.FcntlInt(SocketFD, unix.F_DUPFD_CLOEXEC, wire.StageAgentFD); err == nil && fd != wire.StageAgentFD {
		unix.Close(fd)
	}
	l := conn{in: SocketFD, out: SocketFD, passesFDs: true}
	f, err := l.read()
	if err != nil {
		return // nobody is left to tell
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

// stage builds and becomes the runtime.
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

// becomeRuntime executes the runtime's program with the connection, the agent's
// program and nothing else.
func becomeRuntime(s *wire.Stage, program, errors int) (step string, err error) {
	self, err := unix.Open("/proc/self/exe", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "open the agent's program", err
	}
	// Out of the way of where they go. The runtime's program stays there: what Go
	// itself polls may have a low number, and must not be replaced under it.
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
	if s.Mitigate { // the runtime inherits both, and so does a kernel in user space, in which the agent's would change nothing
		if err := prctl(unix.Prctl).createCoreCookie(); err != nil {
			return "have a core scheduling cookie", err
		}
		if err := prctl(unix.Prctl).disableSpeculation(); err != nil {
			return "switch speculation off", err
		}
	}
	return "start the runtime", unix.Exec(FDProgram+strconv.Itoa(program), s.Args, s.Env)
}
