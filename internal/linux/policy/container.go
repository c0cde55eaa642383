package policy

import "slices"

// ProcMasks are the paths below /proc that programs do not see, for container
// runtimes, which mask paths. names are those in the /proc of the runtime's
// host, if it is known: whatever is not among ProcShown is masked.
func ProcMasks(names ...string) []string {
	out := paths(procMasks())
	for _, name := range names {
		if p := "/proc/" + name; !ProcShown(name) && p != "/proc/sysrq-trigger" && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// ProcReadOnly are the paths below /proc that programs read and must not write.
func ProcReadOnly() []string { return paths(procReadOnly()) }

func paths(rows []row) []string {
	var out []string
	for _, r := range rows {
		out = append(out, r.path)
	}
	return out
}

// RlimitName is what container runtimes call a resource, without "RLIMIT_" and
// in small letters; ok is false for one that Rlimits does not set.
func RlimitName(resource uint32) (name string, ok bool) {
	name, ok = map[uint32]string{
		rlimitData: "data", rlimitStack: "stack", rlimitCore: "core", rlimitNproc: "nproc", rlimitNofile: "nofile", rlimitMemlock: "memlock",
		rlimitSigpending: "sigpending", rlimitMsgqueue: "msgqueue", rlimitNice: "nice", rlimitRtprio: "rtprio",
	}[resource]
	return name, ok
}
