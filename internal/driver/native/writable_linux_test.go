package native

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/linux/hostenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// places returns directories of the image "host" in which users commonly install files. local says
// whether /usr/local is writable on this kernel.
func places() (dirs []string, local bool) {
	dirs = []string{"/", "/home", "/home/user", "/opt", "/run", "/srv", "/tmp", "/var", "/dev/shm", "/usr/local/etc"}
	local = hostenv.LocalNote() == ""
	if local {
		dirs = append(dirs, "/usr/local", "/usr/local/bin", "/usr/local/lib", "/usr/local/share")
	}
	// Some directories of /usr/local may not exist on the host.
	return slices.DeleteFunc(dirs, func(dir string) bool {
		_, err := os.Stat(dir)
		return strings.HasPrefix(dir, "/usr/local/") && err != nil
	}), local
}

// bothKinds runs a test in cold sandboxes and in forks of a template.
func bothKinds(t *testing.T, test func(t *testing.T, d *Driver, box func() driver.Sandbox)) {
	t.Run("cold", func(t *testing.T) {
		d := newDriver(t)
		test(t, d, func() driver.Sandbox { return create(t, d, held(d, spec(d))) })
	})
	t.Run("warm", func(t *testing.T) {
		d := newDriver(t)
		if os.Geteuid() == 0 && !d.IDs.Ranged {
			t.Fatal("root has no range of ids to make templates with")
		}
		tmpl := newTemplate(t, d, pythonTemplate(d))
		test(t, d, func() driver.Sandbox { return newFork(t, tmpl) })
	})
}

// Users can install files in the writable directories, and all of these end with the sandbox.
func TestHostIsWritable(t *testing.T) {
	bothKinds(t, func(t *testing.T, _ *Driver, box func() driver.Sandbox) {
		b := box()
		dirs, local := places()
		for _, dir := range dirs {
			script := fmt.Sprintf(`cd %s && mkdir -p made/below && echo 'echo ran' >made/tool && chmod 755 made/tool && mv made/tool made/below/tool &&
				([ $PWD = /dev/shm ] || made/below/tool) && rm -r made && mkdir made && [ -z "$(ls -A made)" ] && rmdir made`, dir)
			if got := shell(t, b, script); got != "ran" && (dir != "/dev/shm" || got != "") {
				t.Errorf("%s: %s", dir, got)
			}
		}
		for what, script := range map[string]string{
			"a directory in the root":   "mkdir /app && echo x >/app/f && cat /app/f",
			"a home for a program":      "mkdir /home/app && echo x >/home/app/main.js && cat /home/app/main.js",
			"a database of a service":   "mkdir -p /var/lib/service /var/log && echo x >/var/lib/service/db && cat /var/lib/service/db",
			"a file for all programs":   "echo x >/run/service.pid && cat /var/run/service.pid",
			"a mode, as umask has it":   "umask 077 && touch /opt/secret && [ $(stat -c %a /opt/secret) = 600 ] && echo x",
			"a link between two places": "echo x >/srv/a && ln /srv/a /var/b && cat /var/b",
		} {
			if got := shell(t, b, script); got != "x" {
				t.Errorf("%s: %s", what, got)
			}
		}
		if got := shell(t, b, `printf '#!/bin/sh\necho mine\n' >x && install -m755 x /usr/local/bin/x && x`); local && got != "mine" || !local && got == "mine" {
			t.Errorf("a command for all programs: %s", got)
		}
	})
}

// The host's directories stay unchanged.
func TestHostStaysAsItIs(t *testing.T) {
	bothKinds(t, func(t *testing.T, _ *Driver, box func() driver.Sandbox) {
		b := box()
		for _, dir := range []string{"/usr", "/usr/bin", "/usr/lib", "/bin", "/lib", "/etc", "/etc/ssl/certs", "/dev", "/dev/pts", "/proc", "/proc/sys", "/proc/self"} {
			if got := shell(t, b, "cd "+dir+" && (echo x >trace) 2>/dev/null && echo wrote; (mkdir trace.d) 2>/dev/null && echo made; :"); got != "" {
				t.Errorf("%s: %s", dir, got)
			}
		}
		for what, script := range map[string]string{
			"a file of the host's":       "(echo x >>/etc/os-release) 2>/dev/null && echo wrote; (rm /usr/bin/env) 2>/dev/null && echo removed; :",
			"a program of the host's":    "(chmod 777 /usr/bin/env) 2>/dev/null && echo changed; (mv /usr/bin/env /usr/bin/env2) 2>/dev/null && echo moved; :",
			"the settings as a whole":    "(mv /etc /etc2) 2>/dev/null && echo moved; (rm -r /etc) 2>/dev/null; [ -s /etc/passwd ] || echo removed",
			"the directories as a whole": "for d in /usr /etc /dev /proc /home/user; do (mv $d /elsewhere) 2>/dev/null && echo moved $d; done; :",
			"how it was built":           "for f in /proc/upper /proc/lower /proc/work /proc/shm /proc/etc /.blank /.cover /upper /work; do [ ! -e $f ] || echo $f; done",
			"what the host has there":    "ls -A /opt /srv /home/user /usr/local/etc | grep -v '^/\\|^$'; ls -A /run | grep -v ^bin$; ls -A /var | grep -v '^run$\\|^tmp$'; ls -A /home | grep -v ^user$; ls -d /root /mnt /media /boot /sys /lost+found 2>/dev/null; :",
		} {
			if got := shell(t, b, script); got != "" {
				t.Errorf("%s: %s", what, got)
			}
		}
	})
}

// Sandboxes, concurrent or consecutive, share no changes.
func TestHostIsPrivate(t *testing.T) {
	bothKinds(t, func(t *testing.T, _ *Driver, box func() driver.Sandbox) {
		dirs, _ := places()
		list := strings.Join(dirs, " ")
		a, b := box(), box()
		if got := shell(t, a, "for d in "+list+"; do echo mine >$d/trace || echo no $d; done"); got != "" {
			t.Fatalf("writing: %s", got)
		}
		for what, other := range map[string]driver.Sandbox{"beside": b, "later": box()} {
			if got := shell(t, other, "for d in "+list+"; do [ ! -e $d/trace ] || echo found $d; done"); got != "" {
				t.Errorf("%s: %s", what, got)
			}
		}
	})
	for _, dir := range []string{"/", "/home", "/opt", "/srv", "/var", "/usr/local", "/usr/local/bin"} {
		if _, err := os.Lstat(filepath.Join(dir, "trace")); err == nil {
			t.Errorf("%s/trace is on the host", dir)
		}
	}
}

// The limits of disk and inodes count all writable directories together, and are exact.
func TestHostIsBounded(t *testing.T) {
	d := newDriver(t)
	s := held(d, spec(d))
	s.Limits.Disk, s.Limits.Inodes = 4<<20, 100
	b := create(t, d, s)
	if got := shell(t, b, "stat -f -c '%f %S %d' /"); got != fmt.Sprintf("%d 4096 100", 4<<20/4096) && unix.Getpagesize() == 4096 {
		t.Errorf("free blocks, their size and inodes: %s", got)
	}
	dirs, _ := places()
	for _, dir := range dirs {
		if got := shell(t, create(t, d, s), "head -c 6000000 /dev/zero >"+dir+"/big"); !strings.Contains(got, "No space left") {
			t.Errorf("6 MB in %s: %q", dir, got)
		}
	}
	together := "i=0; for d in " + strings.Join(dirs, " ") + "; do head -c 500000 /dev/zero >$d/part || break; done"
	if got := shell(t, create(t, d, s), together); !strings.Contains(got, "No space left") {
		t.Errorf("0.5 MB in each of %d places: %q", len(dirs), got)
	}
	if got := shell(t, b, "i=0; while [ $i -lt 200 ]; do touch /opt/$i || break; i=$((i+1)); done; echo $i"); !strings.HasPrefix(got, "100\n") {
		t.Errorf("files made of 100: %s", got)
	}
}

// Package managers install from files without options, into their own sandbox only.
func TestHostPackages(t *testing.T) {
	testenv.Need(t, testenv.PyWheels, testenv.Npm)
	if note := hostenv.LocalNote(); note != "" {
		t.Log(note)
	}
	pips, err := filepath.Glob(filepath.Join(testenv.WheelsDir(), "pip-*.whl"))
	if err != nil || len(pips) != 1 {
		t.Fatalf("%v, %v", pips, err)
	}
	archive := filepath.Join(t.TempDir(), "tool.tgz")
	if err := os.WriteFile(archive, npmPackage(t), 0o600); err != nil {
		t.Fatal(err)
	}
	bothKinds(t, func(t *testing.T, _ *Driver, box func() driver.Sandbox) {
		b := box()
		for _, name := range []string{pips[0], archive} {
			if err := copyIn(b, name, filepath.Base(name)); err != nil {
				t.Fatal(err)
			}
		}
		for _, step := range []struct{ what, script, want string }{
			{"a wheel", `python3 - <<'E'
import zipfile
z = zipfile.ZipFile("hello_sandbar-1.0-py3-none-any.whl", "w")
z.writestr("hello_sandbar.py", "def main(): print('hello from', __name__)\n")
i = "hello_sandbar-1.0.dist-info/"
z.writestr(i + "METADATA", "Metadata-Version: 2.1\nName: hello-sandbar\nVersion: 1.0\n")
z.writestr(i + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
z.writestr(i + "entry_points.txt", "[console_scripts]\nhello-sandbar = hello_sandbar:main\n")
z.writestr(i + "RECORD", "")
z.close()
E
`, ""},
			{"pip install", "python3 \"$(echo pip-*.whl)/pip\" install --quiet --no-index --disable-pip-version-check ./hello_sandbar-1.0-py3-none-any.whl", ""},
			{"its module", "cd / && python3 -c 'import hello_sandbar; hello_sandbar.main()'", "hello from hello_sandbar"},
			{"its command", "PATH=$PATH:$HOME/.local/bin; hello-sandbar", "hello from hello_sandbar"},
			{"npm install -g", "npm install -g --offline --no-audit --no-fund --loglevel=error ./tool.tgz >out 2>&1 || cat out", ""},
			{"its command", "hello-npm", "hello from npm"},
		} {
			if got := shell(t, b, step.script); got != step.want {
				t.Errorf("%s: %s", step.what, got)
			}
		}
		if got := shell(t, box(), "python3 -c 'import hello_sandbar' 2>/dev/null && echo found; command -v hello-npm hello-sandbar; :"); got != "" {
			t.Errorf("in another sandbox: %s", got)
		}
	})
}

// npmPackage returns the archive that "npm pack" creates of a package with one command.
func npmPackage(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, f := range [][2]string{
		{"package/package.json", `{"name":"hello-npm","version":"1.0.0","bin":{"hello-npm":"main.js"}}`},
		{"package/main.js", "#!/usr/bin/env node\nconsole.log('hello from npm')\n"},
	} {
		err := w.WriteHeader(&tar.Header{Name: f[0], Mode: 0o755, Size: int64(len(f[1]))})
		if err == nil {
			_, err = io.WriteString(w, f[1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
