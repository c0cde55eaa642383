package native

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/image"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// shelf is a store of images. It counts the open ones.
type shelf struct {
	dirs map[string]string

	mu   sync.Mutex
	open map[string]int
}

func (s *shelf) Open(_ context.Context, name string) (driver.Image, error) {
	dir, ok := s.dirs[name]
	if !ok {
		return driver.Image{}, sandbar.Errorf(sandbar.NotFound, "there is no image %q", name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[string]int{}
	}
	s.open[name]++
	return driver.Image{ID: name, Dir: dir, Close: func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open[name]--
	}}, nil
}

// left returns the number of open images.
func (s *shelf) left() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.open {
		n += k
	}
	return n
}

// smallImage creates a root with a shell, a few programs of this host and their libraries. Like an
// unpacked image it belongs to the daemon's user.
func smallImage(t testing.TB) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	for _, dir := range []string{"etc", "home/user", "tmp", "var/lib", "usr/share/doc", "usr/bin", "root", "proc"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	files := map[string]string{"etc/passwd": "root:x:0:0::/root:/bin/sh\n", "etc/hostname": "image\n", "usr/share/doc/a": "a",
		"home/user/.profile": "from the image\n", "var/lib/db": "1\n", "tmp/old": ""}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, program := range []string{"sh", "cat", "ls", "id", "touch", "mkdir", "mv", "rm", "stat", "head", "sleep", "chmod", "mknod", "ln", "env"} {
		copyProgram(t, root, program)
	}
	return root
}

// copyProgram copies a program to /bin of a root, with its libraries.
func copyProgram(t testing.TB, root, name string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatal(err)
	}
	copyELF(t, path, filepath.Join(root, "bin", name), root)
}

func copyELF(t testing.TB, from, to, root string) {
	t.Helper()
	if _, err := os.Lstat(to); err == nil {
		return
	}
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatalf("%s: %v", from, err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			name := make([]byte, p.Filesz)
			if _, err := p.ReadAt(name, 0); err != nil {
				t.Fatal(err)
			}
			loader := strings.TrimRight(string(name), "\x00")
			copyELF(t, loader, filepath.Join(root, loader), root)
		}
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range libraries {
		copyELF(t, libraryPath(t, l), filepath.Join(root, "usr/lib", l), root)
	}
}

// libraryPath searches the usual directories of Linux distributions for a library.
func libraryPath(t testing.TB, name string) string {
	t.Helper()
	for _, pattern := range []string{"/usr/lib/*-linux-gnu", "/lib/*-linux-gnu", "/usr/lib64", "/lib64", "/usr/lib", "/lib"} {
		if found, _ := filepath.Glob(filepath.Join(pattern, name)); len(found) > 0 {
			return found[0]
		}
	}
	t.Fatalf("%s is nowhere", name)
	return ""
}

// debianEnv is the environment variable with the path of the unpacked image, for daemons that the
// suite starts.
const debianEnv = "NATIVE_TEST_DEBIAN"

// debianImage unpacks the tests' Debian image.
func debianImage(t *testing.T) (dir string) {
	t.Helper()
	if dir := os.Getenv(debianEnv); dir != "" {
		return dir
	}
	s, err := image.OpenStore(filepath.Join(t.TempDir(), "images"), image.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(testenv.DebianArchive())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	i, err := s.Import(t.Context(), f, image.ImportOptions{Name: "debian"})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(debianEnv, i.Dir)
	return i.Dir
}

// imageDriver opens a driver with these images.
func imageDriver(t testing.TB, images driver.Images) *Driver {
	t.Helper()
	d := newDriver(t)
	d.Images = images
	return d
}

func imageSpec(d *Driver, image string) sandbar.Spec {
	s := spec(d)
	s.Image, s.AllowDegraded = image, true
	return s
}

// create creates a sandbox, which is destroyed at the test's end.
func create(t testing.TB, d *Driver, s sandbar.Spec) driver.Sandbox {
	t.Helper()
	b, err := d.Create(t.Context(), sandbar.NewID(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// shell runs a shell program and returns both outputs, and the exit code if it is not 0.
func shell(t testing.TB, b driver.Sandbox, script string) string {
	t.Helper()
	var out, errOut bytes.Buffer
	p, err := b.Start(t.Context(), sandbar.Cmd{Args: []string{"sh", "-c", script}}, driver.Stdio{Stdout: &out, Stderr: &errOut})
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	text := out.String() + errOut.String()
	if r.Outcome != sandbar.Exited || r.ExitCode != 0 {
		text += fmt.Sprintf("%s %d %d", r.Outcome, r.ExitCode, r.Signal)
	}
	return strings.TrimSpace(text)
}

// Programs in an image have uid 0 without capabilities. They can change all files, and the image
// stays unchanged.
func TestImageIsWritable(t *testing.T) {
	root := smallImage(t)
	images := &shelf{dirs: map[string]string{"small": root}}
	d := imageDriver(t, images)
	b := create(t, d, imageSpec(d, "small"))
	for _, tt := range []struct{ what, script, want string }{
		{"who one is", "id -u; id -g; echo $USER", "0\n0\nroot"},
		{"where one starts", "pwd; cat .profile", "/home/user\nfrom the image"},
		{"changing a file", "echo x >>/etc/passwd; cat /etc/passwd", "root:x:0:0::/root:/bin/sh\nx"},
		{"removing and making again", "rm -r /usr/share/doc && mkdir /usr/share/doc && ls -A /usr/share/doc", ""},
		{"renaming", "mv /var/lib /var/lib2 && cat /var/lib2/db; ls /var", "1\nlib2"},
		{"a name at the top", "mkdir /new && echo y >/new/f && cat /new/f", "y"},
		{"an executable", "echo 'echo ran' >/usr/bin/tool && chmod 755 /usr/bin/tool && tool", "ran"},
		{"owners", "stat -c %u:%g / /etc /etc/passwd /bin/sh /home/user", "0:0\n0:0\n0:0\n0:0\n0:0"},
		{"the sandbox's name", "cat /etc/hostname", "sandbar"},
		{"a fresh /tmp", "ls -A /tmp; stat -c %a /tmp /dev/shm", "1777\n1777"},
		{"no device", "mknod /tmp/null c 1 3 2>/dev/null || echo refused", "refused"},
		{"no capability", "while read k v; do case $k in Cap*) echo $v;; esac; done </proc/self/status",
			strings.TrimSpace(strings.Repeat("0000000000000000\n", 5))},
		{"nothing of how it was built", "for f in /lower /upper /work /.blank /.scratch; do [ ! -e $f ] || echo $f; done; cat /proc/cmdline", ""},
	} {
		if got := shell(t, b, tt.script); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.what, got, tt.want)
		}
	}
	for name, want := range map[string]string{"etc/passwd": "root:x:0:0::/root:/bin/sh\n", "var/lib/db": "1\n", "usr/share/doc/a": "a"} {
		if b, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(b) != want {
			t.Errorf("the image's %s is now %q, %v", name, b, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(root, "new")); err == nil {
		t.Error("a directory that a program made is in the image")
	}
}

// Sandboxes of one image, concurrent or consecutive, share no changes.
func TestImageIsPrivate(t *testing.T) {
	images := &shelf{dirs: map[string]string{"small": smallImage(t)}}
	d := imageDriver(t, images)
	a, b := create(t, d, imageSpec(d, "small")), create(t, d, imageSpec(d, "small"))
	dirs := "/ /tmp /var /var/lib /usr /usr/bin /usr/lib /home /home/user /dev/shm /etc /root /bin"
	if got := shell(t, a, "for d in "+dirs+"; do echo mine >$d/trace || echo no $d; done; rm /usr/share/doc/a"); got != "" {
		t.Fatalf("writing: %s", got)
	}
	look := "for d in " + dirs + "; do [ ! -e $d/trace ] || echo found $d; done; cat /usr/share/doc/a"
	if got := shell(t, b, look); got != "a" {
		t.Errorf("beside: %s", got)
	}
	c := create(t, d, imageSpec(d, "small"))
	if got := shell(t, c, look); got != "a" {
		t.Errorf("later: %s", got)
	}
	if got := shell(t, b, "for d in /dev /proc /proc/sys /proc/sys/kernel; do echo x 2>/dev/null >$d/trace && echo wrote $d; done; :"); got != "" {
		t.Errorf("what is nobody's: %s", got)
	}
	if n := images.left(); n != 3 {
		t.Errorf("%d images are open with three sandboxes", n)
	}
}

// The limits of disk and inodes count all written files, changed files of the image included, and
// are exact.
func TestImageIsBounded(t *testing.T) {
	root := smallImage(t)
	if err := os.WriteFile(filepath.Join(root, "usr/big"), make([]byte, 8<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	d := imageDriver(t, &shelf{dirs: map[string]string{"small": root}})
	s := imageSpec(d, "small")
	s.Limits.Disk, s.Limits.Inodes = 4<<20, 100
	b := create(t, d, s)
	if got := shell(t, b, "stat -f -c '%f %S %d' /tmp"); got != fmt.Sprintf("%d 4096 100", 4<<20/4096) && unix.Getpagesize() == 4096 {
		t.Errorf("free blocks, their size and inodes: %s", got)
	}
	for what, script := range map[string]string{
		"a new file":            "head -c 6000000 /dev/zero >/usr/new",
		"a change to a large":   "echo x >>/usr/big",
		"three places together": "head -c 2000000 /dev/zero >/tmp/a && head -c 2000000 /dev/zero >/dev/shm/b && head -c 2000000 /dev/zero >/var/c",
	} {
		b := create(t, d, s)
		if got := shell(t, b, script); !strings.Contains(got, "No space left") {
			t.Errorf("%s: %q", what, got)
		}
	}
	if got := shell(t, b, "i=0; while [ $i -lt 200 ]; do touch /var/$i || break; i=$((i+1)); done; echo $i"); !strings.HasPrefix(got, "100") && !strings.HasPrefix(got, "99") {
		t.Errorf("files made of 100: %s", got)
	}
}

// No link of an image is followed while a sandbox is created.
func TestImageOfLinks(t *testing.T) {
	bait := t.TempDir()
	if err := os.Chmod(bait, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, place := range []string{"etc", "dev", "proc", "tmp", "home", "home/user", "etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/mtab", "dev/shm", "dev/pts", ".blank",
		"lower", "upper", "work", "root"} {
		t.Run(strings.ReplaceAll(place, "/", "_"), func(t *testing.T) {
			root := smallImage(t)
			link := filepath.Join(root, place)
			if err := os.RemoveAll(link); err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(bait, link); err != nil {
				t.Fatal(err)
			}
			d := imageDriver(t, &shelf{dirs: map[string]string{"links": root}})
			b := create(t, d, imageSpec(d, "links"))
			if got := shell(t, b, "cat /etc/hostname; ls -d /proc/self /dev/null /tmp /home/user /dev/shm; echo x >/dev/null; cat /proc/cmdline"); got !=
				"sandbar\n/dev/null\n/dev/shm\n/home/user\n/proc/self\n/tmp" {
				t.Errorf("a broken sandbox: %s", got)
			}
			entries, err := os.ReadDir(bait)
			if err != nil || len(entries) > 0 {
				t.Errorf("followed to the host: %v, %v", entries, err)
			}
		})
	}
}

// An image is closed when its sandbox ends, and when the creation fails.
func TestImageIsClosed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	images := &shelf{dirs: map[string]string{"small": smallImage(t), "file": file, "gone": file + "/x", "": "", "like-host": ""}}
	d := imageDriver(t, images)
	b, err := d.Create(t.Context(), sandbar.NewID(), imageSpec(d, "small"))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]sandbar.Code{"file": sandbar.Unsupported, "gone": "", "unknown": sandbar.NotFound} {
		if b, err := d.Create(t.Context(), sandbar.NewID(), imageSpec(d, name)); err == nil {
			t.Errorf("%s: a sandbox", name)
			b.Destroy(t.Context())
		} else if want != "" && sandbar.CodeOf(err) != want {
			t.Errorf("%s: %v, code %s, want %s", name, err, sandbar.CodeOf(err), want)
		}
	}
	b, err = d.Create(t.Context(), sandbar.NewID(), imageSpec(d, "like-host"))
	if err != nil {
		t.Fatal(err)
	}
	if got := shell(t, b, "id -u"); got != "1000" {
		t.Errorf("an image that stands for the host's own programs runs them as %s", got)
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	if n := images.left(); n != 0 {
		t.Errorf("%d images are left open", n)
	}
}

// Without descriptor passing an image is refused if it needs a descriptor, and works otherwise.
func TestImageOverAStream(t *testing.T) {
	d := imageDriver(t, &shelf{dirs: map[string]string{"small": smallImage(t)}})
	d.mode = agent.ModeStream
	b, err := d.Create(t.Context(), sandbar.NewID(), imageSpec(d, "small"))
	if d.IDs.Ranged {
		if sandbar.CodeOf(err) != sandbar.Unsupported {
			t.Errorf("%v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := shell(t, b, "id -u"); got != "0" {
		t.Error(got)
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}
