package agent

import "golang.org/x/sys/unix"

// prctl is unix.Prctl, or a test's.
type prctl func(option int, arg2, arg3, arg4, arg5 uintptr) error

// endSpeculation switches off, for good, what lets the calling thread and all
// that it forks attack others by speculation: the bypass of stores (Spectre v4)
// and shared predictions of indirect branches (Spectre v2). A kernel that offers
// no such switch, for want of a hole, of microcode or of the permission of its
// command line, has its own state, of which doctor tells (spec_ctrl.rst).
func (p prctl) disableSpeculation() error {
	for _, what := range [...]uintptr{unix.PR_SPEC_STORE_BYPASS, unix.PR_SPEC_INDIRECT_BRANCH} {
		switch err := p(unix.PR_SET_SPECULATION_CTRL, what, unix.PR_SPEC_FORCE_DISABLE, 0, 0); err {
		case nil, unix.ENODEV, unix.ENXIO, unix.EPERM, unix.EINVAL:
		default:
			return err
		}
	}
	return nil
}

// ownCore gives this process, and all that it starts, a core scheduling cookie
// of its own: the hardware threads of a processor core never execute them and
// something of others at once. A kernel without core scheduling, or without such
// threads, needs or has none (core-scheduling.rst).
func (p prctl) createCoreCookie() error {
	const threadGroup = 1
	switch err := p(unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_CREATE, 0, threadGroup, 0); err {
	case unix.ENODEV, unix.EINVAL:
		return nil
	default:
		return err
	}
}
