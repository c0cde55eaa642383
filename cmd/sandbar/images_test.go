//go:build unix

package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

func TestImages(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.DebianImage)
	script(t, "images")
}

// A daemon creates sandboxes from images that another process imported, and images in use cannot be
// removed.
func TestImagesOfADaemon(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.DebianImage)
	p := serve(t, "", []string{"SANDBAR_TOKEN=t", "SANDBAR_ALLOW_DEGRADED=true"})
	p.expect(1, ``, `sandbar: image "debian" is not installed.*\n`, "create", "debian")
	p.expect(0, `sha256:[0-9a-f]{64}\n`, ``, "images", "import", testenv.DebianArchive(), "debian")
	p.expect(0, `sb_[a-z2-7]{26}\n`, ``, "create", "debian", "--name", "box")
	p.expect(0, `root\n2\n`, ``, "exec", "box", "--", "sh", "-c", "id -un; python3 -c 'print(1+1)'")
	up := filepath.Join(t.TempDir(), "up")
	if err := os.WriteFile(up, []byte("tool\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p.expect(0, `.*`, `.*`, "upload", "box", up, "/usr/local/share/tool")
	p.expect(0, `tool\n`, ``, "exec", "box", "--", "cat", "/usr/local/share/tool")
	p.expect(0, `.*debian:latest .* yes\n`, ``, "images", "list")
	p.expect(1, ``, `sandbar: .*in use.*\n`, "images", "rm", "debian")
	p.expect(0, `stopped box\n`, ``, "stop", "box")
	p.expect(0, `removed debian\n`, ``, "images", "rm", "debian")
	p.expect(0, `sb_[a-z2-7]{26}\n`, ``, "create", "python", "--name", "like")
	p.expect(0, `user\n`, ``, "exec", "like", "--", "id", "-un")
	p.ends(0, syscall.SIGTERM)
}
