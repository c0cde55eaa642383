package wasm

import (
	"os"
	"syscall"
)

func executable() (string, error) { return os.Executable() }

// workerAttr puts a worker and its runners into a group of their own.
func workerAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func rootDir() string { return "/" }

// killGroup kills a worker and whatever is left of its runners.
func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
