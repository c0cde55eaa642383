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

// Limits on descriptors. A worker has three for each runner.
const (
	workerFiles = 1024
	runnerFiles = 64
)

// Worker confines a worker: it can read the given directories, start this
// program and nothing else, and speak to whom it has a connection with.
func Worker(readable ...string) error {
	// What whoever started the daemon has left open is not for runners.
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

// Runner confines a runner, which has the worker's confines already: it starts
// nothing.
func Runner() error {
	if err := setBaseLimits(runnerFiles); err != nil {
		return err
	}
	if ok, err := setNoNewPrivs(); !ok {
		return err
	}
	return installRules(policy.WasmRunnerRules())
}

// Data limits what this process can have of its own memory, in bytes: a net
// under the limits that are exact.
func LimitData(bytes int64) error {
	l := unix.Rlimit{Cur: uint64(bytes), Max: uint64(bytes)}
	if err := unix.Setrlimit(unix.RLIMIT_DATA, &l); err != nil && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("limiting memory: %w", err)
	}
	return nil // EPERM: it is tighter already
}

// limits sets what is the same for all: no core dumps, whose size is the
// memory's, no files, few descriptors. The limit of core dumps is 1 and not 0: if
// core_pattern is a pipe, the kernel runs the host's handler at 0 and not at 1.
func setBaseLimits(files uint64) error {
	return lowerLimits(map[int]uint64{unix.RLIMIT_CORE: 1, unix.RLIMIT_FSIZE: 0, unix.RLIMIT_NOFILE: files})
}

// limit lowers limits, soft and hard, to what they are at most.
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

// guest has the kernel, when memory is short, kill this process and what it
// starts before the daemon and whatever else nobody has given a score. It is the
// score of native sandboxes, and it comes while this process has all its
// privileges, since whoever has none can take back what another has set, but not
// what was set with them.
func raiseOOMScore() error {
	const file, score = "/proc/self/oom_score_adj", 500
	text, err := os.ReadFile(file)
	if err != nil {
		return nil // there is no such order here
	}
	if had, err := strconv.Atoi(strings.TrimSpace(string(text))); err != nil || had >= score {
		return nil
	}
	if err := os.WriteFile(file, strconv.AppendInt(nil, score, 10), 0); err != nil {
		return fmt.Errorf("going before others when memory is short: %w", err)
	}
	return nil
}

// privileges gives up for good what an exec could give back, on all threads.
// not ok: not all threads can be reached, or it failed.
func setNoNewPrivs() (ok bool, err error) {
	_, _, e := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0)
	switch e {
	case 0:
		return true, nil
	case syscall.ENOTSUP:
		return false, nil
	}
	return false, fmt.Errorf("giving up privileges: %w", e)
}

// filter installs rules on all threads. A kernel without filters goes without.
func installRules(rules []policy.Rule) error {
	program, err := policy.Compile(runtime.GOARCH, rules)
	if err != nil {
		return nil // no table for this processor
	}
	if err := installFilter(program); err != nil && err != unix.ENOSYS && err != unix.EINVAL {
		return fmt.Errorf("installing the system-call filter: %w", err)
	}
	return nil
}
