package python

import (
	"strings"
	"testing"
)

// The messages of templates and copies decode to what they encode, or not at all.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "ready", "ready 7", "ready 1", "ready -1", "ready 4294967296", "failed", "failed at x", "import\x00numpy\x00ImportError",
		"ready\x003.11\x00", "ready\x003.11\x00A\x00B", "import\x00", "\x00\x00"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, ok := ParseHello(b); ok {
			var words []string
			if h.Module != "" || h.Exception != "" || strings.HasPrefix(string(b), "import") {
				words = []string{"import", h.Module, h.Exception}
			} else {
				words = append([]string{"ready", h.Version}, h.Read...)
			}
			if again := strings.Join(words, "\x00"); again != string(b) {
				t.Errorf("%q was read as %q", b, again)
			}
		}
		if pid, failure, ok := ParseReady(b); ok && failure == "" && strings.HasPrefix(string(b), "ready") && (pid < 2 || pid > 1<<31-1) {
			t.Errorf("%q was read as process %d", b, pid)
		}
	})
}
