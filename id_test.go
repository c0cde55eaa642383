package sandbar_test

import (
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar"
)

// An ID and its UUID have the same bits.
func TestIDSpellings(t *testing.T) {
	for range 100 {
		id := sandbar.NewID()
		uuid := id.UUID()
		if len(uuid) != 36 || uuid[14] != '4' || !strings.ContainsRune("89ab", rune(uuid[19])) {
			t.Fatalf("%s is no random UUID", uuid)
		}
		for _, s := range []string{string(id), uuid, strings.ToUpper(uuid), "{" + uuid + "}", "urn:uuid:" + uuid, "URN:UUID:" + strings.ToUpper(uuid),
			strings.ReplaceAll(uuid, "-", "")} {
			if got, err := sandbar.ReadID(s); got != id || err != nil {
				t.Fatalf("%s: %s, %v, want %s", s, got, err, id)
			}
		}
	}
	if got := sandbar.ID("sb_x").UUID(); got != "" {
		t.Errorf("the UUID of no ID is %q", got)
	}
	for _, s := range []string{"", "sb_", "x", "sb_aaaaaaaaaaaaaaaaaaaaaaaaa1", "00000000-0000-0000-0000-00000000000", "00000000x0000-0000-0000-000000000000",
		"0000000000000000-0000-0000-0000-0000", "{00000000-0000-0000-0000-000000000000x", "urn:uuix:00000000-0000-0000-0000-000000000000",
		"g0000000000000000000000000000000", strings.Repeat("0", 1<<20)} {
		id, err := sandbar.ReadID(s)
		if id != "" || sandbar.CodeOf(err) != sandbar.Invalid || len(err.Error()) > 300 {
			t.Errorf("%.50q was read as %q: %v", s, id, err)
		}
	}
}
