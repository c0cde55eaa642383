package docker

import (
	"bytes"
	"os"
	"strings"
)

// kernelRelease is this machine's kernel, as an engine on it names it.
func kernelRelease() string {
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "?"
	}
	return strings.TrimSpace(string(b))
}

// swapsHere reports whether this machine swaps: /proc/swaps has a heading and a
// line for each device. What cannot be read is taken for yes.
func swapsHere() bool {
	b, err := os.ReadFile("/proc/swaps")
	return err != nil || bytes.Count(bytes.TrimSpace(b), []byte("\n")) > 0
}
