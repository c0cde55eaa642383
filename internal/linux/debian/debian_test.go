package debian

import (
	"slices"
	"strings"
	"testing"
)

func TestAptMirrors(t *testing.T) {
	for name, c := range map[string]struct {
		list string
		want []string
	}{
		"one line":    {"deb http://mirror.example/debian bookworm main\ndeb-src https://other.example/debian/ bookworm main\n", []string{"http://mirror.example/debian", "https://other.example/debian/"}},
		"options":     {"deb [arch=amd64 signed-by=/k] http://mirror.example/debian bookworm main", []string{"http://mirror.example/debian"}},
		"deb822":      {"Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm\n", []string{"http://mirror.example/debian"}},
		"two in one":  {"URIs: http://a.example/debian http://b.example/debian\n", []string{"http://a.example/debian", "http://b.example/debian"}},
		"a comment":   {"# http://snapshot.example/debian\n  # deb http://old.example/debian x main", nil},
		"another one": {"URIs: http://mirror.example/debian-security\ndeb http://mirror.example/ubuntu x main", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := aptMirrors(strings.Split(c.list, "\n")); !slices.Equal(got, c.want) {
				t.Errorf("aptMirrors: %q, want %q", got, c.want)
			}
		})
	}
}
