package child

import (
	"os"
	"syscall"
)

// executable names this program, for an exec: also where the file has been
// replaced since this process was started.
func executable() (string, error) { return "/proc/self/exe", nil }

// attributes puts a child and what it starts into a group of their own, and has
// it end with this process even when it cannot see the end of its input.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func rootDir() string { return "/" }

// kill kills a child and whatever is left of what it started.
func kill(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
