package main

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

func TestHome(t *testing.T) {
	testenv.Need(t, testenv.Root)
	h, err := newHome(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	defer h.remove()

	out, err := h.command(t.Context(), 1, "/bin/sh", "-c", `id -u; id -G; echo mine > "$HOME/f" && cat "$HOME/f"; touch "$HOME/../x" 2>/dev/null || echo kept out`).Output()
	if err != nil {
		t.Fatal(err)
	}
	uid := strconv.Itoa(int(h.users[1]))
	if diff := cmp.Diff(uid+"\n"+uid+"\nmine\nkept out\n", string(out)); diff != "" {
		t.Errorf("seen by the user (-want +got):\n%s", diff)
	}
	out, err = h.command(t.Context(), 1, h.path("runner"), "-check", "Root,NonRoot").Output()
	if unmet := parseUnmet(string(out)); err != nil || len(unmet) != 1 || unmet["Root"] == "" {
		t.Errorf("-check as the user: %v, %q", err, out)
	}

	h.remove()
	if _, err := os.Stat(h.dir); !os.IsNotExist(err) {
		t.Errorf("remove left %s behind: %v", h.dir, err)
	}
}

func TestSurvivorsAreFoundAndKilled(t *testing.T) {
	testenv.Need(t, testenv.Root)
	h, err := newHome(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	defer h.remove()
	cmd := h.command(t.Context(), 1, "sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	want := []string{strconv.Itoa(cmd.Process.Pid) + ` (sleep) "sleep 600"`}
	// The kernel sets /proc/PID/cmdline a moment after execve(2) has closed the pipe that Start reads.
	if diff := cmp.Diff(want, h.survivors(1, time.Second)); diff != "" {
		t.Errorf("survivors (-want +got):\n%s", diff)
	}
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the survivor ended with %v, want signal: killed", err)
	}
	if left := h.survivors(1, 0); left != nil {
		t.Errorf("survivors after the last has gone: %q", left)
	}
}

func TestRemoveStale(t *testing.T) {
	base := t.TempDir()
	uids := []uint32{uint32(os.Getuid())}
	live, err := makeHome(base, uids)
	if err != nil {
		t.Fatal(err)
	}
	defer live.remove()
	dead, err := makeHome(base, uids)
	if err != nil {
		t.Fatal(err)
	}
	dead.lock.Close() // as when its process ends
	foreign := filepath.Join(base, homePrefix+"foreign")
	if err := os.Mkdir(foreign, 0o700); err != nil {
		t.Fatal(err)
	}

	removeStale(base)
	for dir, want := range map[string]bool{live.dir: true, dead.dir: false, foreign: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s: there = %v, want %v", filepath.Base(dir), err == nil, want)
		}
	}
}

func TestCopyTree(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	for name, mode := range map[string]fs.FileMode{"a/secret": 0o600, "a/run": 0o700, ".git/x": 0o600, "bin/y": 0o600} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(from, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(from, name), []byte(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("secret", filepath.Join(from, "a", "link")); err != nil {
		t.Fatal(err)
	}
	if err := copyTree(from, to, skipSource); err != nil {
		t.Fatal(err)
	}
	var got []string
	err := filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		rel, _ := filepath.Rel(to, path)
		got = append(got, rel+" "+string(b)+" "+info.Mode().String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"a/link a/secret Lrwxrwxrwx", "a/run a/run -rwxr--r--", "a/secret a/secret -rw-r--r--"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("copied (-want +got):\n%s", diff)
	}
}

func TestProcessesOf(t *testing.T) {
	found := processesOf(uint32(os.Getuid()))
	if _, ok := found[os.Getpid()]; !ok {
		t.Error("this process is not among its user's")
	}
	uids, err := freeUIDs(2)
	if err != nil {
		t.Fatal(err)
	}
	if uids[0] == uids[1] {
		t.Errorf("user %d was said to be free twice", uids[0])
	}
	for _, uid := range uids {
		if found := processesOf(uid); len(found) > 0 {
			t.Errorf("user %d was said to be free, but has %v", uid, found)
		}
	}
}

// The events of a compiled test arrive, whatever way it ends.
func TestTestAsUser(t *testing.T) {
	testenv.Need(t, testenv.Root)
	h, err := newHome(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	defer h.remove()
	src := t.TempDir()
	const text = `package a
import ("os"; "testing"; "time")
func TestUser(t *testing.T) { if os.Getuid() == 0 { t.Error("running as root") } }
func TestFails(t *testing.T) { t.Error("with these words") }
func TestDies(t *testing.T) { os.Exit(5) }
func TestHangs(t *testing.T) { time.Sleep(time.Hour) }
`
	for name, text := range map[string]string{"go.mod": "module example.test/a\n\ngo 1.26\n", "a_test.go": text} {
		if err := os.WriteFile(filepath.Join(src, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(h.path("src"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		only   string
		want   counts
		prints string
	}{
		{"TestUser", counts{passed: 1}, "1 passed"},
		{"TestFails", counts{failed: 1}, "with these words"},
		{"TestDies", counts{failed: 1}, "exit status 5"},
		{"TestHangs", counts{failed: 1}, "test timed out"},
	} {
		t.Run(tt.only, func(t *testing.T) {
			s, err := newSuite(t.Context(), options{only: tt.only, timeout: 2 * time.Second, lanes: 2, patterns: []string{"./..."}}, src, h.path("test"))
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			p := h.pass(s, nil, &out)
			p.conclude = func(context.Context, *tally) error { return nil }
			if err := s.run(t.Context(), []*pass{p}); err != nil {
				t.Fatal(err)
			}
			got := p.tally
			if got.now != tt.want || !strings.Contains(out.String(), tt.prints) {
				t.Errorf("counted %s, want %s and %q; printed:\n%s", got.now, tt.want, tt.prints, out.String())
			}
		})
	}
}
