package policy

import "github.com/sandbar-dev/sandbar/internal/agent/wire"

// sysctlRow is a bound of the sandbox's user namespace and its reason.
type sysctlRow struct{ name, value, why string }

// Sysctls returns bounds that the kernel keeps per user namespace. The daemon's own bounds apply as
// well, so these can only be lower.
func Sysctls() []wire.Sysctl {
	var out []wire.Sysctl
	for _, r := range sysctlRows() {
		out = append(out, wire.Sysctl{Name: r.name, Value: r.value})
	}
	return out
}

func sysctlRows() []sysctlRow {
	const none = "programs may create none; this bound holds even without the seccomp filter"
	return []sysctlRow{
		{"user/max_user_namespaces", "0", none},
		{"user/max_net_namespaces", "0", none},
		{"user/max_ipc_namespaces", "0", none},
		{"user/max_uts_namespaces", "0", none},
		{"user/max_time_namespaces", "0", none},
		{"user/max_inotify_instances", "32", "a quarter of the kernel's usual bound for a user: sandboxes may share one user, and one sandbox must not use up its bound"},
		{"user/max_inotify_watches", "4096", "half of the lowest default per user, as for instances; each watch pins an inode of the host"},
		{"user/max_fanotify_groups", "0", "no program needs to watch a whole file system"},
		{"user/max_fanotify_marks", "0", "as groups"},
	}
}
