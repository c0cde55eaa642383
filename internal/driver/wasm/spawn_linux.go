package wasm

import (
	"os"
	"syscall"
)

// executable names this program, for an exec: also where the file has been
// replaced since this process was started.
func executable() (string, error) { return "/proc/self/exe", nil }

// workerAttr puts a worker and its runners into a group of their own, and has
// it end with this process even when it cannot see the end of its input.
func workerAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func rootDir() string { return "/" }

// killGroup kills a worker and whatever is left of its runners.
func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
