package agent

import (
	"golang.org/x/sys/unix"
)

// becomeOwner makes the calling thread, and no other, the user who is to own the
// user namespaces that it makes, and returns the way back. The kernel takes the
// owner from the thread's effective user. Its capabilities stay; a process that it
// forks into a new user namespace gets a fresh set with that.
func setNamespaceOwner(uid int) (back func(), err error) {
	if uid == 0 {
		return func() {}, nil
	}
	const keepCapabilities = 1 << 2 // SECBIT_NO_SETUID_FIXUP
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, keepCapabilities, 0, 0, 0); err != nil {
		return nil, err
	}
	if err := setEffective(uid); err != nil {
		return nil, err
	}
	return func() { _ = setEffective(0) }, nil // the real user is root still, whom it may take on again
}

// setEffective sets the calling thread's effective user; x/sys would set that of all threads.
func setEffective(uid int) error {
	const same = ^uintptr(0)
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, same, uintptr(uid), same); e != 0 {
		return e
	}
	return nil
}
