package e2e

import (
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// With the default limits, a program that fills the disk gets ENOSPC and continues: it is not
// killed for the memory of its files.
func TestDiskIsFullBeforeMemory(t *testing.T) {
	for _, b := range append(boundaries(), boundary{"native", []testenv.Requirement{testenv.UserNS}, nil, func(*testing.T) []string { return nil }},
		boundary{"runc", []testenv.Requirement{testenv.UserNS, testenv.Runc}, nil, func(*testing.T) []string { return nil }}) {
		t.Run(b.name, func(t *testing.T) {
			testenv.Need(t, b.needs...)
			if b.name == "e2b" {
				return // the template decides on disk and memory
			}
			env := b.environ(t)
			if b.name == "runc" {
				env = []string{"SANDBAR_DRIVER=oci", "SANDBAR_DRIVERS={oci: {runtime: runc}}"}
			}
			for _, memory := range []string{"", "64MiB"} {
				args := []string{"run", "host"}
				if memory != "" {
					args = append(args, "--memory", memory)
				}
				const fill = `for d in /tmp "$HOME"; do cat /dev/zero >$d/big; echo ended $?; done; rm "$HOME/big" /tmp/big; echo again >"$HOME/big" && cat "$HOME/big"; exit 7`
				got := asked{args: append(args, "--", "sh", "-c", fill), env: env}.run(t)
				if got.code != 7 || got.stdout != "ended 1\nended 1\nagain\n" || strings.Count(got.stderr, "No space left on device") != 2 {
					t.Errorf("memory %q: exit code %d, %q, %q", memory, got.code, got.stdout, got.stderr)
				}
			}
		})
	}
}
