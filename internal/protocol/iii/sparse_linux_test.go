package iii

import (
	"strings"
	"testing"
)

// TestSparseFiles tests that files of 4 EiB with almost no blocks are refused or skipped before
// they are read, with the limit.
func TestSparseFiles(t *testing.T) {
	c := newReal(t, Options{}).connect()
	id := c.create()
	// "text" would be taken for text: its first line has no end.
	c.tree(id, `mkdir text many; truncate -s 4E hole; for i in 1 2 3; do printf '%9000s' x >text/$i; done; truncate -s 4E text/2
		for i in $(seq 100); do truncate -s 1G many/$i; done; echo needle >many/zz`)
	const d = "/tmp/t/"
	limit := func(o object) {
		t.Helper()
		if said, _ := o["message"].(string); !strings.Contains(said, "more than 17179869184 bytes") {
			t.Errorf("the limit is not named: %v", o)
		}
	}
	for _, path := range []string{"hole", "text/2", "text"} {
		limit(c.failed("sandbox::fs::grep", withID(id, object{"path": d + path, "pattern": "needle"}), "S210"))
	}
	limit(c.failed("sandbox::fs::read", withID(id, object{"path": d + "hole"}), "S210"))
	c.failed("sandbox::fs::grep", withID(id, object{"path": d + "many", "pattern": "needle"}), "S216")
	got := c.call("sandbox::fs::sed", withID(id, object{"path": d + "text", "pattern": "x", "replacement": "y"}))
	results := got["results"].([]any)
	if len(results) != 3 || got["total_replacements"] != 2.0 {
		t.Fatalf("%v", got)
	}
	if second := results[1].(map[string]any); second["success"] != false || !strings.Contains(second["error"].(string), "64 MiB") {
		t.Errorf("%v", second)
	}
	if s := c.call("sandbox::fs::stat", withID(id, object{"path": d + "hole"})); s["size"] != float64(4<<60) {
		t.Errorf("the file is not sparse: %v", s)
	}
}
