package child

import (
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

func executable() (string, error) { return os.Executable() }

// attributes detaches a child from this process's console input.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{HideWindow: true, CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}

func rootDir() string { return os.Getenv("SYSTEMROOT") }

// kill kills a child. Its own children exit at the end of their input.
func kill(p *os.Process) { _ = p.Kill() }
