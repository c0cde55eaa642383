package transfer

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client"
	"github.com/sandbar-dev/sandbar/client/wire"
)

// lying returns a Transfer from a daemon whose directories hold what list says. Every file holds
// "x".
func lying(t *testing.T, list func(dir string) []wire.Entry) *Transfer {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/dir") {
			json.NewEncoder(w).Encode(wire.Dir{Entries: list(r.URL.Query().Get("path"))})
			return
		}
		io.WriteString(w, "x")
	}))
	t.Cleanup(server.Close)
	c, err := client.New(server.URL, "token")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &Transfer{Client: c, Sandbox: "box", Stdout: io.Discard, Stderr: io.Discard, Command: "sandbar download"}
}

// A name that leads out of the directory is refused, and nothing is written for it.
func TestNamesOfASandbox(t *testing.T) {
	for _, name := range []string{"..", ".", "", "../evil", "a/b", "/etc/passwd", "nul\x00"} {
		tr := lying(t, func(string) []wire.Entry { return []wire.Entry{{Name: name, Type: wire.TypeFile, Mode: "0644"}} })
		parent := t.TempDir()
		err := tr.DownloadTree(t.Context(), "src", filepath.Join(parent, "to"))
		if sandbar.CodeOf(err) != sandbar.Denied {
			t.Errorf("%q: %v", name, err)
		}
		if found, _ := filepath.Glob(filepath.Join(parent, "*", "*")); len(found) > 0 {
			t.Errorf("%q: wrote %q", name, found)
		}
	}
}

// A directory that contains itself ends with an error.
func TestNesting(t *testing.T) {
	tr := lying(t, func(string) []wire.Entry { return []wire.Entry{{Name: "d", Type: wire.TypeDir}} })
	if err := tr.DownloadTree(t.Context(), "src", filepath.Join(t.TempDir(), "to")); sandbar.CodeOf(err) != sandbar.TooLarge {
		t.Errorf("%v", err)
	}
}

// A link at the place of a file is replaced; its target is left alone.
func TestLinkIsReplaced(t *testing.T) {
	tr := lying(t, func(string) []wire.Entry { return []wire.Entry{{Name: "f", Type: wire.TypeFile, Mode: "0400"}} })
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	if err := os.WriteFile(target, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, filepath.Join(dir, "f")); err != nil {
		t.Fatal(err)
	}
	if err := tr.DownloadTree(t.Context(), "src", dir); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(filepath.Join(dir, "f"))
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if b, err := os.ReadFile(target); err != nil || string(b) != "mine" {
		t.Errorf("the target holds %q, %v", b, err)
	}
	if found, err := os.ReadDir(dir); err != nil || len(found) != 2 {
		t.Errorf("%v, %v", found, err)
	}
}

func TestPermissions(t *testing.T) {
	for octal, want := range map[string]os.FileMode{"0644": 0o644, "4755": 0o755, "0000": 0o600, "": 0o666, "rw": 0o666} {
		if got := permissions(octal); got != want {
			t.Errorf("%q is %o, want %o", octal, got, want)
		}
	}
}
