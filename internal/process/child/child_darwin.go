package child

import (
	"os"
	"syscall"
)

func executable() (string, error) { return os.Executable() }

// attributes puts a child and what it starts into a group of their own.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func rootDir() string { return "/" }

// kill kills a child and whatever is left of what it started.
func kill(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
