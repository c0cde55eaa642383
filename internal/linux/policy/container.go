package policy

import "slices"

// ProcMasks returns the paths below /proc that container runtimes mask. names are the entries of
// /proc on the runtime's host, if they are known: each one that is not in ProcShown is masked.
func ProcMasks(names ...string) []string {
	out := paths(procMasks())
	for _, name := range names {
		if p := "/proc/" + name; !ProcShown(name) && p != "/proc/sysrq-trigger" && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// ProcReadOnly returns the paths below /proc that programs can read but not write.
func ProcReadOnly() []string { return paths(procReadOnly()) }

func paths(rows []row) []string {
	var out []string
	for _, r := range rows {
		out = append(out, r.path)
	}
	return out
}

// RlimitName returns the name of a resource in runtime configurations, such as "nofile". ok is
// false for a resource that Rlimits does not set.
func RlimitName(resource uint32) (name string, ok bool) {
	name, ok = map[uint32]string{
		rlimitData: "data", rlimitStack: "stack", rlimitCore: "core", rlimitNproc: "nproc", rlimitNofile: "nofile", rlimitMemlock: "memlock",
		rlimitSigpending: "sigpending", rlimitMsgqueue: "msgqueue", rlimitNice: "nice", rlimitRtprio: "rtprio",
	}[resource]
	return name, ok
}
