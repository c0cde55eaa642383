//go:build !linux

package agent

import "os"

// Main is the agent; it exists on Linux only.
func Main() {
	os.Stderr.WriteString("sandbar-agent: runs on Linux only\n")
	os.Exit(125)
}
