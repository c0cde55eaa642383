package agent

import (
	"golang.org/x/sys/unix"
)

// setNamespaceOwner changes the calling thread's effective user to uid, which owns the user
// namespaces that the thread creates, and returns a function that undoes it. SECBIT_NO_SETUID_FIXUP
// keeps the thread's capabilities across the change (capabilities(7)). A process that the thread
// forks into a new user namespace has all capabilities there.
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
	return func() { _ = setEffective(0) }, nil // allowed: the real user is still root
}

// setEffective sets the calling thread's effective user only; the x/sys function would change all
// threads.
func setEffective(uid int) error {
	const same = ^uintptr(0)
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, same, uintptr(uid), same); e != 0 {
		return e
	}
	return nil
}
