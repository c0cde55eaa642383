package guest

import (
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent"
)

const (
	channel = "/dev/ttyS1"
	console = "/dev/console"
)

// Main executes the agent. It never returns.
func Main() {
	if agent.IsAgent() {
		agent.Main()
	}
	if os.Getpid() == 1 {
		bringUp()
	}
	if err := becomeAgent(); err != nil {
		say("sandbar-guest: " + err.Error())
	}
	if os.Getpid() == 1 {
		// The kernel panics if process 1 exits. A machine without an agent waits: the host sees the
		// line on the console, and the machine uses no processor time.
		for {
			_ = unix.Pause()
		}
	}
	os.Exit(1)
}

// say writes a line to the console.
func say(text string) {
	f, err := os.OpenFile(console, os.O_WRONLY|syscall.O_NOCTTY, 0)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = f.WriteString("\r\n" + text + "\r\n") // the console is the only output
}

// mounts are the file systems that programs expect. One that cannot be mounted is omitted.
var mounts = [...]struct{ kind, target, options string }{
	{"proc", "/proc", ""},
	{"sysfs", "/sys", ""},
	{"devtmpfs", "/dev", ""},
	{"devpts", "/dev/pts", "ptmxmode=0666"},
	{"tmpfs", "/dev/shm", "mode=1777"},
	{"tmpfs", "/run", "mode=0755"},
	{"tmpfs", "/tmp", "mode=1777"},
}

// bringUp sets up the system as process 1.
func bringUp() {
	for _, m := range mounts {
		_ = os.MkdirAll(m.target, 0o755)
		_ = unix.Mount(m.kind, m.target, m.kind, 0, m.options)
	}
	for link, target := range map[string]string{"/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0",
		"/dev/stdout": "/proc/self/fd/1", "/dev/stderr": "/proc/self/fd/2"} {
		_ = os.Symlink(target, link)
	}
	_ = unix.Sethostname([]byte("sandbar"))
	if _, err := os.Stat("/bin/busybox"); err == nil {
		cmd := exec.Command("/bin/busybox", "--install", "-s", "/bin")
		_ = cmd.Run() // if this fails, busybox is still available under its own name
	}
}

// becomeAgent opens the second serial port and executes this program as the agent.
func becomeAgent() error {
	fd, err := unix.Open(channel, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: channel, Err: err}
	}
	// The descriptor must not be one of 0 to 2 or agent.MachineSocketFD, which are replaced below: the
	// parent may have left them closed.
	if fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, agent.MachineSocketFD+1); err != nil {
		return err
	}
	if err := raw(fd); err != nil {
		return &os.PathError{Op: "set up", Path: channel, Err: err}
	}
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: "/dev/null", Err: err}
	}
	for n := range 3 {
		if n == null {
			_, err = unix.FcntlInt(uintptr(n), unix.F_SETFD, 0)
		} else {
			err = unix.Dup3(null, n, 0)
		}
		if err != nil {
			return err
		}
	}
	say(Banner())
	if err := unix.Dup3(fd, agent.MachineSocketFD, 0); err != nil {
		return err
	}
	return unix.Exec("/proc/self/exe", []string{agent.Name, agent.ModeMachine}, runtimeEnv())
}

// runtimeEnv returns the agent's environment. The garbage collector runs rarely, because an
// emulated processor is slow, but within a memory limit, because the guest may have little.
func runtimeEnv() []string {
	env := []string{"GOGC=200", "GOMEMLIMIT=8MiB", "GODEBUG=asyncpreemptoff=1"}
	for _, kv := range os.Environ() {
		if strings.HasPrefix(kv, "PATH=") {
			env = append(env, kv)
		}
	}
	return env
}

// raw sets a terminal to raw mode at its highest speed, with RTS/CTS flow control (termios(3)): the
// host sends only while RTS is high.
func raw(fd int) error {
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	t.Iflag, t.Oflag, t.Lflag = 0, 0, 0
	t.Cflag = unix.B115200 | unix.CS8 | unix.CREAD | unix.CLOCAL | unix.CRTSCTS
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	return unix.IoctlSetTermios(fd, unix.TCSETS, t)
}
