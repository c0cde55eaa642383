package agent

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// A gVisor sandbox has a kernel of its own in user space. The host's pids cgroup does not count
// that kernel's processes, so the limit is set in a version 2 cgroup of the sandbox's own kernel.
const (
	guestCgroupMount = "/sys"
	guestCgroupDir   = guestCgroupMount + "/sandbox"
)

// guestCgroup is that cgroup, as open files, since /sys is hidden afterwards. The zero value limits
// nothing.
type guestCgroup struct {
	limit               int64 // for programs; the agent's threads come on top
	own                 int64 // the agent's threads, set by enter
	procs, current, max *os.File
}

// makeGuestCgroup creates a cgroup for n processes and threads besides the agent's, and then hides
// /sys as in every other sandbox.
func makeGuestCgroup(n int64) (g *guestCgroup, step string, err error) {
	g = &guestCgroup{}
	if n <= 0 {
		return g, "", nil
	}
	g.limit = n
	if err := unix.Mount("cgroup", guestCgroupMount, "cgroup2", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return g, "mount the pids cgroup", err
	}
	if err := writeFile(guestCgroupMount+"/cgroup.subtree_control", "+pids"); err != nil {
		return g, "enable the pids controller", err
	}
	if err := unix.Mkdir(guestCgroupDir, 0o755); err != nil {
		return g, "make the pids cgroup", err
	}
	for _, f := range []struct {
		to   **os.File
		name string
		how  int
	}{{&g.procs, "/cgroup.procs", os.O_WRONLY}, {&g.max, "/pids.max", os.O_WRONLY}, {&g.current, "/pids.current", os.O_RDONLY}} {
		if *f.to, err = os.OpenFile(guestCgroupDir+f.name, f.how, 0); err != nil {
			return g, "open the pids cgroup", err
		}
	}
	return g, "hide the cgroups", unix.Mount("tmpfs", guestCgroupMount, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=4k,mode=0555")
}

// enter moves the agent into the cgroup, which its children inherit, and sets the limit. All
// threads of the agent must exist already.
func (g *guestCgroup) enter() (step string, err error) {
	if g.limit <= 0 {
		return "", nil
	}
	defer g.procs.Close()
	defer g.current.Close()
	if _, err := g.procs.WriteString(strconv.Itoa(os.Getpid())); err != nil {
		return "enter the pids cgroup", err
	}
	var buf [32]byte
	n, err := g.current.Read(buf[:])
	if err != nil {
		return "count the agent's threads", err
	}
	g.own = int64(parseNumber(bytes.TrimSpace(buf[:n])))
	return g.change(g.limit)
}

// change sets the limit to n processes and threads of programs. A sandbox without the cgroup has no
// limit, and gets none.
func (g *guestCgroup) change(n int64) (step string, err error) {
	if g.max == nil {
		return "", nil
	}
	_, err = g.max.WriteAt([]byte(strconv.FormatInt(n+g.own, 10)), 0)
	return "limit processes", err
}
