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

// Own names this process; where it has no name it says why.
func Self() (string, error) {
	if name := ForPID(os.Getpid()); name != "" {
		return name, nil
	}
	return "", &sandbar.Error{Code: sandbar.Unsupported,
		Message: "what the daemon makes cannot be told from what others have left: /proc is not mounted, or is that of another PID namespace",
		Fix:     "mount a /proc of the daemon's own PID namespace (mount -t proc proc /proc, or unshare --mount-proc)"}
}

// Name names the process pid as an owner, "" if there is none.
func ForPID(pid int) string {
	start, err := startTime(pid)
	namespace := pidNamespace()
	if err != nil || namespace == "" {
		return ""
	}
	return fmt.Sprintf("%d-%d-%s", pid, start, namespace)
}

// Alive reports whether the owner called name still runs. Nobody is dead of whom
// that is not known: who was named in another PID namespace, whose processes are
// not seen here or have other numbers, or who cannot be looked at now. A name that
// cannot be read belongs to nobody we know.
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

// split takes a name apart.
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

// Here names the boot and the PID namespace in which names that Name gives say
// something; "" if it cannot be found out.
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

// pidNamespace is the number of this process's PID namespace, "" if that cannot be
// found out, or if /proc shows another's.
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

// startTime is when a process started, in clock ticks since boot. One that has
// ended and has not been waited for does not exist.
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

// procStat returns the fields of /proc/pid/stat from the state on. The name
// before it can hold anything, so the last parenthesis counts.
func procStat(pid int) ([]string, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil, err
	}
	i := strings.LastIndexByte(string(b), ')')
	return strings.Fields(string(b[i+1:])), nil
}
