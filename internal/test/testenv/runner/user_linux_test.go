package main

import (
	"bytes"
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
	h, err := newHome(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer h.remove()

	out, err := h.command(t.Context(), "/bin/sh", "-c", `id -u; id -G; echo mine > "$HOME/f" && cat "$HOME/f"; touch "$HOME/../x" 2>/dev/null || echo kept out`).Output()
	if err != nil {
		t.Fatal(err)
	}
	uid := strconv.Itoa(int(h.uid))
	if diff := cmp.Diff(uid+"\n"+uid+"\nmine\nkept out\n", string(out)); diff != "" {
		t.Errorf("seen by the user (-want +got):\n%s", diff)
	}
	out, err = h.command(t.Context(), h.path("runner"), "-check", "Root,NonRoot").Output()
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
	h, err := newHome(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer h.remove()
	cmd := h.command(t.Context(), "sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	want := []string{strconv.Itoa(cmd.Process.Pid) + ` (sleep) "sleep 600"`}
	if diff := cmp.Diff(want, h.survivors(0)); diff != "" {
		t.Errorf("survivors (-want +got):\n%s", diff)
	}
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the survivor ended with %v, want signal: killed", err)
	}
	if left := h.survivors(0); left != nil {
		t.Errorf("survivors after the last has gone: %q", left)
	}
}

func TestRemoveStale(t *testing.T) {
	base := t.TempDir()
	uid := uint32(os.Getuid())
	live, err := makeHome(base, uid)
	if err != nil {
		t.Fatal(err)
	}
	defer live.remove()
	dead, err := makeHome(base, uid)
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
	uid, err := freeUID()
	if err != nil {
		t.Fatal(err)
	}
	if found := processesOf(uid); len(found) > 0 {
		t.Errorf("user %d was said to be free, but has %v", uid, found)
	}
}

// The events of a compiled test arrive, whatever way it ends.
func TestTestAsUser(t *testing.T) {
	testenv.Need(t, testenv.Root)
	h, err := newHome(t.Context())
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
	p := testedPackage{path: "example.test/a", dir: "a", binary: h.path("test", "a.test")}
	if err := os.MkdirAll(h.path("src", "a"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := h.compile(t.Context(), options{}, src, []testedPackage{p}); err != nil {
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
			var out bytes.Buffer
			got := newTally(&out, "example.test")
			if err := h.test(t.Context(), options{only: tt.only, timeout: 2 * time.Second}, got, p); err != nil {
				t.Fatal(err)
			}
			if got.now != tt.want || !strings.Contains(out.String(), tt.prints) {
				t.Errorf("counted %s, want %s and %q; printed:\n%s", got.now, tt.want, tt.prints, out.String())
			}
		})
	}
}
