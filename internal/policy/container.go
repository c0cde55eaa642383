package policy

// ProcMasks are the paths below /proc that programs do not see, for who masks
// them elsewhere than in a plan of mounts.
func ProcMasks() []string { return paths(procMasks()) }

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
