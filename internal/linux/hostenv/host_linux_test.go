package hostenv

import (
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/linux/policy"
)

// The kernel runs a core_pattern pipe handler at a limit of 0, and not at 1 (core(5)).
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

// A missing directory is refused by name and not skipped.
func TestParsePaths(t *testing.T) {
	for _, tt := range []struct{ option, field, text string }{
		{"/usr/share:/usr/lib", "", ""},
		{"", "", ""},
		{"/nonexist", "paths", `"/nonexist"`},
		{"/usr/share:/nonexist/too", "paths", `"/nonexist/too"`},
		{"relative", "paths", "absolute"},
	} {
		_, err := ParsePaths(tt.option)
		if e := sandbar.AsError(err); (err != nil) != (tt.field != "") || err != nil && (e.Code != sandbar.Invalid || e.Field != tt.field || !strings.Contains(e.Error(), tt.text)) {
			t.Errorf("%q: %v", tt.option, err)
		}
	}
}
