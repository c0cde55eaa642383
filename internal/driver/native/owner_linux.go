package native

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent"
)

// An owner is a running sandbar: its pid and the moment it started, which no
// other process of this boot shares. Everything that could outlive a killed
// daemon carries its owner's name.

// ownerName names the process pid as an owner, "" if there is none.
func ownerName(pid int) string {
	start := startTime(pid)
	if start == 0 {
		return ""
	}
	return fmt.Sprintf("%d-%d", pid, start)
}

// ownerAlive reports whether the owner called name still runs. A name that
// cannot be read belongs to nobody we know, and is left alone.
func ownerAlive(name string) bool {
	pid, start, ok := strings.Cut(name, "-")
	n, err := strconv.Atoi(pid)
	s, err2 := strconv.ParseUint(start, 10, 64)
	if !ok || err != nil || err2 != nil || n <= 0 {
		return true
	}
	return startTime(n) == s
}

// startTime is when a process started, in clock ticks since boot; 0 if there
// is no such process.
func startTime(pid int) uint64 {
	f := procStat(pid)
	if len(f) < 20 || f[0] == "Z" {
		return 0
	}
	t, _ := strconv.ParseUint(f[19], 10, 64) // field 22 of proc_pid_stat(5)
	return t
}

// procStat returns the fields of /proc/pid/stat from the state on. The name
// before it can hold anything, so the last parenthesis counts.
func procStat(pid int) []string {
	b, err := os.ReadFile("/proc/" + itoa(pid) + "/stat")
	if err != nil {
		return nil
	}
	i := strings.LastIndexByte(string(b), ')')
	if i < 0 {
		return nil
	}
	return strings.Fields(string(b[i+1:]))
}

// Collect finds, and with remove ends, what daemons that were killed have left:
// agents that have not noticed yet, and the groups of their sandboxes.
func (d *Driver) Collect(ctx context.Context, remove bool) ([]driver.Leftover, error) {
	found := strayAgents()
	if remove {
		for i := range found {
			found[i].Err = endProcess(ctx, found[i].Name)
		}
	}
	groups, err := d.cgroups.Leftovers(ownerAlive)
	if err != nil {
		return found, err
	}
	for _, g := range groups {
		l := driver.Leftover{Kind: "cgroup", Name: strings.Join(g.Dirs, " ")}
		if remove {
			l.Err = d.cgroups.Remove(ctx, g)
		}
		found = append(found, l)
	}
	return found, nil
}

// strayAgents lists agents whose owner is dead.
func strayAgents() (found []driver.Leftover) {
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
		args := strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
		if len(args) == 3 && args[0] == agent.Name && !ownerAlive(args[2]) && mayEnd(pid) {
			found = append(found, driver.Leftover{Kind: "process", Name: e.Name()})
		}
	}
	return found
}

// mayEnd reports whether this user may end a process; others' are theirs.
func mayEnd(pid int) bool { return unix.Kill(pid, 0) == nil }

// endProcess kills a process and waits until it is gone.
func endProcess(ctx context.Context, name string) error {
	pid, err := strconv.Atoi(name)
	if err != nil {
		return err
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && err != unix.ESRCH {
		return err
	}
	for ctx.Err() == nil {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(100*time.Millisecond/time.Millisecond))
		if err != nil && err != unix.EINTR {
			return err
		}
		if n > 0 {
			return nil
		}
	}
	return ctx.Err()
}

func itoa(n int) string        { return strconv.Itoa(n) }
func trimLine(b []byte) string { return strings.TrimSpace(string(b)) }
