package agent

import (
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// A process of ModeMonitor builds a sandbox as an agent does, drops all rights, and then executes
// one program in its own place: the monitor of a virtual machine. The program is the first process
// of its PID namespace. It inherits the descriptors of the plan and no others.

// monitorFirstFree is the first descriptor that the program does not inherit.
const monitorFirstFree = wire.MonitorFirstFD + wire.MaxMonitorFiles

// runMonitor returns only after an error, which it has sent to the host. The host recognizes
// success by the end of the connection.
func runMonitor() {
	l := conn{in: SocketFD, out: SocketFD, passesFDs: true}
	f, err := l.read()
	if err != nil {
		return // the connection is gone, so nobody can receive a report
	}
	var m wire.Monitor
	step, fds := "understand the plan", f.FDs
	if f.Type != wire.TypeSetup || m.Decode(f.Payload) != nil || len(m.Args) == 0 {
		err = unix.EPROTO
	}
	for err == nil && len(fds) < 2+int(m.Files) {
		var more wire.Frame
		if more, err = l.read(); err == nil && (more.Type != wire.TypeSetup || len(more.FDs) == 0) {
			err = unix.EPROTO
		}
		fds = append(fds, more.FDs...)
	}
	if err == nil {
		step, err = becomeMonitor(&m, fds)
	}
	r := wire.Reply{Failure: wire.FailSetup, Errno: errno(err), Text: step}
	_ = l.write(wire.Frame{Type: wire.TypeReply, ID: f.ID, Payload: r.Append(nil)})
}

// becomeMonitor builds the sandbox and executes the program.
func becomeMonitor(m *wire.Monitor, fds []int) (step string, err error) {
	if step, err := monitorSandbox(m); err != nil {
		return step, err
	}
	if step, err := monitorDescriptors(fds); err != nil {
		return step, err
	}
	runtime.LockOSThread() // credentials and filters are those of a thread until the execve
	if m.Mitigate {
		if err := prctl(unix.Prctl).createCoreCookie(); err != nil {
			return "have a core scheduling cookie", err
		}
		if err := prctl(unix.Prctl).disableSpeculation(); err != nil {
			return "switch speculation off", err
		}
	}
	if step, err := setRlimits(m.Rlimits); err != nil {
		return step, err
	}
	if step, err := dropAll(m.UID, m.GID); err != nil {
		return step, err
	}
	if len(m.Seccomp) > 0 {
		if err := installFilter(m.Seccomp, 0); err != nil {
			return "install the seccomp filter", err
		}
	}
	return "start the monitor", unix.Exec(FDProgram+strconv.Itoa(fds[0]), m.Args, m.Env)
}

// monitorSandbox builds the sandbox in the process's new namespaces.
func monitorSandbox(m *wire.Monitor) (step string, err error) {
	oom := openOOMScore()
	oom.setGuest()
	unix.Umask(0)
	if err := unix.Sethostname([]byte(m.Hostname)); err != nil {
		return "set the host name", err
	}
	if _, step, err := buildRoot(m.Root, m.Mounts, nil); err != nil {
		return step, err
	}
	unix.Umask(0o077)
	return "", nil
}

// monitorDescriptors gives the descriptors of the plan their numbers. It updates fds[0], the
// executable's. All others are closed by the execve.
func monitorDescriptors(fds []int) (step string, err error) {
	for i := range fds {
		if fds[i], err = unix.FcntlInt(uintptr(fds[i]), unix.F_DUPFD_CLOEXEC, monitorFirstFree); err != nil {
			return "arrange descriptors", err
		}
	}
	if err := unix.Dup3(fds[1], 2, 0); err != nil {
		return "arrange descriptors", err
	}
	for i, fd := range fds[2:] {
		if err := unix.Dup3(fd, wire.MonitorFirstFD+i, 0); err != nil {
			return "arrange descriptors", err
		}
	}
	for _, r := range [][2]uint{{SocketFD, SocketFD}, {wire.MonitorFirstFD + uint(len(fds)-2), ^uint(0)}} {
		if err := unix.CloseRange(r[0], r[1], unix.CLOSE_RANGE_CLOEXEC); err != nil {
			return "arrange descriptors", err
		}
	}
	return "", nil
}

// dropAll makes the calling thread a user without capabilities, which no execve can give back.
func dropAll(uid, gid uint32) (step string, err error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return "set no_new_privs", err
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return "clear ambient capabilities", err
	}
	if err := dropBounding(0); err != nil {
		return "drop the bounding set", err
	}
	if os.Getuid() != int(uid) {
		if err := setThreadIDs(uid, gid); err != nil {
			return "change the user", err
		}
	}
	if err := setCaps(0); err != nil {
		return "drop capabilities", err
	}
	// The change of credentials has cleared the parent-death signal (PR_SET_PDEATHSIG(2const)).
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return "set the parent-death signal", err
	}
	return "", nil
}
