package child

import (
	"os"
	"syscall"
)

func executable() (string, error) { return os.Executable() }

// attributes puts a child and its children into a process group of their own.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func rootDir() string { return "/" }

// kill kills the child's process group.
func kill(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
