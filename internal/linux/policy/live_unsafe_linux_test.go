package policy

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// System calls without a wrapper, for live_linux_test.go.

// installFilter installs a compiled filter on all threads of this process.
func installFilter(prog []byte) error {
	filter := unix.SockFprog{Len: uint16(len(prog) / 8), Filter: (*unix.SockFilter)(unsafe.Pointer(unsafe.SliceData(prog)))}
	_, _, e := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&filter)))
	runtime.KeepAlive(prog)
	return errOf(e)
}

// landlockVersion returns the kernel's ABI version of Landlock, 0 if it has none.
func landlockVersion() int {
	v, _, e := syscall.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if e != 0 {
		return 0
	}
	return int(v)
}

func landlockCreate(fs, scoped uint64) (int, error) {
	attr := unix.LandlockRulesetAttr{Handled_access_fs: fs, Scoped: scoped}
	size := unsafe.Sizeof(attr)
	if scoped == 0 {
		size = unsafe.Sizeof(attr.Handled_access_fs) // all rights of the first ABI version
	}
	fd, _, e := syscall.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	return int(fd), errOf(e)
}

func landlockAdd(set, fd int, access uint64) error {
	attr := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}
	_, _, e := syscall.RawSyscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	return errOf(e)
}

// landlockRestrict puts the calling thread into the domain.
func landlockRestrict(set int) error {
	_, _, e := syscall.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(set), 0, 0)
	return errOf(e)
}

func errOf(e syscall.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}
