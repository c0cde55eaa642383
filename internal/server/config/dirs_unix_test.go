//go:build unix

package config

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

func TestPrivateDir(t *testing.T) {
	base := t.TempDir()
	made := filepath.Join(base, "a", "b")
	for range 2 { // the second time it exists
		if err := PrivateDir(made, "runtime_dir"); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(made); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode is %v, %v", info.Mode(), err)
	}

	open := filepath.Join(base, "open")
	link := filepath.Join(base, "link")
	file := filepath.Join(base, "file")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(made, link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		open: "is open to other users (mode 0755)", link: "is not a directory", file: "is not a directory",
		filepath.Join(file, "x"): "cannot be made",
	} {
		err := PrivateDir(path, "runtime_dir")
		if sandbar.CodeOf(err) != sandbar.Denied || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "runtime_dir ") {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if info, _ := os.Stat(open); info.Mode().Perm() != 0o755 {
		t.Error("a directory that was refused was changed")
	}
}

func TestPrivateDirOfSomebodyElse(t *testing.T) {
	testenv.Need(t, testenv.Root)
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if err := PrivateDir(dir, "runtime_dir"); err == nil || !strings.Contains(err.Error(), "belongs to user 12345, not to user 0") {
		t.Error(err)
	}
}

func TestTokenIsMadeOnce(t *testing.T) {
	c := &Config{StateDir: filepath.Join(t.TempDir(), "state")}
	first, err := c.ResolveToken()
	if err != nil {
		t.Fatal(err)
	}
	if len(first.Value) != 64 || !first.Fresh || first.Explicit {
		t.Errorf("first token: fresh %v, explicit %v, %d characters", first.Fresh, first.Explicit, len(first.Value))
	}
	if info, err := os.Stat(first.File); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("token file: %v, %v", info, err)
	}
	second, err := c.ResolveToken()
	if err != nil || second.Value != first.Value || second.Fresh {
		t.Errorf("second: same %v, fresh %v, %v", second.Value == first.Value, second.Fresh, err)
	}
	if entries, _ := os.ReadDir(c.StateDir); len(entries) != 1 {
		t.Errorf("state directory holds %v", entries)
	}
	if err := os.Chmod(first.File, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ResolveToken(); sandbar.CodeOf(err) != sandbar.Denied {
		t.Errorf("a token that others can read: %v", err)
	}
}

func TestTokenRace(t *testing.T) {
	c := &Config{StateDir: filepath.Join(t.TempDir(), "state")}
	tokens := make([]Token, 16)
	var wg sync.WaitGroup
	for i := range tokens {
		wg.Go(func() {
			var err error
			if tokens[i], err = c.ResolveToken(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	fresh := 0
	for _, tok := range tokens {
		if tok.Value != tokens[0].Value || tok.Value == "" {
			t.Fatal("two daemons have different tokens")
		}
		if tok.Fresh {
			fresh++
		}
	}
	if fresh != 1 {
		t.Errorf("%d of them made it", fresh)
	}
}

func TestTokenFile(t *testing.T) {
	dir := t.TempDir()
	for content, want := range map[string]string{
		"secret\n": "", "secret": "", "secret\r\n": "", "": "its content is empty", "two\nlines\n": "its content is not a token",
		strings.Repeat("x", 5000): "its content is not a token",
	} {
		path := filepath.Join(dir, "t")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		token, err := (&Config{TokenFile: path}).ResolveToken()
		if want == "" {
			if err != nil || token.Value != "secret" || !token.Explicit || token.Fresh {
				t.Errorf("%q: %v", content, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "two") {
			t.Errorf("%.20q: %v, want %q", content, err, want)
		}
	}
	if _, err := (&Config{TokenFile: filepath.Join(dir, "none")}).ResolveToken(); err == nil || !strings.Contains(err.Error(), "cannot be read") {
		t.Error(err)
	}
	if _, err := (&Config{}).ResolveToken(); err == nil || !strings.Contains(err.Error(), "no home directory") {
		t.Error(err)
	}
	if token, err := (&Config{Token: "t"}).ResolveToken(); err != nil || token.Value != "t" || !token.Explicit {
		t.Error(err)
	}
}
