package child

import (
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

func executable() (string, error) { return os.Executable() }

// attributes keeps what is typed at this process's console from a child.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{HideWindow: true, CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}

func rootDir() string { return os.Getenv("SYSTEMROOT") }

// kill kills a child; what it started ends with the end of their input.
func kill(p *os.Process) { _ = p.Kill() }
