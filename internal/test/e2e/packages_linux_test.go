package e2e

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// packages makes both packages from the tests' build of the command, with the scripts and files of
// the repository.
func packages(t *testing.T) (deb, rpm string) {
	t.Helper()
	testenv.Need(t, testenv.Linux, testenv.Root, testenv.GoTool, testenv.Nfpm)
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"LICENSE", "docs/deploy.md", "packaging", "scripts"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if !st.IsDir() {
			copyFile(t, filepath.Join(root, name), filepath.Join(dir, name), 0o644)
		} else if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(root, name))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	copyFile(t, testenv.Build(t, "cmd/sandbar"), filepath.Join(dir, "bin", "sandbar"), 0o755)
	cmd := exec.CommandContext(within(t, 5*time.Minute), "sh", filepath.Join(dir, "scripts", "packages.sh"), "v1.2.3-4-gabcdef0")
	cmd.Env = append(environ(), "TESTENV_CACHE="+testenv.Cache())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("packages.sh: %v: %s", err, out)
	}
	debs, rpms := glob(t, filepath.Join(dir, "bin", "sandbar_1.2.3.4.gabcdef0_*.deb")), glob(t, filepath.Join(dir, "bin", "sandbar-1.2.3.4.gabcdef0-1.*.rpm"))
	if len(debs) != 1 || len(rpms) != 1 {
		t.Fatalf("made %v and %v", debs, rpms)
	}
	return debs[0], rpms[0]
}

// installed lists the files of both packages with their permissions.
var installed = map[string]os.FileMode{
	"usr/bin/sandbar": 0o755, "usr/lib/systemd/system/sandbar.service": 0o644, "etc/sandbar/config.yaml": 0o600,
	"usr/share/doc/sandbar/copyright": 0o644, "usr/share/doc/sandbar/deploy.md": 0o644,
}

// The deb installs into a root directory, generates a token that only root can read, keeps the
// operator's changes, and leaves nothing after a purge.
func TestDeb(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.Root, testenv.Dpkg)
	deb, _ := packages(t)
	root := t.TempDir()
	for _, dir := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	dpkg := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(within(t, 5*time.Minute), "dpkg", append([]string{"--root=" + root, "--log=/dev/null", "--force-script-chrootless"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("dpkg %q: %v: %s", args, err, out)
		}
	}
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	dpkg("--install", deb)
	want := map[string]os.FileMode{"etc/sandbar/token": 0o600}
	for name, mode := range installed {
		want[name] = mode
	}
	for name, mode := range want {
		if st, err := os.Stat(filepath.Join(root, name)); err != nil || st.Mode() != mode {
			t.Errorf("%s: %v, %v; want mode %v", name, st, err, mode)
		}
	}
	token := read("etc/sandbar/token")
	if len(strings.TrimSpace(token)) < 32 {
		t.Errorf("the token has %d characters", len(token))
	}
	if unit := read("usr/lib/systemd/system/sandbar.service"); !strings.Contains(unit, "ExecStart=/usr/bin/sandbar serve\n") || !strings.Contains(unit, "ExecReload=") {
		t.Errorf("the unit:\n%s", unit)
	}
	show := exec.CommandContext(t.Context(), filepath.Join(root, "usr/bin/sandbar"), "serve", "--config", filepath.Join(root, "etc/sandbar/config.yaml"), "--print-config")
	show.Env = append(environ(), "SANDBAR_TOKEN_FILE="+filepath.Join(root, "etc/sandbar/token"))
	if out, err := show.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("listen: \"127.0.0.1:8080\"")) {
		t.Errorf("the installed command with the installed settings: %v: %.300s", err, out)
	}
	if err := exec.CommandContext(t.Context(), filepath.Join(root, "usr/bin/wasm-sandbox"), "--version").Run(); err != nil {
		t.Errorf("wasm-sandbox: %v", err)
	}

	changed := "max_queue: 7\n"
	if err := os.WriteFile(filepath.Join(root, "etc/sandbar/config.yaml"), []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	dpkg("--install", deb) // as an upgrade does
	if got := read("etc/sandbar/config.yaml"); got != changed {
		t.Errorf("the operator's settings became %q", got)
	}
	if got := read("etc/sandbar/token"); got != token {
		t.Error("an upgrade made another token")
	}
	dpkg("--remove", "sandbar")
	if _, err := os.Stat(filepath.Join(root, "usr/bin/sandbar")); err == nil {
		t.Error("the command is still there after a removal")
	}
	if got := read("etc/sandbar/token"); got != token {
		t.Error("a removal took the token away")
	}
	dpkg("--purge", "sandbar")
	for _, name := range []string{"etc/sandbar", "usr/bin/wasm-sandbox", "usr/share/doc/sandbar"} {
		if _, err := os.Lstat(filepath.Join(root, name)); err == nil {
			t.Errorf("%s is left after a purge", name)
		}
	}
}

// The rpm holds the same files with the same permissions.
func TestRPM(t *testing.T) {
	_, rpm := packages(t)
	b, err := os.ReadFile(rpm)
	if err != nil {
		t.Fatal(err)
	}
	payload := bytes.Index(b, []byte("\x1f\x8b\x08"))
	if !bytes.HasPrefix(b, []byte("\xed\xab\xee\xdb")) || payload < 0 {
		t.Fatal("not a package of rpm with a gzip payload")
	}
	if head := b[:payload]; !bytes.Contains(head, []byte("systemctl try-restart")) || !bytes.Contains(head, []byte("systemctl disable")) {
		t.Error("the package has no scripts")
	}
	z, err := gzip.NewReader(bytes.NewReader(b[payload:]))
	if err != nil {
		t.Fatal(err)
	}
	archive, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]os.FileMode{}
	// The archive is cpio(5) in the format newc: a header of hexadecimal fields, name
	// and content, each padded to four bytes.
	const header = 110
	padded := func(n int) int { return (n + 3) &^ 3 }
	for len(archive) >= header {
		field := func(i int) int {
			n, err := strconv.ParseUint(string(archive[6+8*i:14+8*i]), 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			return int(n)
		}
		mode, size, length := field(1), field(6), field(11)
		name := strings.TrimLeft(string(archive[header:header+length-1]), "./")
		if name == "TRAILER!!!" {
			break
		}
		got[name] = os.FileMode(mode & 0o777)
		archive = archive[padded(header+length)+padded(size):]
	}
	for name, mode := range installed {
		if got[name] != mode {
			t.Errorf("%s has mode %v, want %v; the package holds %v", name, got[name], mode, got)
		}
	}
	if _, ok := got["usr/bin/wasm-sandbox"]; !ok {
		t.Errorf("no wasm-sandbox in %v", got)
	}
}
