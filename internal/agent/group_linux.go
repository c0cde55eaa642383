package agent

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Where a kernel in user space is what programs run on, no control group of the
// host counts their processes: they are none of its own. That kernel has groups
// itself, which the runtime mounts.
const (
	guestSystem = "/sys"
	guestGroup  = guestSystem + "/fs/cgroup/pids/sandbox"
)

// limitProcesses puts the agent, and so all that it starts, into a group of its
// own kernel with room for n processes and threads besides the agent's, and then
// hides /sys from programs, as it is hidden everywhere else.
func limitProcesses(n int64) (step string, err error) {
	if n <= 0 {
		return "", nil
	}
	if err := unix.Mkdir(guestGroup, 0o755); err != nil {
		return "make a group for processes", err
	}
	if err := writeFile(guestGroup+"/pids.max", strconv.FormatInt(n+int64(ownThreads()), 10)); err != nil {
		return "limit processes", err
	}
	if err := writeFile(guestGroup+"/cgroup.procs", strconv.Itoa(os.Getpid())); err != nil {
		return "enter the group for processes", err
	}
	return "hide the groups", unix.Mount("tmpfs", guestSystem, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=4k,mode=0555")
}
