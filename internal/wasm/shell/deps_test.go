package shell

import (
	"os/exec"
	"strings"
	"testing"
)

// dependencies returns the packages on which this one depends.
func dependencies(t *testing.T) map[string]bool {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := map[string]bool{}
	for name := range strings.Lines(string(out)) {
		deps[strings.TrimSpace(name)] = true
	}
	return deps
}
