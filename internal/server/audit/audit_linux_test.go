package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
)

func open(t *testing.T, o Options) *Log {
	t.Helper()
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.file.Close() })
	return l
}

// records reads the lines of a file.
func records(t *testing.T, path string) (all []line) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var r line
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			t.Fatalf("%s: %v", s.Bytes(), err)
		}
		all = append(all, r)
	}
	return all
}

func action(n int) engine.Action {
	return engine.Action{Time: time.Now(), Client: sandbar.Client{Name: "ci", Address: "192.0.2.1:5"}, Verb: engine.DidRun,
		Sandbox: sandbar.ID(fmt.Sprint("sb_", n)), Outcome: "exited"}
}

// Records of many goroutines are there whole and once, in the file and the earlier ones. The oldest
// are removed.
func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, Options{Path: path, MaxBytes: 4000, Keep: 2})
	var work sync.WaitGroup
	for i := range 100 {
		work.Go(func() { l.Record(action(i)) })
	}
	work.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	seen := map[sandbar.ID]int{}
	for _, name := range []string{path, path + ".1", path + ".2"} {
		if info, err := os.Stat(name); err != nil || info.Size() > 4000 || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
		for _, r := range records(t, name) {
			seen[r.Sandbox]++
			if r.Client != "ci" || r.Address != "192.0.2.1:5" || r.Action != engine.DidRun || r.Outcome != "exited" || r.Time.IsZero() {
				t.Errorf("%+v", r)
			}
		}
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s is there %d times", id, n)
		}
	}
	if _, err := os.Stat(path + ".3"); !errors.Is(err, os.ErrNotExist) || len(seen) < 40 {
		t.Errorf("%d records, %v", len(seen), err)
	}
	again := open(t, Options{Path: path, MaxBytes: 1 << 20, Keep: 2})
	before := len(records(t, path))
	again.Record(action(100))
	if n := len(records(t, path)); n != before+1 {
		t.Errorf("%d records after another start, want %d", n, before+1)
	}
}

// While the file cannot be written the log is not ready. Then the records in between are written.
func TestFull(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	l := open(t, Options{Path: path, MaxBytes: 1 << 20, Keep: 1})
	l.Record(action(0))
	good := l.file
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	l.file = full
	l.Record(action(1))
	if e := sandbar.AsError(l.Ready()); e == nil || e.Code != sandbar.Unavailable || e.Fix == "" {
		t.Errorf("Ready: %v", l.Ready())
	}
	l.Record(action(2))
	l.file = good
	if err := l.Ready(); err != nil {
		t.Error(err)
	}
	if got := records(t, path); len(got) != 3 || got[2].Sandbox != "sb_2" {
		t.Errorf("%+v", got)
	}
}

func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, Options{Path: path, MaxBytes: 100, Keep: 1})
	for i := range 3 { // two of them begin a new file
		l.Record(action(i))
	}
	if _, err := Open(Options{Path: path}); sandbar.CodeOf(err) != sandbar.Conflict {
		t.Errorf("the file of another daemon: %v", err)
	}
	for _, path := range []string{t.TempDir(), filepath.Join(t.TempDir(), "a", "b"), "/dev/null"} {
		if _, err := Open(Options{Path: path}); sandbar.CodeOf(err) != sandbar.Invalid || !strings.Contains(err.Error(), "audit log") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
