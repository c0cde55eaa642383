//go:build !linux

package qemu

import "syscall"

// attr returns nil: only Linux has a parent-death signal.
func attr() *syscall.SysProcAttr { return nil }
