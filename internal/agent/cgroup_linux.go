package agent

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Where a kernel in user space is what programs run on, no control group of the
// host counts their processes: they are none of its own. That kernel has groups
// itself, those of version 2.
const (
	guestCgroupMount = "/sys"
	guestCgroupDir   = guestCgroupMount + "/sandbox"
)

// processGroup is a group of the agent's own kernel, as open files: nobody can
// open them any more. The zero value holds nothing.
type guestCgroup struct {
	limit               int64 // for programs, besides the agent
	procs, current, max *os.File
}

// makeGroup makes a group that is to have room for n processes and threads besides
// the agent's, and hides /sys, where it is, as that is hidden everywhere else.
func makeGuestCgroup(n int64) (g *guestCgroup, step string, err error) {
	g = &guestCgroup{}
	if n <= 0 {
		return g, "", nil
	}
	g.limit = n
	if err := unix.Mount("cgroup", guestCgroupMount, "cgroup2", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return g, "mount groups for processes", err
	}
	if err := writeFile(guestCgroupMount+"/cgroup.subtree_control", "+pids"); err != nil {
		return g, "count processes", err
	}
	if err := unix.Mkdir(guestCgroupDir, 0o755); err != nil {
		return g, "make a group for processes", err
	}
	for _, f := range []struct {
		to   **os.File
		name string
		how  int
	}{{&g.procs, "/cgroup.procs", os.O_WRONLY}, {&g.max, "/pids.max", os.O_WRONLY}, {&g.current, "/pids.current", os.O_RDONLY}} {
		if *f.to, err = os.OpenFile(guestCgroupDir+f.name, f.how, 0); err != nil {
			return g, "open a group for processes", err
		}
	}
	return g, "hide the groups", unix.Mount("tmpfs", guestCgroupMount, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=4k,mode=0555")
}

// enter puts the agent, and so all that it starts, into the group and sets the
// limit. The agent has all the threads that it will ever have.
func (g *guestCgroup) enter() (step string, err error) {
	if g.limit <= 0 {
		return "", nil
	}
	defer g.procs.Close()
	defer g.current.Close()
	defer g.max.Close()
	if _, err := g.procs.WriteString(strconv.Itoa(os.Getpid())); err != nil {
		return "enter the group for processes", err
	}
	var buf [32]byte
	n, err := g.current.Read(buf[:])
	if err != nil {
		return "count the agent's threads", err
	}
	own := int64(parseNumber(bytes.TrimSpace(buf[:n])))
	_, err = g.max.WriteString(strconv.FormatInt(g.limit+own, 10))
	return "limit processes", err
}
