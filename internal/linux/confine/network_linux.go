package confine

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/linux/policy"
)

// networkID is the user and group of the network process if the daemon is root. It is just below
// the ids of sandboxes and belongs to nobody else.
const networkID = 0x6fffffff

// Bounds of the network process.
const (
	// minNetworkMemory is in bytes. The limit is this or half of the machine's memory, whichever is
	// more.
	minNetworkMemory = 1 << 30
	// networkFileSize is RLIMIT_FSIZE in bytes: more than the largest ledger.
	networkFileSize = 64 << 20
)

// Network confines the process that runs sandboxes' TCP/IP stacks. It keeps its descriptors and can
// create outgoing sockets. It can open no file, start no process, signal no other process and
// listen on no socket. A kernel without Landlock is no error, one without seccomp is.
func Network() error {
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil && err != unix.ENOSYS {
		return fmt.Errorf("closing descriptors: %w", err)
	}
	if err := lowerLimits(map[int]uint64{unix.RLIMIT_CORE: 1, unix.RLIMIT_FSIZE: networkFileSize}); err != nil {
		return err
	}
	memory, err := networkMemory()
	if err != nil {
		return err
	}
	if err := raiseOOMScore(); err != nil {
		return err
	}
	if ok, err := setNoNewPrivs(); !ok {
		return err
	}
	if err := dropRoot(); err != nil {
		return err
	}
	if err := dropCapabilities(); err != nil {
		return fmt.Errorf("dropping capabilities: %w", err)
	}
	// setresuid(2) clears the parent-death signal, so it is set afterwards. The end of the
	// connection ends the process as well.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("setting the parent-death signal: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming undumpable: %w", err)
	}
	if err := LimitData(memory); err != nil {
		return err
	}
	l := policy.NetworkLandlock()
	if err := landlock(&l); err != nil {
		return err
	}
	program, err := policy.Compile(runtime.GOARCH, policy.NetworkRules(uint32(unix.Getpid())))
	if err != nil {
		return err
	}
	if err := installFilter(program); err != nil {
		return fmt.Errorf("installing the system-call filter: %w", err)
	}
	return nil
}

// networkMemory returns the process's memory limit, in bytes.
func networkMemory() (int64, error) {
	var i unix.Sysinfo_t
	if err := unix.Sysinfo(&i); err != nil {
		return 0, fmt.Errorf("asking for the machine's memory: %w", err)
	}
	return max(int64(uint64(i.Totalram)*uint64(i.Unit)/2), minNetworkMemory), nil
}

// dropRoot changes a root process to a user that owns nothing. If the user namespace does not map
// that user, or the daemon may not change ids, the process stays its user, without capabilities.
func dropRoot() error {
	if unix.Geteuid() != 0 {
		return nil
	}
	for _, change := range []func() error{
		func() error { return syscall.Setgroups(nil) },
		func() error { return syscall.Setresgid(networkID, networkID, networkID) },
		func() error { return syscall.Setresuid(networkID, networkID, networkID) },
	} {
		if err := change(); err != nil && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("leaving root: %w", err)
		}
	}
	return nil
}
