//go:build !linux

package worker

import (
	"os"
	"syscall"
)

// executable returns the path of this program for an exec.
func executable() (string, error) { return os.Executable() }

func childAttr() *syscall.SysProcAttr { return nil }
