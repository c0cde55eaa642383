package spawn

import (
	"context"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/linux/cgroup"
	"github.com/sandbar-dev/sandbar/internal/linux/daemonid"
)

// OwnerFunc returns the id (package daemonid) of the daemon that started a process with these
// arguments. ok is false if no daemon starts such a process.
type OwnerFunc func(args []string) (owner string, ok bool)

// AgentOwner is the OwnerFunc for all processes that run the agent's program.
func AgentOwner(args []string) (owner string, ok bool) {
	if len(args) != 3 || args[0] != agent.Name {
		return "", false
	}
	return args[2], true
}

// Collect lists the processes and cgroups whose daemon has ended. With remove it also kills and
// removes them.
func Collect(ctx context.Context, cgroups *cgroup.Manager, owned OwnerFunc, remove bool) ([]driver.Leftover, error) {
	found := orphans(owned)
	if remove {
		for i := range found {
			found[i].Err = killProcess(ctx, found[i].Name)
		}
	}
	groups, err := cgroups.Leftovers(daemonid.Alive)
	if err != nil {
		return found, err
	}
	for _, g := range groups {
		l := driver.Leftover{Kind: "cgroup", Name: strings.Join(g.Dirs, " ")}
		if remove {
			l.Err = cgroups.Remove(ctx, g)
		}
		found = append(found, l)
	}
	return found, nil
}

// orphans lists processes whose daemon has ended.
func orphans(owned OwnerFunc) (found []driver.Leftover) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if err != nil {
			continue
		}
		name, ok := owned(strings.Split(strings.TrimRight(string(b), "\x00"), "\x00"))
		if ok && !daemonid.Alive(name) && maySignal(pid) {
			found = append(found, driver.Leftover{Kind: "process", Name: e.Name()})
		}
	}
	return found
}

// maySignal reports whether this process may send signals to pid. Processes of other users are left
// to them.
func maySignal(pid int) bool { return unix.Kill(pid, 0) == nil }

// killProcess kills a process and waits until it has ended.
func killProcess(ctx context.Context, name string) error {
	pid, err := strconv.Atoi(name)
	if err != nil {
		return err
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH || err == unix.EINVAL { // it has ended; EINVAL: just now
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && err != unix.ESRCH {
		return err
	}
	for ctx.Err() == nil { // checked every 100 ms
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		if err != nil && err != unix.EINTR {
			return err
		}
		if n > 0 {
			return nil
		}
	}
	return ctx.Err()
}
