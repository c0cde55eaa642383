package qemu

import "syscall"

// attr lets the emulator die with this process, however that ends.
func attr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
