package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// readFacts reads the facts of this host.
func readFacts() facts {
	return facts{
		root:            os.Geteuid() == 0,
		linux:           true,
		missing:         missingTools(),
		userNSForbidden: userNSForbidden(),
		memoryOnV1:      memoryOnV1(),
		noPeakReset:     !memoryOnV1() && olderThan(6, 12),
		cgroupReadOnly:  readOnly("/sys/fs/cgroup") || readOnly("/sys/fs/cgroup/memory"),
		noTUN:           !exists("/dev/net/tun"),
		long:            testenv.Long(),
		noCluster:       !exists(testenv.ClusterDir()),
		noHelm:          !exists(testenv.HelmProgram()),
	}
}

// userNSForbidden reports whether a setting that can forbid user namespaces is active.
func userNSForbidden() bool {
	if word("/proc/sys/user/max_user_namespaces") == "0" ||
		word("/proc/sys/kernel/unprivileged_userns_clone") == "0" ||
		word("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" {
		return true
	}
	b, _ := os.ReadFile("/proc/self/status")
	return strings.Contains(string(b), "\nSeccomp:\t2\n") // a container's filter
}

// word returns the content of a one-word file, "" if it cannot be read.
func word(path string) string {
	b, _ := os.ReadFile(path)
	return strings.TrimSpace(string(b))
}

// olderThan reports whether the kernel is older than a version, or unknown.
func olderThan(major, minor int) bool {
	var a, b int
	_, err := fmt.Sscanf(word("/proc/sys/kernel/osrelease"), "%d.%d", &a, &b)
	return err != nil || a < major || a == major && b < minor
}

// memoryOnV1 reports whether the memory controller has a hierarchy other than 0 in
// /proc/cgroups; 0 means version 2 (cgroups(7)).
func memoryOnV1() bool {
	b, _ := os.ReadFile("/proc/cgroups")
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 4 && f[0] == "memory" {
			return f[1] != "0"
		}
	}
	return false
}

func readOnly(path string) bool {
	var st syscall.Statfs_t
	return syscall.Statfs(path, &st) == nil && st.Flags&syscall.MS_RDONLY != 0
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// commonUmask sets a fixed umask, so that the mode of tests' files does not depend on the
// caller, and the ordinary user can read files that are meant for it.
func commonUmask() { syscall.Umask(0o022) }

// killGroup makes the cancellation of a command kill its process group.
func killGroup(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	// The kernel kills the tests if this program dies.
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
