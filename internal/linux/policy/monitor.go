package policy

import "slices"

// MonitorRules are the rules of a virtual machine monitor: Rules without everything that a running
// monitor has no use for. They are installed before the monitor is executed, so they allow
// execve(2) and what its start needs; the monitor's own filter (qemu -sandbox) then denies new
// programs.
func MonitorRules() []Rule {
	removed := monitorRemoved()
	rules := Rules()
	for i := range rules {
		rules[i].Names = slices.DeleteFunc(slices.Clone(rules[i].Names), func(name string) bool {
			return name == "clone" || slices.ContainsFunc(removed, func(r Rule) bool { return slices.Contains(r.Names, name) })
		})
	}
	rules = slices.DeleteFunc(rules, func(r Rule) bool { return len(r.Names) == 0 })
	return slices.Concat(rules, removed, []Rule{
		{Names: []string{"clone"}, Args: []Cond{{Arg: 0, Mask: cloneThread, In: []uint32{cloneThread}}}, Action: Allow, Why: "threads: virtual processors"},
		{Names: []string{"clone"}, Action: Errno(errPerm), Why: "no processes"},
	})
}

// monitorRemoved are the calls that Rules allows and MonitorRules does not.
func monitorRemoved() []Rule {
	eperm := Errno(errPerm)
	return []Rule{
		{Names: []string{"socket", "socketpair", "bind", "listen", "accept", "accept4", "connect", "sendmmsg", "recvmmsg"},
			Action: eperm, Why: "it inherits all its connections"},
		{Names: []string{"fork", "vfork"}, Action: eperm, Why: "no processes"},
		{Names: []string{"ptrace", "kill", "tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open", "pidfd_send_signal", "process_mrelease"},
			Action: eperm, Why: "there is no other process; its threads are signalled with tgkill"},
		{Names: []string{"rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat", "unlink", "unlinkat", "mkdir", "mkdirat", "rmdir", "mknod", "mknodat", "truncate",
			"chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat", "utime", "utimes", "futimesat", "utimensat",
			"setxattr", "lsetxattr", "fsetxattr", "setxattrat", "removexattr", "lremovexattr", "fremovexattr", "removexattrat"},
			Action: eperm, Why: "its root has no file that can be changed; it writes only to files that it inherits"},
		{Names: []string{"setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setgroups", "setfsuid", "setfsgid", "capset", "setpgid", "setsid"},
			Action: eperm, Why: "it stays the user that it is"},
		{Names: []string{"inotify_init", "inotify_init1", "inotify_add_watch", "inotify_rm_watch", "name_to_handle_at", "statmount", "listmount"},
			Action: eperm, Why: "there is nothing to watch"},
		{Names: []string{"mq_open", "mq_unlink", "mq_timedsend", "mq_timedreceive", "mq_notify", "mq_getsetattr"}, Action: eperm, Why: "it has no one to talk to"},
		{Names: sysvCalls(), Action: eperm, Why: "it has no one to share memory with"},
		{Names: []string{"landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self", "pkey_alloc", "pkey_free", "pkey_mprotect", "memfd_secret", "personality", "vmsplice", "tee"},
			Action: eperm, Why: "it does not use them"},
	}
}
