package owner

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Name names the process pid as an owner, "" if there is none.
func Name(pid int) string {
	start := startTime(pid)
	if start == 0 {
		return ""
	}
	return fmt.Sprintf("%d-%d", pid, start)
}

// Alive reports whether the owner called name still runs. A name that cannot
// be read belongs to nobody we know, who is taken for alive and left alone.
func Alive(name string) bool {
	pid, start, ok := strings.Cut(name, "-")
	n, err := strconv.Atoi(pid)
	s, err2 := strconv.ParseUint(start, 10, 64)
	if !ok || err != nil || err2 != nil || n <= 0 {
		return true
	}
	return startTime(n) == s
}

// Here names the boot and the PID namespace in which names that Name gives say
// something; "" if it cannot be found out.
func Here() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	namespace, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + "." + strings.Trim(strings.TrimPrefix(namespace, "pid:"), "[]")
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
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil
	}
	i := strings.LastIndexByte(string(b), ')')
	if i < 0 {
		return nil
	}
	return strings.Fields(string(b[i+1:]))
}
