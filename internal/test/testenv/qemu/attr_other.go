//go:build !linux

package qemu

import "syscall"

// attr is what the emulator is started with: nothing special here.
func attr() *syscall.SysProcAttr { return nil }
