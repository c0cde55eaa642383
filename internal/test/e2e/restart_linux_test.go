package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// keepSandboxes makes a daemon pause its sandboxes when it is stopped.
const keepSandboxes = "SANDBAR_PAUSED_ON_SHUTDOWN=true"

// A daemon that is stopped pauses its sandboxes, and the next one resumes them before it accepts
// requests: with their files, secrets and idle timeouts.
func TestFilesOverRestart(t *testing.T) {
	testenv.Need(t, testenv.UserNS, testenv.Freezer)
	dir := t.TempDir()
	d := nativeDaemon(t, dir, keepSandboxes)
	const secret = "0123456789abcdef0123456789abcdef"
	var kept, idle struct{ ID string }
	d.must(t, "POST", "/sandboxes", object{"name": "kept", "secret": secret}, &kept)
	d.must(t, "POST", "/sandboxes", object{"idle_timeout": 1}, &idle)
	d.shell(t, kept.ID, "echo here >file")
	if err := d.stop(); err != nil {
		t.Fatalf("the daemon ended with %v; it said:\n%s", err, d.said())
	}
	if left := leftovers(t, d); len(left) > 0 {
		t.Errorf("left behind: %s", strings.Join(left, ", "))
	}
	d = nativeDaemon(t, dir, keepSandboxes)
	if got := d.shell(t, kept.ID, "cat file"); got != "here\n" {
		t.Errorf("the file has %q", got)
	}
	if !strings.Contains(d.said(), "resumed the sandboxes of the daemon before") || pausedFiles(t, dir) != "" {
		t.Errorf("on disk: %q; the daemon said:\n%s", pausedFiles(t, dir), d.said())
	}
	for token, want := range map[string]int{secret: http.StatusOK, strings.Repeat("x", 32): http.StatusUnauthorized} {
		r, err := http.NewRequestWithContext(within(t, time.Minute), "GET", "http://"+d.addr+"/sandboxes/"+kept.ID+"/executor/list_processes", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("with the token %s: %s", token, resp.Status)
		}
	}
	waitUntil(t, "the idle sandbox is gone", func() (left []string) {
		for id := range d.sandboxes(t) {
			if id != kept.ID {
				left = append(left, id)
			}
		}
		return left
	})
	d.must(t, "DELETE", "/sandboxes/"+kept.ID, nil, nil)
	d.endClean(t)
}

// With the driver vm the programs go on.
func TestProgramsOverRestart(t *testing.T) {
	testenv.Need(t, testenv.UserNS, testenv.VM)
	dir := t.TempDir()
	d := vmDaemon(t, dir, keepSandboxes)
	id := d.newCounter(t)
	at := d.counter(t, id, 0)
	d.endClean(t)
	d = vmDaemon(t, dir, keepSandboxes)
	d.counter(t, id, at)
	d.must(t, "DELETE", "/sandboxes/"+id, nil, nil)
	d.endClean(t)
}
