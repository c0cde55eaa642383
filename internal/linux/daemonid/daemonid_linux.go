package daemonid

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/sandbar-dev/sandbar"
)

// Self returns the id of this process, or an error with the reason why it has none.
func Self() (string, error) {
	if name := ForPID(os.Getpid()); name != "" {
		return name, nil
	}
	return "", &sandbar.Error{Code: sandbar.Unsupported,
		Message: "the daemon cannot tell its own resources from leftovers of other daemons: /proc is not mounted, or is that of another PID namespace",
		Fix:     "mount a /proc of the daemon's own PID namespace (mount -t proc proc /proc, or unshare --mount-proc)"}
}

// ForPID returns the id of process pid, "" if there is none.
func ForPID(pid int) string {
	start, err := startTime(pid)
	namespace := pidNamespace()
	if err != nil || namespace == "" {
		return ""
	}
	return fmt.Sprintf("%d-%d-%s", pid, start, namespace)
}

// Alive reports whether the process with an id still runs. If that cannot be determined, it reports
// true: for a malformed id, for one from another PID namespace, and if /proc cannot be read.
func Alive(name string) bool {
	pid, start, namespace, ok := split(name)
	if !ok || namespace != pidNamespace() {
		return true
	}
	now, err := startTime(pid)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ESRCH)
	}
	return now == start
}

// split parses an id.
func split(name string) (pid int, start uint64, namespace string, ok bool) {
	parts := strings.Split(name, "-")
	if len(parts) != 3 {
		return 0, 0, "", false
	}
	pid, err := strconv.Atoi(parts[0])
	if err != nil || pid <= 0 {
		return 0, 0, "", false
	}
	start, err = strconv.ParseUint(parts[1], 10, 64)
	return pid, start, parts[2], err == nil && parts[2] != ""
}

// Scope identifies the boot and PID namespace in which ids are valid, "" if it cannot be
// determined.
func Scope() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	namespace := pidNamespace()
	if namespace == "" {
		return ""
	}
	return strings.TrimSpace(string(boot)) + "." + namespace
}

// pidNamespace returns the number of this process's PID namespace, "" if it cannot be determined or
// if /proc belongs to another namespace.
func pidNamespace() string {
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return ""
	}
	link, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return strings.Trim(strings.TrimPrefix(link, "pid:"), "[]")
}

// startTime returns the start time of a process in clock ticks since boot. A zombie counts as not
// existing.
func startTime(pid int) (uint64, error) {
	f, err := procStat(pid)
	if err != nil {
		return 0, err
	}
	if len(f) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(f))
	}
	if f[0] == "Z" {
		return 0, fs.ErrNotExist
	}
	return strconv.ParseUint(f[19], 10, 64) // field 22 of proc_pid_stat(5)
}

// procStat returns the fields of /proc/PID/stat from the state on. The command name before it may
// contain any byte, so the fields start after the last parenthesis.
func procStat(pid int) ([]string, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil, err
	}
	i := strings.LastIndexByte(string(b), ')')
	return strings.Fields(string(b[i+1:])), nil
}
