package guest

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// TestImageTreeLeavesOut checks what a root does not have, and that links are not followed.
func TestImageTreeLeavesOut(t *testing.T) {
	dir := t.TempDir()
	const content = "content of another directory"
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"link": secret, "up": "../../../../../../etc", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o666); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "setuid")
	if err := os.WriteFile(program, []byte("x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(program, 0o755|fs.ModeSetuid|fs.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	r, err := BuildRoot(t.Context(), t.TempDir(), imageOf("sha256:1", dir), RootOptions{})
	if err != nil {
		t.Fatal(err)
	}
	image := openErofs(t, r)
	if r.Skipped != 1 {
		t.Errorf("%d files skipped, want 1", r.Skipped)
	}
	if _, err := fs.Stat(image, "fifo"); err == nil {
		t.Error("the root has a FIFO")
	}
	if info, err := fs.Stat(image, "setuid"); err != nil || permissions(info) != 0o755 || info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|syscall.S_ISUID|syscall.S_ISGID) != 0 {
		t.Errorf("a setuid program: %v, %v", info, err)
	}
	for name, want := range map[string]string{"link": secret, "up": "../../../../../../etc", "loop": "loop"} {
		got, err := image.(interface{ ReadLink(string) (string, error) }).ReadLink(name)
		if err != nil || got != want {
			t.Errorf("%s leads to %q, %v, want %q", name, got, err, want)
		}
	}
	if b, err := os.ReadFile(r.Path); err != nil || strings.Contains(string(b), content) {
		t.Errorf("the root has the content of a link's target, %v", err)
	}
}

// TestUnreadableFilesAreCounted checks that files which this user cannot read are left out.
func TestUnreadableFilesAreCounted(t *testing.T) {
	testenv.Need(t, testenv.NonRoot)
	dir := t.TempDir()
	for _, name := range []string{"open", "closed"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "locked"), 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "closed"), 0); err != nil {
		t.Fatal(err)
	}
	r, err := BuildRoot(t.Context(), t.TempDir(), imageOf("sha256:1", dir), RootOptions{})
	if err != nil || r.Skipped != 2 {
		t.Fatalf("%+v, %v, want 2 skipped", r, err)
	}
	image := openErofs(t, r)
	if _, err := fs.Stat(image, "closed"); err == nil {
		t.Error("the root has an unreadable file")
	}
	if entries, err := fs.ReadDir(image, "locked"); err != nil || len(entries) > 0 {
		t.Errorf("an unreadable directory: %v, %v", entries, err)
	}
}

// TestHostTree checks the tree of this host, without its content.
func TestHostTree(t *testing.T) {
	tree, err := HostTree(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	view := treeFS{t: tree}
	for _, name := range []string{"usr/bin", "etc/passwd", "home/user", "tmp", "dev", "proc", "var/tmp", "etc/resolv.conf"} {
		if _, err := view.Stat(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"root", "etc/shadow", "etc/ssh", "sys", "dev/null", "home/user/x"} {
		if _, err := view.Stat(name); err == nil {
			t.Errorf("the tree has /%s", name)
		}
	}
	if entries, err := view.ReadDir("usr/local/etc"); err == nil && len(entries) > 0 {
		t.Errorf("/usr/local/etc has %d entries", len(entries))
	}
	again, err := HostTree(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if tree.digest() != again.digest() {
		t.Error("two readings of the same host have different digests")
	}
}

// TestDigestSeesChanges checks that a change of a file changes the digest of a tree without an ID.
func TestDigestSeesChanges(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("content"), 0o644); err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	look := func(what string) {
		t.Helper()
		tree := newTree("")
		defer tree.Close()
		if err := tree.bind(t.Context(), dir, "/opt/x"); err != nil {
			t.Fatal(err)
		}
		sum := tree.digest()
		if before, ok := seen[sum]; ok {
			t.Errorf("%s has the digest of %s", what, before)
		}
		seen[sum] = what
	}
	look("the beginning")
	os.WriteFile(file, []byte("another content"), 0o644)
	look("another content")
	os.Chmod(file, 0o755)
	look("another mode")
	os.Rename(file, file+"2")
	look("another name")
	os.Symlink("file2", file)
	look("a link")
	os.Remove(file)
	os.Symlink("file3", file)
	look("another link")
}
