package agent

import (
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// This file has the system calls for which x/sys has no function.

// setCapsAllThreads makes keep the effective and permitted set of every thread, and empties the
// inheritable and ambient sets (capset(2)).
func setCapsAllThreads(keep uint64) error {
	hdr, data := capData(keep)
	_, _, e := syscall.AllThreadsSyscall(unix.SYS_CAPSET,
		uintptr(unsafe.Pointer(&hdr)), uintptr(unsafe.Pointer(&data[0])), 0)
	return orNil(e)
}

// setCaps does the same for the calling thread.
func setCaps(keep uint64) error {
	hdr, data := capData(keep)
	return unix.Capset(&hdr, &data[0])
}

func capData(keep uint64) (unix.CapUserHeader, [2]unix.CapUserData) {
	lo, hi := uint32(keep), uint32(keep>>32)
	return unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3},
		[2]unix.CapUserData{{Effective: lo, Permitted: lo}, {Effective: hi, Permitted: hi}}
}

// setThreadUser changes the effective ids of the calling thread only. The file system ids follow
// them (credentials(7)).
func setThreadUser(uid, gid uint32) error {
	const same = ^uintptr(0)
	if _, _, e := syscall.RawSyscall(unix.SYS_SETRESGID, same, uintptr(gid), same); e != 0 {
		return e
	}
	_, _, e := syscall.RawSyscall(unix.SYS_SETRESUID, same, uintptr(uid), same)
	return orNil(e)
}

// setThreadIDs changes all ids of the calling thread only.
func setThreadIDs(uid, gid uint32) error {
	if _, _, e := syscall.RawSyscall(unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)); e != 0 {
		return e
	}
	_, _, e := syscall.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid))
	return orNil(e)
}

// installFilter installs a classic BPF program: on every thread with SECCOMP_FILTER_FLAG_TSYNC,
// otherwise on the calling one (seccomp(2)).
func installFilter(program []byte, flags uintptr) error {
	const size = int(unsafe.Sizeof(unix.SockFilter{}))
	n := len(program) / size
	if n == 0 || n > 0xffff || len(program)%size != 0 {
		return unix.EINVAL
	}
	filter := make([]unix.SockFilter, n)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&filter[0])), len(program)), program)
	prog := unix.SockFprog{Len: uint16(n), Filter: &filter[0]}
	_, _, e := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		flags, uintptr(unsafe.Pointer(&prog)))
	return orNil(e)
}

// LandlockAttr returns the attributes of a ruleset with the rights of l that this kernel knows, and
// the size of the attributes that it knows. It reports false if the kernel has no usable Landlock.
func LandlockAttr(l *wire.Landlock) (attr unix.LandlockRulesetAttr, size uintptr, ok bool) {
	abi, _, e := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if e != 0 || abi < landlockReferABI || l.HandledFS == 0 {
		// Landlock is the second layer and optional; "sandbar doctor" reports its absence. ABI 1
		// cannot allow a rename between directories (LANDLOCK_ACCESS_FS_REFER), so it counts as
		// absent.
		return attr, 0, false
	}
	attr.Handled_access_fs = l.HandledFS & landlockKnown(int(abi))
	// the kernel refuses a larger struct than it knows
	size = unsafe.Offsetof(attr.Handled_access_net)
	if abi >= landlockScopedABI {
		attr.Scoped = l.Scoped
		size = unsafe.Offsetof(attr.Scoped) + unsafe.Sizeof(attr.Scoped)
	}
	return attr, size, true
}

// landlockRuleset creates a ruleset with the rights of l that this kernel knows, and returns its
// descriptor, or -1 if the kernel has no usable Landlock.
func landlockRuleset(l *wire.Landlock) (int, error) {
	attr, size, ok := LandlockAttr(l)
	if !ok {
		return -1, nil
	}
	fd, _, e := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if e != 0 {
		return -1, e
	}
	for _, r := range l.Rules {
		if err := landlockAdd(int(fd), r.Path, r.Access&attr.Handled_access_fs); err != nil {
			unix.Close(int(fd))
			return -1, err
		}
	}
	return int(fd), nil
}

// The ABI versions of Landlock that introduced what this file uses (landlock(7)).
const (
	landlockReferABI    = 2
	landlockTruncateABI = 3
	landlockIoctlABI    = 5
	landlockScopedABI   = 6
	landlockUnixABI     = 9
)

// landlockResolveUnix is LANDLOCK_ACCESS_FS_RESOLVE_UNIX.
const landlockResolveUnix = 1 << 16

// landlockKnown returns the file access rights of an ABI version.
func landlockKnown(abi int) uint64 {
	known := uint64(1)<<13 - 1 // ABI 1: EXECUTE to MAKE_SYM
	known |= unix.LANDLOCK_ACCESS_FS_REFER
	if abi >= landlockTruncateABI {
		known |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi >= landlockIoctlABI {
		known |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if abi >= landlockUnixABI {
		known |= landlockResolveUnix
	}
	return known
}

// LandlockFile has the rights that the kernel accepts for a file that is not a directory.
const LandlockFile = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
	unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV

func landlockAdd(ruleset int, path string, access uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil // a missing path needs no rule
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		access &= LandlockFile
	}
	if access == 0 {
		return nil
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}
	_, _, e := syscall.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset),
		unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	return orNil(e)
}

// landlockRestrict puts the calling thread into the ruleset's domain.
func landlockRestrict(ruleset int) error {
	_, _, e := syscall.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(ruleset), 0, 0)
	return orNil(e)
}

// sigaction has at least the size of the kernel's struct sigaction.
type sigaction [8]uintptr

// defaultAction is SIG_DFL without flags.
var defaultAction sigaction

// ignoreSent gives signals no effect if a process sends them. Where there are no
// handlers for that, they get their default action.
func ignoreSent(signals ...syscall.Signal) {
	const sigInfo, hasRestorer, onStack, restart = 0x4, 0x04000000, 0x08000000, 0x10000000
	const all = ^uintptr(0) // blocked meanwhile: a thread's stack for signals has little room
	ignore, unlessFault, restorer := handlers()
	action := sigaction{ignore, sigInfo | onStack | restart, restorer, all}
	switch {
	case ignore == 0:
		action = defaultAction
	case restorer != 0:
		action[1] |= hasRestorer
	}
	for _, n := range signals {
		now := action
		switch n {
		case unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, unix.SIGTRAP, unix.SIGSYS:
			now[0] = unlessFault
		}
		_ = now.set(n)
	}
}

// signalAction returns the process's current action for a signal.
func signalAction(n syscall.Signal) (now sigaction) {
	syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(n), 0, uintptr(unsafe.Pointer(&now)), 8, 0, 0)
	return now
}

// set sets the process's action for a signal.
func (s *sigaction) set(n syscall.Signal) error {
	_, _, e := syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(n), uintptr(unsafe.Pointer(s)), 0, 8, 0, 0)
	return orNil(e)
}

// resetSignals gives every signal except those in keep its default action.
func resetSignals(keep ...syscall.Signal) {
	for n := syscall.Signal(1); n <= 64; n++ {
		if !slices.Contains(keep, n) {
			_ = defaultAction.set(n) // fails for SIGKILL, SIGSTOP and unused numbers
		}
	}
}

// autoReapChildren makes the kernel reap this process's children (SA_NOCLDWAIT, sigaction(2)).
// execve(2) resets it.
func autoReapChildren() error {
	const noChildWait = 2               // SA_NOCLDWAIT
	action := sigaction{1: noChildWait} // SIG_DFL, then the flags
	return action.set(unix.SIGCHLD)
}

// addEntropy adds a seed to the kernel's random numbers and makes them use it at once (random(4)).
// fd is open on /dev/urandom.
func addEntropy(fd int, seed [wire.SeedSize]byte) error {
	pool := struct { // struct rand_pool_info
		bits, size int32
		seed       [wire.SeedSize]byte
	}{8 * wire.SeedSize, wire.SeedSize, seed}
	if _, _, e := syscall.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.RNDADDENTROPY, uintptr(unsafe.Pointer(&pool))); e != 0 {
		return e
	}
	_, _, e := syscall.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.RNDRESEEDCRNG, 0)
	return orNil(e)
}

func orNil(e syscall.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

// terminalPeer opens the slave of a terminal without a path (TIOCGPTPEER, ioctl_tty(2)).
func terminalPeer(master int) (int, error) {
	fd, _, e := syscall.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if e != 0 {
		return -1, e
	}
	return int(fd), nil
}
