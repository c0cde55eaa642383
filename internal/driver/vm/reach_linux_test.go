package vm

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/driver/vm/monitor"
)

// programOf returns the false qemu of TestMonitorReach as a program to start.
func programOf(path, secret string, stderr *os.File) monitor.Program {
	return monitor.Program{Path: path, Stderr: stderr, Args: []string{"qemu-system-x86_64", reachProbe, secret, fmt.Sprint(os.Getpid())}}
}

// reach is something that must fail in a monitor.
type reach struct {
	name string
	try  func() error
}

// reaches are attempts against a file of the host and a process of the host.
func reaches(secret string, process int) []reach {
	open := func(path string, flags int) func() error {
		return func() error {
			fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o600)
			if err == nil {
				unix.Close(fd)
			}
			return err
		}
	}
	socket := func(family, kind int) func() error {
		return func() error {
			fd, err := unix.Socket(family, kind, 0)
			if err == nil {
				unix.Close(fd)
			}
			return err
		}
	}
	return []reach{
		{"open a file of the host", open(secret, unix.O_RDONLY)},
		{"open /etc/passwd", open("/etc/passwd", unix.O_RDONLY)},
		{"open the host's init", open("/proc/1/root/etc/passwd", unix.O_RDONLY)},
		{"open /dev/kvm", open("/dev/kvm", unix.O_RDWR)},
		{"open /dev/mem", open("/dev/mem", unix.O_RDONLY)},
		{"open /sys", open("/sys/kernel", unix.O_RDONLY)},
		{"create a file in /", open("/new", unix.O_CREAT|unix.O_WRONLY)},
		{"create a file in /usr/lib", open("/usr/lib/new", unix.O_CREAT|unix.O_WRONLY)},
		{"write to a setting of the kernel", open("/proc/sys/kernel/hostname", unix.O_WRONLY)},
		{"make a directory", func() error { return unix.Mkdir("/new", 0o700) }},
		{"remove a file", func() error { return unix.Unlink("/etc/ld.so.cache") }},
		{"make a TCP socket", socket(unix.AF_INET, unix.SOCK_STREAM)},
		{"make a UNIX socket", socket(unix.AF_UNIX, unix.SOCK_STREAM)},
		{"make a netlink socket", socket(unix.AF_NETLINK, unix.SOCK_RAW)},
		{"make a packet socket", socket(unix.AF_PACKET, unix.SOCK_RAW)},
		{"make a VSOCK socket", socket(unix.AF_VSOCK, unix.SOCK_STREAM)},
		{"connect to the network", func() error {
			c, err := net.Dial("tcp", "127.0.0.1:22")
			if err == nil {
				c.Close()
			}
			return err
		}},
		{"start a program", func() error {
			_, err := os.StartProcess("/proc/self/exe", []string{"false"}, &os.ProcAttr{})
			return err
		}},
		{"signal a process of the host", func() error { return unix.Kill(process, 0) }},
		{"trace a process", func() error { return unix.PtraceAttach(process) }},
		{"make a user namespace", func() error { return unix.Unshare(unix.CLONE_NEWUSER) }},
		{"mount", func() error { return unix.Mount("none", "/proc", "tmpfs", 0, "") }},
		{"become root", func() error { return unix.Setuid(0) }},
		{"load a BPF program", func() error { _, _, err := syscall.Syscall(unix.SYS_BPF, 0, 0, 0); return failure(err) }},
		{"use io_uring", func() error { _, _, err := syscall.Syscall(unix.SYS_IO_URING_SETUP, 1, 0, 0); return failure(err) }},
		{"use keys", func() error { _, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, true); return err }},
		{"read the kernel's log", func() error { _, err := unix.Klogctl(3, make([]byte, 100)); return err }},
		{"raise its priority", func() error { return unix.Setpriority(unix.PRIO_PROCESS, 0, -5) }},
		{"lower its score", func() error {
			f, err := os.OpenFile("/proc/self/oom_score_adj", os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteString("-1000")
			return err
		}},
	}
}

func failure(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// tryReaches is the false qemu of TestMonitorReach.
func tryReaches(secret string, process int) {
	for _, r := range reaches(secret, process) {
		if err := r.try(); err != nil {
			fmt.Fprintf(os.Stderr, "denied: %s: %v\n", r.name, err)
		} else {
			fmt.Fprintf(os.Stderr, "REACHED: %s\n", r.name)
		}
	}
	os.Exit(0)
}

// syncBuffer is a bytes.Buffer for concurrent writers.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

// String returns what was written.
func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
