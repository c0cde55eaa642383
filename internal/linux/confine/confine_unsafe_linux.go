package confine

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// installFilter installs a classic BPF program on all threads.
func installFilter(program []byte) error {
	const size = int(unsafe.Sizeof(unix.SockFilter{}))
	n := len(program) / size
	filter := make([]unix.SockFilter, n)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&filter[0])), len(program)), program)
	prog := unix.SockFprog{Len: uint16(n), Filter: &filter[0]}
	_, _, e := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if e != 0 {
		return e
	}
	return nil
}

// dropCapabilities empties all capability sets of all threads.
func dropCapabilities() error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	_, _, e := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&hdr)), uintptr(unsafe.Pointer(&none)), 0)
	if e != 0 {
		return e
	}
	return nil
}

// The ABI versions of Landlock that introduced what this file uses (landlock(7)).
const (
	abiRefer    = 2
	abiTruncate = 3
	abiIoctl    = 5
	abiScoped   = 6
	abiUnix     = 9
)

// landlockVersion returns the kernel's Landlock ABI version, 0 without Landlock.
func landlockVersion() int {
	abi, _, e := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if e != 0 {
		return 0
	}
	return int(abi)
}

// landlock puts all threads into the domain of a ruleset, reduced to the rights that this kernel
// knows. A kernel without Landlock is no error.
func landlock(l *wire.Landlock) error {
	abi := landlockVersion()
	if abi == 0 {
		return nil
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: l.HandledFS & knownRights(abi)}
	// the kernel refuses a larger struct than it knows
	size := unsafe.Offsetof(attr.Handled_access_net)
	if abi >= abiScoped {
		attr.Scoped = l.Scoped
		size = unsafe.Offsetof(attr.Scoped) + unsafe.Sizeof(attr.Scoped)
	}
	set, _, e := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if e != 0 {
		return fmt.Errorf("making a Landlock ruleset: %w", e)
	}
	defer unix.Close(int(set))
	for _, r := range l.Rules {
		if err := addRule(set, r.Path, r.Access&attr.Handled_access_fs); err != nil {
			return fmt.Errorf("allowing %s: %w", r.Path, err)
		}
	}
	if _, _, e := syscall.AllThreadsSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, set, 0, 0); e != 0 {
		return fmt.Errorf("entering the Landlock domain: %w", e)
	}
	return nil
}

// knownRights returns the file access rights of an ABI version.
func knownRights(abi int) uint64 {
	rights := uint64(1)<<13 - 1 // ABI 1: EXECUTE to MAKE_SYM
	for _, r := range []struct {
		since int
		right uint64
	}{{abiRefer, unix.LANDLOCK_ACCESS_FS_REFER}, {abiTruncate, unix.LANDLOCK_ACCESS_FS_TRUNCATE},
		{abiIoctl, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV}, {abiUnix, 1 << 16}} {
		if abi >= r.since {
			rights |= r.right
		}
	}
	return rights
}

// addRule allows access to a file, or beneath a directory.
func addRule(set uintptr, path string, access uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		access &= unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}
	if _, _, e := syscall.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, set, unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0); e != 0 {
		return e
	}
	return nil
}
