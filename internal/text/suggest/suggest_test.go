package suggest

import (
	"strings"
	"testing"
)

func TestName(t *testing.T) {
	names := []string{"limits", "listen", "log", "max_queue"}
	for word, want := range map[string]string{
		"lisen": "listen", "lsiten": "listen", "limit": "limits", "max-queue": "max_queue", "lgo": "log", "banana": "", "": "",
		strings.Repeat("l", 201): "",
	} {
		if got := Name(word, names); got != want {
			t.Errorf("Name(%q) = %q, want %q", word, got, want)
		}
	}
}
