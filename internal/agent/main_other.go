//go:build !linux

package agent

import "os"

// Main reports an error: the agent runs on Linux only.
func Main() {
	os.Stderr.WriteString("sandbar-agent: runs on Linux only\n")
	os.Exit(125)
}
