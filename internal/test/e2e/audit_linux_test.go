package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// The audit log has each action of a client once, with its outcome, when the action is answered: a
// daemon that is killed afterwards has it in the file, and the next one appends.
func TestAudit(t *testing.T) {
	testenv.Need(t, testenv.UserNS)
	dir := t.TempDir()
	log := filepath.Join(dir, "audit.log")
	start := func() *daemon { return nativeDaemon(t, dir, "SANDBAR_AUDIT_FILE="+log) }
	d := start()
	var box struct{ ID string }
	d.must(t, "POST", "/sandboxes", object{}, &box)
	d.shell(t, box.ID, "exit 3")
	path := "/sandboxes/" + box.ID
	d.must(t, "POST", path+"/executor/write_file", object{"path": "f", "content": "x"}, nil)
	d.must(t, "POST", path+"/executor/read_file", object{"path": "f"}, nil)
	d.must(t, "POST", path+"/executor/start_process", object{"cmd": "sleep 100"}, nil)
	if err := d.ask(within(t, time.Minute), "POST", "/sandboxes", object{"limits": object{"memory": 1}}, nil); err == nil {
		t.Error("a sandbox of one byte was made")
	}
	d.kill()
	d = start()
	if err := d.ask(within(t, time.Minute), "DELETE", path, nil, nil); err == nil {
		t.Error("a sandbox outlived its daemon")
	}
	d.must(t, "POST", "/sandboxes", object{}, &box)
	d.must(t, "DELETE", "/sandboxes/"+box.ID, nil, nil)
	d.endClean(t)
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for l := range strings.Lines(string(text)) {
		var r struct {
			Time                              time.Time
			Address, Action, Sandbox, Outcome string
		}
		if err := json.Unmarshal([]byte(l), &r); err != nil {
			t.Fatalf("%q: %v", l, err)
		}
		if !strings.HasPrefix(r.Address, "127.0.0.1:") || time.Since(r.Time) > time.Hour || (r.Sandbox == "") != (r.Outcome == "invalid") {
			t.Errorf("%s", l)
		}
		got = append(got, r.Action+" "+r.Outcome)
	}
	want := []string{"sandbox.create ok", "program.run exited", "file.write ok", "file.read ok", "program.start ok", "sandbox.create invalid",
		"sandbox.stop not_found", "sandbox.create ok", "sandbox.stop ok"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s\n%s", diff, text)
	}
}
