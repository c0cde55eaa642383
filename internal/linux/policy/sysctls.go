package policy

import "github.com/sandbar-dev/sandbar/internal/agent/wire"

// sysctlRow is one bound of the sandbox's own user namespace, and why.
type sysctlRow struct{ name, value, why string }

// Sysctls returns the bounds that the kernel keeps per user namespace. They
// hold below the daemon's own, so none can be raised by them.
func Sysctls() []wire.Sysctl {
	var out []wire.Sysctl
	for _, r := range sysctlRows() {
		out = append(out, wire.Sysctl{Name: r.name, Value: r.value})
	}
	return out
}

func sysctlRows() []sysctlRow {
	const none = "no program may make one; this holds where the filter is not looked at"
	return []sysctlRow{
		{"user/max_user_namespaces", "0", none},
		{"user/max_net_namespaces", "0", none},
		{"user/max_ipc_namespaces", "0", none},
		{"user/max_uts_namespaces", "0", none},
		{"user/max_time_namespaces", "0", none},
		{"user/max_inotify_instances", "32", "a quarter of the kernel's usual bound for a user: where sandboxes share the daemon's user, and forks of one template their owner, one must not use up all"},
		{"user/max_inotify_watches", "4096", "half of the least bound that a kernel has for a user, as instances; each pins an inode of the host"},
		{"user/max_fanotify_groups", "0", "watching a whole file system is nothing a program in a sandbox needs"},
		{"user/max_fanotify_marks", "0", "as groups"},
	}
}
