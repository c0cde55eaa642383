package wasm

import (
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

func executable() (string, error) { return os.Executable() }

// workerAttr keeps what is typed at the daemon's console from a worker.
func workerAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{HideWindow: true, CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}

func rootDir() string { return os.Getenv("SYSTEMROOT") }

// killGroup kills a worker; its runners end with the end of their input.
func killGroup(p *os.Process) { _ = p.Kill() }
