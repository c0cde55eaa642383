package doctor

import (
	"strings"

	"golang.org/x/sys/unix"
)

// speculation reports the state of speculation control. ask makes the prctl(2) call
// PR_GET_SPECULATION_CTRL.
func speculation(ask func(what int) (int, error)) Feature {
	out := Feature{Name: "speculation control", State: yes}
	var words []string
	for _, s := range []struct {
		name string
		what int
	}{{"store bypass", unix.PR_SPEC_STORE_BYPASS}, {"indirect branches", unix.PR_SPEC_INDIRECT_BRANCH}} {
		state, err := ask(s.what)
		switch {
		case err != nil:
			words = append(words, s.name+": unknown to this kernel")
		case state == unix.PR_SPEC_NOT_AFFECTED:
			words = append(words, s.name+": the processor is not affected")
		case state&unix.PR_SPEC_PRCTL != 0:
			words = append(words, s.name+": can be switched off for programs")
		case state&unix.PR_SPEC_ENABLE == 0:
			words = append(words, s.name+": off for the whole host")
		default:
			words = append(words, s.name+": cannot be switched off for programs")
			out.State = limited
			out.Fix = "boot with mitigations=auto, and where this is a virtual machine have its host pass the processor's switches (ssbd, stibp, ibpb) on"
		}
	}
	out.Detail = strings.Join(words, "; ")
	return out
}

// coreScheduling reports whether the kernel has core scheduling, from the error of a query for the
// cookie with an invalid pointer.
func coreScheduling(answer error) Feature {
	out := Feature{Name: "core scheduling", State: yes, Detail: "sandboxes do not share a core at any moment"}
	switch answer {
	case unix.ENODEV:
		out.Detail = "not needed: cores have one hardware thread"
	case unix.EINVAL:
		out.State, out.Detail = no, "sandboxes may share a core at any moment, where cores have several hardware threads"
		out.Fix = "use a kernel from 5.14 on with CONFIG_SCHED_CORE, or switch the threads off (nosmt)"
	}
	return out
}

// coreDumps reports whether RLIMIT_CORE 1, the value in sandboxes, keeps their memory from the
// host's core handler (core(5)). A handler behind a socket receives it at any limit.
func coreDumps(pattern string) Feature {
	if strings.HasPrefix(pattern, "@") {
		return Feature{Name: "no core dumps", State: limited, Detail: "kernel.core_pattern names a socket, which gets the memory of programs that crash whatever their limit is",
			Fix: "sysctl -w kernel.core_pattern=core, or a handler behind a pipe (|)"}
	}
	return Feature{Name: "no core dumps", State: yes}
}
