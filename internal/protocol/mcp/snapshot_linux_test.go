package mcp

import (
	"os"
	"testing"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/driver/native"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// A snapshot can be restored more than once, and ends with the session.
func TestSnapshots(t *testing.T) {
	testenv.Need(t, testenv.Freezer)
	agent, err := os.ReadFile(testenv.Build(t, "cmd/sandbar-agent"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := native.Factory(agent).New(driver.Host{RuntimeDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	r := newRigOf(t, d, Options{})
	c := r.connect()
	c.call("write_file", object{"path": "f", "content": "old"})
	_, o := c.call("snapshot", object{})
	saved := o["snapshot"].(string)
	c.call("write_file", object{"path": "f", "content": "new"})
	for range 2 {
		_, o := c.call("restore", object{"snapshot": saved})
		if got, _ := c.call("read_file", object{"path": "f", "sandbox": o["sandbox"]}); got != "old" {
			t.Errorf("%q", got)
		}
	}
	if got, _ := c.call("read_file", object{"path": "f"}); got != "new" {
		t.Errorf("%q", got)
	}
	if _, o := c.call("list_sandboxes", object{}); len(o["sandboxes"].([]any)) != 3 || len(o["snapshots"].([]any)) != 1 {
		t.Errorf("%v", o)
	}
	if code, text := c.refused("restore", object{"snapshot": "sb_x"}); code != "not_found" {
		t.Error(text)
	}
	c.call("stop_sandbox", object{"sandbox": saved})
	if code, text := c.refused("restore", object{"snapshot": saved}); code != "not_found" {
		t.Error(text)
	}
	c.call("snapshot", object{}) // removed at the end of the session
}

// A driver that saves no states says what to do instead.
func TestNoSnapshots(t *testing.T) {
	c := newRig(t, Options{}).connect()
	if code, text := c.refused("snapshot", object{}); code != "unsupported" {
		t.Error(text)
	}
	if code, text := c.refused("restore", object{"snapshot": "sb_x"}); code != "not_found" {
		t.Error(text)
	}
}
