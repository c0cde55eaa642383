//go:build !linux

package main

import (
	"os"
	"os/exec"
	"time"
)

// adoptOrphans does nothing: only Linux has child subreapers.
func adoptOrphans() {}

// orphans returns none: they cannot be found on this system.
func orphans(time.Duration) []string { return nil }

// detach does nothing.
func detach(*exec.Cmd) {}

// terminal reports whether a file looks like a terminal.
func terminal(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}
