package native

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/linux/sandboxes"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// saving opens a driver that can save sandboxes.
func saving(t testing.TB) restoring {
	t.Helper()
	testenv.Need(t, testenv.Freezer)
	d := newDriver(t)
	r, ok := d.withAbilities().(restoring)
	if !ok {
		t.Fatal(d.Groups.CanFreeze())
	}
	return r
}

// roomy is a Spec with room for many files.
func roomy(d *Driver) sandbar.Spec {
	s := spec(d)
	s.Limits.Memory, s.Limits.Disk, s.Limits.Inodes = 2<<30, 1<<30, 300_000
	return s
}

// save saves a sandbox into a new directory.
func save(t testing.TB, b driver.Sandbox, o driver.SaveOptions) (dir string) {
	t.Helper()
	dir = t.TempDir()
	s, ok := driver.As[driver.Saver](b)
	if !ok {
		t.Fatal("the sandbox cannot be saved")
	}
	size, err := s.Save(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	if size <= 0 {
		t.Errorf("the state has %d bytes", size)
	}
	return dir
}

// keptOnDisk are the options of a state with a digest. The sandbox stays still.
func keptOnDisk() driver.SaveOptions {
	return driver.SaveOptions{Commit: func(int64) error { return nil }}
}

// restoreFrom restores a sandbox, which is destroyed at the test's end.
func restoreFrom(t testing.TB, d restoring, s sandbar.Spec, dir string) driver.Sandbox {
	t.Helper()
	b, err := d.Restore(t.Context(), sandbar.NewID(), s, dir)
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

// kinds makes every kind of file below the working directory.
const kinds = `set -e
mkdir -p a/b/c 'with
newline' closed deny
echo one >a/one; chmod 640 a/one; ln a/one a/b/same; ln a/one 'with
newline/again'
echo two >a/b/two; touch -d '2001-02-03 04:05:06.789' a/b/two
ln -s ../nowhere a/link; touch -h -d 1999-01-01 a/link
mkfifo -m 604 a/pipe
truncate -s 8M sparse; printf middle | dd of=sparse bs=1 seek=4000000 conv=notrunc 2>/dev/null; printf end >>sparse
head -c 300000 /dev/urandom >big
echo secret >closed/file; chmod 000 closed/file closed
touch deny/file; chmod 0300 deny
printf '' >empty; chmod 4755 empty
printf x >"$(printf 'bad\377name')"
touch -d '2010-01-01' a/b; chmod 1777 a/b/c`

// listing prints everything about the files below the working directory.
const listing = `chmod 700 closed deny; chmod 400 closed/file
find . -mindepth 1 ! -path ./closed ! -path ./deny -printf '%p %y %m %n %T@ %l ' \( -type d -printf '\n' -o -printf '%s %b\n' \) | sort
find . -type f | sort | xargs -d '\n' sh -c 'for f; do case $f in *newline*) ;; *) sha256sum "$f";; esac; done' sh
cat 'with
newline/again'; stat -c %i a/one a/b/same 'with
newline/again' | uniq | wc -l`

func TestSavedFiles(t *testing.T) {
	d := saving(t)
	d.Images = &shelf{dirs: map[string]string{"debian": ""}}
	for _, image := range []string{sandbar.ImageHost, "debian"} {
		t.Run(image, func(t *testing.T) {
			s := roomy(d.Driver)
			if s.Image = image; image != sandbar.ImageHost {
				testenv.Need(t, testenv.DebianImage)
				d.Images.(*shelf).dirs["debian"] = debianImage(t)
			}
			source := create(t, d.Driver, s)
			dirs := []string{".", "/tmp/x", "/dev/shm/x", "/opt/x"}
			for _, dir := range dirs {
				if got := shell(t, source, "mkdir -p "+dir+"; cd "+dir+"\n"+kinds); got != "" {
					t.Fatalf("making files in %s: %s", dir, got)
				}
			}
			modes := shell(t, source, "stat -c '%a %Y' closed deny")
			forked := save(t, source, driver.SaveOptions{})
			if got := shell(t, source, "stat -c '%a %Y' closed deny"); got != modes {
				t.Errorf("saving changes modes: %s, not %s", got, modes)
			}
			kept := save(t, source, keptOnDisk())
			if _, err := source.FS().Stat(t.Context(), "/"); sandbar.CodeOf(err) != sandbar.Gone {
				t.Errorf("a call into a saved sandbox: %v", err)
			}
			copies := []driver.Sandbox{restoreFrom(t, d, s, forked), restoreFrom(t, d, s, kept)}
			again := restoreFrom(t, d, s, save(t, copies[0], driver.SaveOptions{})) // a copy of a copy
			fresh := create(t, d.Driver, s)
			for _, dir := range dirs {
				shell(t, fresh, "mkdir -p "+dir+"; cd "+dir+"\n"+kinds)
				var want string
				for i, b := range append(copies, again) {
					if got := shell(t, b, "cd "+dir+"; stat -c '%a %Y' closed deny"); dir == "." && got != modes {
						t.Errorf("copy %d: modes %s, not %s", i, got, modes)
					}
					got := shell(t, b, "cd "+dir+"\n"+listing)
					if i == 0 {
						want = got
						for _, line := range []string{"./a/b/two f 644 1 981173106.78", "./a/link l 777 1 915148800.0000000000 ../nowhere", "./a/pipe p 604", "./empty f 4755", "./a/b d 755 3 1262304000", "./a/b/c d 1777", "./a/one f 640 3", "\n1"} {
							if !strings.Contains("\n"+got, line) {
								t.Errorf("%s: no %q in\n%s", dir, line, got)
							}
						}
					} else if got != want {
						t.Errorf("%s: copy %d differs:\n%s\nnot\n%s", dir, i, got, want)
					}
				}
			}
			// what a program can still do in a copy
			if got := shell(t, copies[1], "echo more >>a/one && cat a/b/same && rm -r a 'with\nnewline' big && touch new && ls /proc/work /proc/upper /upper /work 2>/dev/null; :"); got != "one\nmore" {
				t.Errorf("in a copy: %s", got)
			}
		})
	}
}

// Files of an image that were removed, replaced or changed are so in a copy.
func TestSavedImage(t *testing.T) {
	testenv.Need(t, testenv.DebianImage)
	d := saving(t)
	images := &shelf{dirs: map[string]string{"debian": debianImage(t), "other": smallImage(t)}}
	d.Images = images
	s := imageSpec(d.Driver, "debian")
	b := create(t, d.Driver, s)
	if got := shell(t, b, `set -e
rm /etc/debian_version; rm -r /usr/share/doc; mkdir /usr/share/doc; echo mine >/usr/share/doc/mine
echo changed >>/etc/passwd; mv /etc/issue /etc/issue2; rm -r /usr/share/man; ln -s /nowhere /usr/share/man
echo 10.0.0.1 here >>/etc/hosts; chmod 700 /usr/lib; mkdir /new; echo x >/new/x`); got != "" {
		t.Fatal(got)
	}
	const look = `ls /etc/debian_version 2>/dev/null; ls /usr/share/doc; tail -1 /etc/passwd; ls /etc/issue 2>/dev/null; cat /etc/issue2
readlink /usr/share/man; tail -1 /etc/hosts; stat -c %a /usr/lib; cat /new/x; cat /etc/os-release | head -1; ls /usr/bin | wc -l`
	want := shell(t, b, look)
	id := shell(t, b, "cat /etc/machine-id")
	dir := save(t, b, driver.SaveOptions{})
	c := restoreFrom(t, d, s, dir)
	for range 2 { // of a copy of the copy too
		if got := shell(t, c, look); got != want || !strings.Contains(want, "mine\nchanged") {
			t.Errorf("the copy has\n%s\nnot\n%s", got, want)
		}
		if got := shell(t, c, "cat /etc/machine-id"); got == id || got == "" {
			t.Errorf("the copy's machine id is %q", got)
		}
		c = restoreFrom(t, d, s, save(t, c, driver.SaveOptions{}))
	}
	for image, code := range map[string]sandbar.Code{"other": sandbar.Unsupported, sandbar.ImageHost: sandbar.Unsupported} {
		o := s
		o.Image = image
		_, err := d.Restore(t.Context(), sandbar.NewID(), o, dir)
		if sandbar.CodeOf(err) != code {
			t.Errorf("a state of another image than %s: %v", image, err)
		}
	}
}

// Programs cannot notice a save, and files do not change during it.
func TestSaveIsConsistent(t *testing.T) {
	d := saving(t)
	b := create(t, d.Driver, roomy(d.Driver))
	// Each program writes the same number to two files, one at each end of the tree. The number of
	// signals and stops that it sees is in a third.
	p := startIn(t, b, `trap 'echo signal >>seen' CONT TSTP USR1
mkdir -p a z; i=0; for j in $(seq 3000); do : >a/$j; done; while :; do i=$((i+1)); echo $i >a/n; echo $i >z/n; done`)
	defer p.KillTree()
	waitFor(t, func() bool { return shell(t, b, "cat z/n 2>/dev/null; :") != "" })
	for compared, rounds := 0, 0; compared < 5; rounds++ {
		if rounds == 50 {
			t.Fatalf("only %d of %d saves had numbers in both files", compared, rounds)
		}
		c := restoreFrom(t, d, roomy(d.Driver), save(t, b, driver.SaveOptions{}))
		var first, last int
		if _, err := fmt.Sscan(shell(t, c, "cat a/n z/n seen 2>/dev/null"), &first, &last); err != nil {
			continue // between truncation and write
		}
		compared++
		if first < last || first > last+1 {
			t.Errorf("the files are of different moments: %d and %d", first, last)
		}
		before := shell(t, b, "cat z/n")
		waitFor(t, func() bool { return shell(t, b, "cat z/n; ls seen 2>/dev/null; :") != before })
	}
	if got := shell(t, b, "cat seen 2>/dev/null; :"); got != "" {
		t.Errorf("the program saw %s", got)
	}
	// programs that start others all the time
	q := startIn(t, b, `while :; do (sleep 0.001 &) ; /bin/true & done`)
	for range 3 {
		save(t, b, driver.SaveOptions{})
	}
	if err := q.KillTree(); err != nil {
		t.Error(err)
	}
}

// startIn starts a shell program that goes on.
func startIn(t testing.TB, b driver.Sandbox, script string) driver.Process {
	t.Helper()
	p, err := b.Start(t.Context(), sandbar.Cmd{Args: []string{"sh", "-c", script}}, driver.Stdio{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func waitFor(t testing.TB, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !cond(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not happen")
		}
	}
}

// Trees that a hostile program builds are saved within bounds, or refused.
func TestSaveHostileTrees(t *testing.T) {
	testenv.Need(t, testenv.Python)
	d := saving(t)
	for what, tt := range map[string]struct{ script, look, want string }{
		"many files": {`import os
for i in range(100000): os.close(os.open(f"f{i}", os.O_CREAT|os.O_WRONLY))`, "ls -U | wc -l", "100000"},
		"many directories": {`import os
for i in range(20000): os.makedirs(f"d{i}/x")`, "find . -type d | wc -l", "40001"},
		"a deep tree": {`import os
for i in range(3000): os.mkdir("d"); os.chdir("d")
open("bottom", "w").write("reached")`, `python3 -c 'import os
while os.path.isdir("d"): os.chdir("d")
print(open("bottom").read())'`, "reached"},
		"names and links": {`import os
os.mkdir(b"\n\x01\xff"); open(b"\n\x01\xff/" + b"n"*255, "w").write("x")
for i in range(300): os.link(b"\n\x01\xff/" + b"n"*255, f"l{i}")
os.symlink("/"*4000, "long"); os.symlink("/proc/1/root", "root"); os.symlink("..", "up")`, "stat -c %h l7; readlink root; readlink up; readlink long | wc -c", "301\n/proc/1/root\n..\n4001"},
		"attributes": {`import os
open("f", "w").write("x")
for n in ("user.mine", "user.overlay.redirect", "user.overlay.opaque"):
    try: os.setxattr("f", n, b"v\0w")
    except OSError as e: pass`, `python3 -c 'import os
print(sorted(n for n in os.listxattr("f") if n in ("user.overlay.redirect",)))'`, "[]"},
	} {
		t.Run(what, func(t *testing.T) {
			s := roomy(d.Driver)
			b := create(t, d.Driver, s)
			if err := copyText(b, "make.py", tt.script); err != nil {
				t.Fatal(err)
			}
			if got := shell(t, b, "mkdir tree && cd tree && python3 ../make.py"); got != "" {
				t.Fatal(got)
			}
			before := time.Now()
			dir := save(t, b, driver.SaveOptions{})
			saved := time.Now()
			c := restoreFrom(t, d, s, dir)
			t.Logf("saved in %v, restored in %v", saved.Sub(before), time.Since(saved))
			if got := shell(t, c, "cd tree; "+tt.look); got != tt.want {
				t.Errorf("the copy has %s, not %s", got, tt.want)
			}
		})
	}
}

// copyText writes a file of the sandbox.
func copyText(b driver.Sandbox, name, text string) error {
	w, err := b.FS().Create(context.Background(), name, sandbar.CreateOptions{Mode: 0o600})
	if err != nil {
		return err
	}
	if _, err := io.WriteString(w, text); err != nil {
		return err
	}
	return w.Commit()
}

// A damaged or false state is refused, and nothing is left.
func TestBadStates(t *testing.T) {
	d := saving(t)
	s := roomy(d.Driver)
	b := create(t, d.Driver, s)
	shell(t, b, "mkdir d; echo x >d/f; head -c 100000 /dev/urandom >r; ln r r2; ln -s a l")
	fork := save(t, b, driver.SaveOptions{})
	kept := save(t, b, keptOnDisk())
	good, err := os.ReadFile(filepath.Join(kept, filesName))
	if err != nil {
		t.Fatal(err)
	}
	bad := func(from string, change func(dir string) error) string {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
		if err := change(dir); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	files := func(b []byte) func(dir string) error {
		return func(dir string) error { return os.WriteFile(filepath.Join(dir, filesName), b, 0o600) }
	}
	replaced := func(old, new string) func(dir string) error {
		return func(dir string) error {
			name := filepath.Join(dir, infoName)
			b, err := os.ReadFile(name)
			if err == nil && !bytes.Contains(b, []byte(old)) {
				err = fmt.Errorf("no %s in %s", old, b)
			}
			return errors.Join(err, os.WriteFile(name, bytes.Replace(b, []byte(old), []byte(new), 1), 0o600))
		}
	}
	flipped := bytes.Clone(good)
	flipped[len(flipped)/2] ^= 1
	for what, tt := range map[string]struct {
		dir  string
		code sandbar.Code
	}{
		"nothing":            {t.TempDir(), sandbar.Gone},
		"one bit":            {bad(kept, files(flipped)), sandbar.Gone},
		"truncated":          {bad(kept, files(good[:len(good)-1])), sandbar.Gone},
		"longer":             {bad(kept, files(append(bytes.Clone(good), 0))), sandbar.Gone},
		"no files":           {bad(kept, func(dir string) error { return os.Remove(filepath.Join(dir, filesName)) }), sandbar.Gone},
		"no description":     {bad(kept, func(dir string) error { return os.Remove(filepath.Join(dir, infoName)) }), sandbar.Gone},
		"a description of 0": {bad(kept, func(dir string) error { return os.Truncate(filepath.Join(dir, infoName), 0) }), sandbar.Gone},
		"another format":     {bad(kept, replaced(`"format": 1`, `"format": 2`)), sandbar.Unsupported},
		"another image":      {bad(kept, replaced(`"image": ""`, `"image": "x"`)), sandbar.Unsupported},
		"another process":    {bad(fork, replaced(`"owner": "`, `"owner": "x`)), sandbar.Gone},
		"a link": {bad(kept, func(dir string) error {
			name := filepath.Join(dir, filesName)
			return errors.Join(os.Remove(name), os.Symlink(filepath.Join(kept, filesName), name))
		}), sandbar.Gone},
	} {
		if _, err := d.Restore(t.Context(), sandbar.NewID(), s, tt.dir); sandbar.CodeOf(err) != tt.code {
			t.Errorf("%s: %v, not %s", what, err, tt.code)
		}
	}
	small := s
	small.Limits.Disk = 64 << 10
	if _, err := d.Restore(t.Context(), sandbar.NewID(), small, kept); sandbar.CodeOf(err) != sandbar.Invalid {
		t.Errorf("a smaller disk: %v", err)
	}
	if got := shell(t, restoreFrom(t, d, s, kept), "cat d/f"); got != "x" {
		t.Errorf("the whole state: %s", got)
	}
}

// An agent that writes a false archive harms its own copies alone.
func TestFalseArchives(t *testing.T) {
	d := saving(t)
	s := roomy(d.Driver)
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.Mkdir(victim, 0o777); err != nil {
		t.Fatal(err)
	}
	str := func(s string) string { return string([]byte{byte(len(s)), byte(len(s) >> 8), 0, 0}) + s }
	zeros := func(n int) string { return strings.Repeat("\x00", n) }
	enter := func(name string) string { return "\x01" + str(name) + "\x00" }
	file := func(name string) string {
		return "\x03" + str(name) + zeros(4+8+4) + "\x01" + zeros(7) + zeros(8) + str("x") + zeros(12)
	}
	link := func(name, text string) string { return "\x05" + str(name) + zeros(8) + str(text) }
	for what, records := range map[string]string{
		"a name with a slash":       file("a/b") + "\x08",
		"the parent":                file("..") + "\x08",
		"an empty name":             file("") + "\x08",
		"through a link":            link("out", victim) + enter("out") + file("x") + "\x02\x08",
		"above the top":             "\x02" + file("x") + "\x08",
		"an unfinished directory":   enter("d") + "\x08",
		"no end":                    file("x"),
		"an unknown record":         "\x63\x08",
		"another name of a link":    link("out", victim+"/x") + "\x04" + str("y") + str("/out") + "\x08",
		"another name through one":  link("out", victim) + "\x04" + str("y") + str("/out/x") + "\x08",
		"another name of nothing":   "\x04" + str("y") + str("/../x") + "\x08",
		"data outside of the file":  "\x03" + str("x") + zeros(4+8+4) + zeros(8) + zeros(8) + str("x") + zeros(12) + "\x08",
		"a foreign attribute":       "\x03" + str("x") + zeros(4+8) + "\x01" + zeros(3) + str("trusted.overlay.redirect") + str("/x") + "\x08",
		"in the overlay's own":      enter("proc") + enter("work") + file("x") + "\x02\x02\x08",
		"another beginning":         "\x00",
		"a string of 4 GiB":         "\x03\xff\xff\xff\xff",
		"a file where a mount will": file("dev") + "\x08",
	} {
		dir := t.TempDir()
		b := []byte(archiveMagic + records)
		if what == "another beginning" {
			b[0]++
		}
		if err := errors.Join(os.WriteFile(filepath.Join(dir, filesName), b, 0o600),
			sandboxes.DescribeState(filepath.Join(dir, infoName), stateInfo{Format: stateFormat, Size: int64(len(b)), Owner: d.Owner}, false)); err != nil {
			t.Fatal(err)
		}
		box, err := d.Restore(t.Context(), sandbar.NewID(), s, dir)
		switch {
		case err == nil:
			if what != "a file where a mount will" {
				t.Errorf("%s: accepted", what)
			}
			if err := box.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
		case sandbar.CodeOf(err) != sandbar.Gone:
			t.Errorf("%s: %v", what, err)
		}
	}
	if left, err := os.ReadDir(victim); err != nil || len(left) > 0 {
		t.Errorf("outside of the sandbox: %v, %v", left, err)
	}
}

// archiveMagic begins an archive of the agent.
const archiveMagic = "sandbar files 1\n"

// Without space or within a bound, a save fails and the sandbox goes on.
func TestSaveFails(t *testing.T) {
	d := saving(t)
	b := create(t, d.Driver, roomy(d.Driver))
	shell(t, b, "head -c 8000000 /dev/urandom >big")
	p := startIn(t, b, "while :; do date +%N >now; sleep 0.01; done")
	defer p.KillTree()
	s, _ := driver.As[driver.Saver](b)
	refused := errors.New("refused")
	full := t.TempDir()
	mounted := unix.Mount("tmpfs", full, "tmpfs", 0, "size=1m") == nil
	if mounted {
		defer unix.Unmount(full, unix.MNT_DETACH)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for what, tt := range map[string]struct {
		ctx  context.Context
		dir  string
		o    driver.SaveOptions
		code sandbar.Code
	}{
		"bound":     {t.Context(), t.TempDir(), driver.SaveOptions{MaxBytes: 1 << 20}, sandbar.Exhausted},
		"full":      {t.Context(), full, driver.SaveOptions{}, sandbar.Exhausted},
		"cancelled": {cancelled, t.TempDir(), driver.SaveOptions{}, sandbar.Canceled},
		"refused":   {t.Context(), t.TempDir(), driver.SaveOptions{Commit: func(int64) error { return refused }}, ""},
	} {
		if what == "full" && !mounted {
			continue
		}
		_, err := s.Save(tt.ctx, tt.dir, tt.o)
		if err == nil || tt.code != "" && sandbar.CodeOf(err) != tt.code || tt.code == "" && !errors.Is(err, refused) {
			t.Errorf("%s: %v", what, err)
		}
		before := shell(t, b, "cat now")
		waitFor(t, func() bool { return shell(t, b, "cat now") != before })
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := s.Save(t.Context(), t.TempDir(), driver.SaveOptions{}); sandbar.CodeOf(err) != sandbar.Gone {
		t.Errorf("after Destroy: %v", err)
	}
}

// A sandbox that is destroyed while it is saved leaves nothing.
func TestDestroyWhileSaving(t *testing.T) {
	d := saving(t)
	for i := range 10 {
		b := create(t, d.Driver, roomy(d.Driver))
		shell(t, b, "head -c 20000000 /dev/zero >big; for i in $(seq 500); do echo $i >$i; done")
		startIn(t, b, "while :; do date >now; done")
		s, _ := driver.As[driver.Saver](b)
		done := make(chan error, 1)
		go func() { _, err := s.Save(t.Context(), t.TempDir(), driver.SaveOptions{}); done <- err }()
		time.Sleep(time.Duration(i) * 2 * time.Millisecond)
		if err := b.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil && sandbar.CodeOf(err) != sandbar.Gone {
			t.Errorf("saving a sandbox that is destroyed: %v", err)
		}
	}
	for _, parent := range d.Groups.Parents() {
		if left, _ := filepath.Glob(filepath.Join(parent, d.Owner+".*")); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
}
