package oci

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/image"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// oneImage is a store with one image. It counts how often the image is open.
type oneImage struct {
	dir  string
	open int
}

// Open implements driver.Images.
func (o *oneImage) Open(_ context.Context, name string) (driver.Image, error) {
	if name != "debian" {
		return driver.Image{}, sandbar.Errorf(sandbar.NotFound, "there is no image %q", name)
	}
	o.open++
	return driver.Image{ID: name, Dir: o.dir, Close: func() { o.open-- }}, nil
}

// In a sandbox of a Debian image, programs have uid 0 and no capability and can change all files.
// The next sandbox has none of the changes.
func TestImage(t *testing.T) {
	testenv.Need(t, testenv.UserNS, testenv.DebianImage)
	store, err := image.OpenStore(filepath.Join(t.TempDir(), "images"), image.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(testenv.DebianArchive())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	i, err := store.Import(t.Context(), f, image.ImportOptions{Name: "debian"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		runtime func() string
		needs   testenv.Requirement
	}{
		{Name, func() string { return "runc" }, testenv.Runc},
		{NameGVisor, testenv.RunscProgram, testenv.Runsc},
	} {
		t.Run(c.name, func(t *testing.T) {
			testenv.Need(t, c.needs)
			images := &oneImage{dir: i.Dir}
			d, err := New(driver.Host{Images: images, Options: map[string]string{optionRuntime: c.runtime()}}, c.name, agentBinary(t))
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			for range 2 { // the second sandbox has no changes of the first
				inImage(t, d)
			}
			if images.open != 0 {
				t.Errorf("the image is open %d times", images.open)
			}
			s := spec()
			s.Image = "other"
			if _, err := d.Create(t.Context(), sandbar.NewID(), s); sandbar.CodeOf(err) != sandbar.NotFound {
				t.Errorf("an image that is not there: %v", err)
			}
		})
	}
}

func inImage(t *testing.T, d *Driver) {
	t.Helper()
	s := spec()
	s.Image = "debian"
	b, err := d.Create(t.Context(), sandbar.NewID(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	got := sh(t, b, `id -u; test ! -e /usr/mine && echo fresh; echo x > /usr/mine && cat /usr/mine
rm /etc/debian_version && test ! -e /etc/debian_version && echo removed
python3 -c 'print(6*7)'; grep CapEff /proc/self/status; grep CapBnd /proc/self/status; kill -9 1 2>/dev/null; echo alive >/dev/stdout; ls /dev/fuse /dev/net 2>/dev/null; ls /lower /upper 2>/dev/null; pwd`)
	const want = "0\nfresh\nx\nremoved\n42\nCapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nalive\n/home/user\n"
	if got != want {
		t.Errorf("in the image:\n%s\nwant:\n%s", got, want)
	}
	if !d.runtime.guestKernel() { // the agent has another uid and is hidden
		const script = `test -e /proc/1 && echo the agent is seen; test -r /proc/self/status && echo self; sleep 60 & test -r /proc/$!/status && echo child; kill $!`
		if got := sh(t, b, script); got != "self\nchild\n" {
			t.Errorf("of processes programs see:\n%s", got)
		}
	}
	if got := sh(t, b, "echo still"); got != "still\n" {
		t.Errorf("after an attempt on PID 1: %q", got)
	}
}

// sh runs a script and returns its output.
func sh(t *testing.T, b driver.Sandbox, script string) string {
	t.Helper()
	var out, errOut bytes.Buffer
	p, err := b.Start(t.Context(), sandbar.Cmd{Args: []string{"sh", "-c", script}}, driver.Stdio{Stdout: &out, Stderr: &errOut})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := p.Wait(); err != nil || r.Outcome != sandbar.Exited {
		t.Errorf("the script: %+v, %v", r, err)
	}
	return out.String() + strings.TrimSpace(errOut.String())
}
