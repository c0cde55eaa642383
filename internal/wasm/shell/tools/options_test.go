package tools

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar/internal/wasm/memfs"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/program"
)

// Every utility's table of options is valid, and an unknown option is refused.
func TestUnknownOptions(t *testing.T) {
	operandsOnly := []string{"arch", "echo", "expr", "false", "find", "jq", "logname", "mkfifo", "nproc", "printf", "pwd", "test", "[", "true", "tty", "whoami", "yes", "seq", "dd", "chmod", "kill", "tr"}
	for _, name := range slices.Sorted(maps.Keys(Programs())) {
		if slices.Contains(operandsOnly, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			c := &program.Context{Args: []string{name, "--no-such-option"}, Dir: "/", FS: memfs.New(memfs.Limits{Bytes: 1 << 20, Inodes: 10}),
				Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs}
			status := Programs()[name](t.Context(), c)
			if want := name + ": unrecognized option '--no-such-option'\n"; status == 0 || errs.String() != want {
				t.Errorf("status %d, standard error %q, want %q", status, &errs, want)
			}
		})
	}
}
