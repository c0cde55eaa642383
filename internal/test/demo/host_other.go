//go:build !linux

package main

import (
	"os"
	"os/exec"
	"time"
)

// adoptOrphans is possible on Linux only.
func adoptOrphans() {}

// orphans cannot be found on this system.
func orphans(time.Duration) []string { return nil }

// detach leaves the command as it is.
func detach(*exec.Cmd) {}

// terminal reports whether a file looks like a terminal.
func terminal(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}
