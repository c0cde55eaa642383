package confine

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/linux/policy"
)

// RLIMIT_NOFILE. A worker needs three descriptors for each runner.
const (
	workerFiles = 1024
	runnerFiles = 64
)

// Worker confines a worker: it can read the given directories, execute only this program, and use
// the connections that it has.
func Worker(readable ...string) error {
	// Descriptors that the process which started the daemon leaked must not reach runners.
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil && err != unix.ENOSYS {
		return fmt.Errorf("closing descriptors: %w", err)
	}
	if err := setBaseLimits(workerFiles); err != nil {
		return err
	}
	if err := raiseOOMScore(); err != nil {
		return err
	}
	if ok, err := setNoNewPrivs(); !ok {
		return err
	}
	l := policy.WasmLandlock("/proc/self/exe", readable...)
	if err := landlock(&l); err != nil {
		return err
	}
	return installRules(policy.WasmWorkerRules())
}

// Runner confines a runner further than its worker: it starts no processes.
func Runner() error {
	if err := setBaseLimits(runnerFiles); err != nil {
		return err
	}
	if ok, err := setNoNewPrivs(); !ok {
		return err
	}
	return installRules(policy.WasmRunnerRules())
}

// LimitData sets RLIMIT_DATA, in bytes: a coarse bound besides the exact limits of the WebAssembly
// runtime.
func LimitData(bytes int64) error {
	l := unix.Rlimit{Cur: uint64(bytes), Max: uint64(bytes)}
	if err := unix.Setrlimit(unix.RLIMIT_DATA, &l); err != nil && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("limiting memory: %w", err)
	}
	return nil // EPERM: the limit is lower already
}

// setBaseLimits sets the limits that all processes share: no core dumps, which contain the memory;
// no files; few descriptors. RLIMIT_CORE is 1 and not 0: if core_pattern is a pipe, the kernel runs
// the host's handler at 0 but not at 1 (core(5)).
func setBaseLimits(files uint64) error {
	return lowerLimits(map[int]uint64{unix.RLIMIT_CORE: 1, unix.RLIMIT_FSIZE: 0, unix.RLIMIT_NOFILE: files})
}

// lowerLimits lowers soft and hard limits to the given values, or leaves lower ones.
func lowerLimits(all map[int]uint64) error {
	for resource, most := range all {
		var had unix.Rlimit
		if err := unix.Getrlimit(resource, &had); err != nil {
			return fmt.Errorf("asking for limits: %w", err)
		}
		l := unix.Rlimit{Cur: min(most, had.Max), Max: min(most, had.Max)}
		if err := unix.Setrlimit(resource, &l); err != nil {
			return fmt.Errorf("setting limits: %w", err)
		}
	}
	return nil
}

// raiseOOMScore makes the OOM killer prefer this process and its children over the daemon, with the
// score of native sandboxes. It must run while the process has its capabilities: a score that
// CAP_SYS_RESOURCE has set is also the minimum that the process can set later
// (proc_pid_oom_score_adj(5)).
func raiseOOMScore() error {
	const file, score = "/proc/self/oom_score_adj", 500
	text, err := os.ReadFile(file)
	if err != nil {
		return nil // no procfs, or no OOM score
	}
	if had, err := strconv.Atoi(strings.TrimSpace(string(text))); err != nil || had >= score {
		return nil
	}
	if err := os.WriteFile(file, strconv.AppendInt(nil, score, 10), 0); err != nil {
		return fmt.Errorf("raising the OOM score: %w", err)
	}
	return nil
}

// setNoNewPrivs sets no_new_privs on all threads. ok is false on an error, or if a binary with cgo
// cannot reach all threads.
func setNoNewPrivs() (ok bool, err error) {
	_, _, e := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0)
	switch e {
	case 0:
		return true, nil
	case syscall.ENOTSUP:
		return false, nil
	}
	return false, fmt.Errorf("setting no_new_privs: %w", e)
}

// installRules installs a seccomp filter on all threads. A kernel without seccomp is no error.
func installRules(rules []policy.Rule) error {
	program, err := policy.Compile(runtime.GOARCH, rules)
	if err != nil {
		return nil // no system call table for this architecture
	}
	if err := installFilter(program); err != nil && err != unix.ENOSYS && err != unix.EINVAL {
		return fmt.Errorf("installing the system-call filter: %w", err)
	}
	return nil
}
