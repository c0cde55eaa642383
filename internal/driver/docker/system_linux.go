package docker

import (
	"bytes"
	"os"
	"strings"
)

// kernelRelease returns this machine's kernel release, in the form of an engine's answer.
func kernelRelease() string {
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "?"
	}
	return strings.TrimSpace(string(b))
}

// swapsHere reports whether this machine has swap: /proc/swaps has a heading and one line per
// device. If the file cannot be read, it reports true.
func swapsHere() bool {
	b, err := os.ReadFile("/proc/swaps")
	return err != nil || bytes.Count(bytes.TrimSpace(b), []byte("\n")) > 0
}
