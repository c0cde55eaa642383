package e2e

import (
	"os"
	"strings"
)

// statusField reads a field of a /proc/PID/status file, "" if there is none.
func statusField(path, key string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == key {
			return f[1]
		}
	}
	return ""
}
