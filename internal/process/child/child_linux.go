package child

import (
	"os"
	"syscall"
)

// executable returns this program's path for execve(2). It stays valid after the file has been
// replaced.
func executable() (string, error) { return "/proc/self/exe", nil }

// attributes puts a child and its children into a process group of their own, and sets the
// parent-death signal for a child that does not notice the end of its input.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func rootDir() string { return "/" }

// kill kills the child's process group.
func kill(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
