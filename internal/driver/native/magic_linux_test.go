package native

import (
	"context"
	"io"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// A program exchanges a file with a link to the agent's program, while a client changes the mode
// and the owner of that path. The agent's program must stay unchanged and usable, also if programs
// have the daemon's uid.
func TestProgramOutOfReach(t *testing.T) {
	d := newDriver(t)
	before := programMode(t, d)
	box, err := d.Create(t.Context(), sandbar.NewID(), degraded(d))
	if err != nil {
		t.Fatal(err)
	}
	defer box.Destroy(context.Background())
	out, said := io.Pipe()
	p, err := box.Start(t.Context(), sandbar.Cmd{Args: []string{"sh", "-c", `ln -s /proc/self/exe link; echo x >file; echo READY
while :; do ln -sf /proc/self/exe n; ln -f file n; done`}}, driver.Stdio{Stdout: said})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	files := box.FS()
	for range 300 {
		files.Chmod(t.Context(), "n", 0o600, false)
		files.Chmod(t.Context(), "link", 0, false)
		files.(sandbar.Owner).Chown(t.Context(), "n", 1000, 1000, false)
		if now := programMode(t, d); now != before {
			t.Fatalf("the agent's program had the mode %o, and now has %o", before, now)
		}
	}
	if err := p.Signal(int(unix.SIGKILL)); err != nil {
		t.Error(err)
	}
	p.Wait()
	// Starting a program by such a path is refused too.
	if p, err := box.Start(t.Context(), sandbar.Cmd{Args: []string{"./link"}}, driver.Stdio{}); err == nil {
		r, _ := p.Wait()
		t.Errorf("the agent's program was started as a program: %+v", r)
	}
	next, err := d.Create(t.Context(), sandbar.NewID(), degraded(d))
	if err != nil {
		t.Fatal(err)
	}
	next.Destroy(context.Background())
}

// programMode returns the mode of the file that the spawner executes.
func programMode(t *testing.T, d *Driver) uint32 {
	t.Helper()
	all := spawnersOf(d.Owner)
	if len(all) != 1 {
		t.Fatalf("the driver has the spawners %v", all)
	}
	var st unix.Stat_t
	if err := unix.Stat("/proc/"+strconv.Itoa(all[0])+"/exe", &st); err != nil {
		t.Fatal(err)
	}
	return st.Mode
}
