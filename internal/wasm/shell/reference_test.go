package shell

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/wasm/memfs"
)

// patience bounds a script that hangs; no script is expected to take nearly as long.
const patience = 2 * time.Minute

// result is the compared part of a script's result.
type result struct {
	out  string
	exit int
}

// newFS returns the file system of a sandbox, with the fixtures in /w.
func newFS(t testing.TB) *memfs.FS {
	t.Helper()
	f := memfs.New(memfs.Limits{Bytes: 16 << 20, Inodes: 20_000})
	if err := Install(f, nil); err != nil {
		t.Fatal(err)
	}
	for name, text := range fixtures {
		full := "/w/" + name
		if err := f.MkdirAll("/", filepath.ToSlash(filepath.Dir(full)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := f.WriteFile("/", full, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// ours runs a script in a new sandbox.
func ours(t testing.TB, script string) (result, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out, errs bytes.Buffer
	exit, err := Run(ctx, Config{FS: newFS(t), Env: []string{"TZ=UTC"}, Dir: "/w", Script: script, Stdout: &out, Stderr: &errs, Linger: patience})
	if err != nil {
		t.Fatalf("Run: %v; stderr: %s", err, &errs)
	}
	return result{out.String(), exit}, errs.String()
}

// reference runs a script with a shell of the host in a new directory.
func reference(t testing.TB, shell, script string) (result, string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range fixtures {
		full := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, shell, "-c", script)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + dir, "LC_ALL=C.UTF-8", "TZ=UTC"}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", shell, err)
	}
	if ctx.Err() != nil {
		t.Fatalf("%s did not end", shell)
	}
	return result{out.String(), cmd.ProcessState.ExitCode()}, errs.String()
}

func TestScriptsDoWhatTheReferenceDoes(t *testing.T) {
	testenv.Need(t, testenv.Linux)
	for shell, cases := range map[string][]shellCase{"dash": dashCases, "bash": bashCases} {
		t.Run(shell, func(t *testing.T) {
			for _, c := range cases {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					want, wantErr := reference(t, shell, c.script)
					got, gotErr := ours(t, c.script)
					if got.out != want.out || got.exit != want.exit {
						t.Errorf("script: %s\ngot exit %d:\n%s\nwant exit %d:\n%s\nfirst difference: %s\nstderr: %s\nits stderr: %s", c.script, got.exit, got.out, want.exit, want.out,
							firstDifference(got.out, want.out), gotErr, wantErr)
					}
				})
			}
		})
	}
}

// firstDifference returns the first lines that differ.
func firstDifference(got, want string) string {
	g, w := bytes.Split([]byte(got), []byte("\n")), bytes.Split([]byte(want), []byte("\n"))
	for i := range max(len(g), len(w)) {
		var a, b string
		if i < len(g) {
			a = string(g[i])
		}
		if i < len(w) {
			b = string(w[i])
		}
		if a != b {
			return "got " + quote(a) + ", want " + quote(b)
		}
	}
	return "none"
}
