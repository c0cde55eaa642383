package outfit

import (
	"testing"

	"github.com/sandbar-dev/sandbar/internal/policy"
)

// The kernel runs a handler behind a pipe at a limit of 0, and not at 1 (core(5)).
func TestCoreReachesHandler(t *testing.T) {
	for _, tt := range []struct {
		pattern string
		hard    uint64
		want    bool
	}{
		{"core\n", 0, false},
		{"core\n", policy.RlimitInfinity, false},
		{"|/usr/lib/systemd/systemd-coredump %P\n", 0, true},
		{"|/usr/lib/systemd/systemd-coredump %P\n", 1, false},
		{"|/usr/lib/systemd/systemd-coredump %P\n", policy.RlimitInfinity, false},
	} {
		if got := coreReachesHandler(tt.pattern, tt.hard); got != tt.want {
			t.Errorf("%q at %d: %v", tt.pattern, tt.hard, got)
		}
	}
}
