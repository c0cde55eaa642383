package qemu

import "syscall"

// attr makes the kernel kill the emulator when the thread that started it exits.
func attr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
