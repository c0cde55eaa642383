package agent

import "golang.org/x/sys/unix"

// prctl is unix.Prctl, or a replacement in tests.
type prctl func(option int, arg2, arg3, arg4, arg5 uintptr) error

// disableSpeculation permanently disables the speculation through which the calling thread and its
// children could attack other processes: speculative store bypass (Spectre v4) and shared indirect
// branch prediction (Spectre v2). A kernel without such a switch (no vulnerability, no microcode,
// or mitigations set on its command line) keeps its own setting, which "sandbar doctor" reports
// (spec_ctrl.rst).
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

// createCoreCookie gives this process and its children a core scheduling cookie of their own: the
// hardware threads of one core never run them together with other processes. Linux has it since
// 5.14; a kernel without it or without SMT returns an error, which is ignored
// (core-scheduling.rst).
func (p prctl) createCoreCookie() error {
	const threadGroup = 1
	switch err := p(unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_CREATE, 0, threadGroup, 0); err {
	case unix.ENODEV, unix.EINVAL:
		return nil
	default:
		return err
	}
}
