package oci

import (
	"context"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/linux/hostenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// With every runtime the same directories of the image "host" are writable as in the native driver,
// and sandboxes share no changes. Package native has the other tests.
func TestHostIsWritable(t *testing.T) {
	for _, c := range []struct {
		name, kind string
		runtime    func() string
		needs      testenv.Requirement
	}{
		{"runc", Name, func() string { return "runc" }, testenv.Runc},
		{"runsc", NameGVisor, testenv.RunscProgram, testenv.Runsc},
	} {
		t.Run(c.name, func(t *testing.T) {
			testenv.Need(t, testenv.UserNS, c.needs)
			d, err := New(driver.Host{Options: map[string]string{optionRuntime: c.runtime()}}, c.kind, agentBinary(t))
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			var all []driver.Sandbox
			for range 2 {
				b, err := d.Create(t.Context(), sandbar.NewID(), spec())
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := b.Destroy(context.Background()); err != nil {
						t.Error(err)
					}
				}()
				all = append(all, b)
			}
			places := "/ /home /opt /run /srv /tmp /var /dev/shm"
			if hostenv.LocalNote() == "" {
				places += " /usr/local /usr/local/bin"
			}
			if got := sh(t, all[0], "for d in "+places+"; do mkdir -p $d/made/below && echo x >$d/made/below/f && mv $d/made/below/f $d/trace || echo no $d; done"); got != "" {
				t.Errorf("writing: %s", got)
			}
			if got := sh(t, all[0], "for d in /usr /usr/bin /etc /dev /proc; do (echo x >$d/trace) 2>/dev/null && echo wrote $d; done"); got != "" {
				t.Errorf("what stays as it is: %s", got)
			}
			if got := sh(t, all[1], "for d in "+places+"; do [ ! -e $d/trace ] || echo $d; done; ls -d /proc/upper /proc/lower /upper /.blank 2>/dev/null"); got != "" {
				t.Errorf("in another sandbox: %s", got)
			}
			s := spec()
			s.Limits.Disk = 4 << 20
			small, err := d.Create(t.Context(), sandbar.NewID(), s)
			if err != nil {
				t.Fatal(err)
			}
			defer small.Destroy(context.Background())
			if got := sh(t, small, "head -c 3000000 /dev/zero >/opt/a && head -c 3000000 /dev/zero 2>/dev/null >/srv/b || echo full"); got != "full\n" {
				t.Errorf("6 MB on a disk of 4 MiB: %s", got)
			}
		})
	}
}
