package policy

import "slices"

// The baseline of these rules is Docker's default seccomp profile (moby) for a container without
// capabilities. docs/system-calls.md lists, call by call, where the rules differ from it and from
// gVisor's, and why. TestPeers compares that list with the rules.

// Rules returns the rules for programs on a host with a memory cgroup. The agent runs under them
// too. Every call of numbers has at least one rule.
func Rules() []Rule {
	return slices.Concat(fileRules(), memoryRules(), countedRules(), processRules(), socketRules(),
		waitRules(), identityRules(), limitRules(), refusedRules(), absentRules())
}

// TemplateRules are the rules of a template's interpreter: Rules, setns(2), with which a fork
// enters its sandbox, and the prctl(2) with which a fork gets its own core scheduling cookie. The
// sandbox's own filters are installed on the fork too.
func TemplateRules() []Rule {
	rules := Rules()
	for i := range rules {
		rules[i].Names = slices.DeleteFunc(rules[i].Names, func(name string) bool { return name == "setns" })
	}
	rules = append(rules, Rule{Names: []string{"setns"}, Action: Allow,
		Why: "a fork enters its sandbox; the kernel allows it only for namespaces that the interpreter's user owns, which are those of the forks' sandboxes"})
	cookie := Rule{Names: []string{"prctl"}, Args: []Cond{{Arg: 0, In: []uint32{prctlSchedCore}}, {Arg: 1, In: []uint32{prctlSchedCoreCreate}}},
		Action: Allow, Why: "a fork leaves the core scheduling group of the template for one of its own"}
	return slices.Insert(rules, slices.IndexFunc(rules, func(r Rule) bool { return slices.Contains(r.Names, "prctl") }), cookie)
}

// UncountedRules is Rules for a host without a memory cgroup, where the agent's watchdog adds up
// the memory of processes. It denies memory that /proc shows for no process.
func UncountedRules() []Rule {
	return slices.Concat(fileRules(), memoryRules(), uncountedRules(), processRules(), socketRules(),
		waitRules(), identityRules(), limitRules(), refusedRules(), absentRules())
}

// fileRules are the rules of files and directories. Mounts, modes and Landlock decide which files
// can be reached.
func fileRules() []Rule {
	return []Rule{
		{Names: []string{"read", "write", "pread64", "pwrite64", "readv", "writev", "preadv", "pwritev", "preadv2", "pwritev2", "lseek"},
			Action: Allow, Why: "reading and writing: every program"},
		{Names: []string{"open", "openat", "openat2", "creat", "close", "close_range"},
			Action: Allow, Why: "opening files: every program; the agent resolves paths with openat2, and libraries close descriptors before exec with close_range"},
		{Names: []string{"stat", "fstat", "lstat", "newfstatat", "statx", "statfs", "fstatfs", "access", "faccessat", "faccessat2", "readlink", "readlinkat"},
			Action: Allow, Why: "metadata of files: every program; current libc uses faccessat2 and statx"},
		{Names: []string{"getdents", "getdents64", "getcwd", "chdir", "fchdir", "mkdir", "mkdirat", "rmdir"},
			Action: Allow, Why: "directories: every program"},
		{Names: []string{"rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat", "unlink", "unlinkat"},
			Action: Allow, Why: "names: every program that writes files, and the agent's file operations"},
		{Names: []string{"truncate", "ftruncate", "fallocate", "copy_file_range", "sendfile", "readahead", "fadvise64"},
			Action: Allow, Why: "contents: cp, tar, Node's fs.copyFile and Python's shutil use different ones"},
		{Names: []string{"fsync", "fdatasync", "sync_file_range"},
			Action: Allow, Why: "databases and editors; the files are in memory, so no disk is written"},
		{Names: []string{"sync", "syncfs"},
			Action: Skip, Why: "would make the host write all dirty pages to its disks, which slows down neighbours; files of a sandbox are in memory, so no effect is the right effect"},
		{Names: []string{"chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat", "utime", "utimes", "futimesat", "utimensat", "umask"},
			Action: Allow, Why: "modes, owners and times: tar, cp, install and the agent; without capabilities a program changes only its own"},
		{Names: []string{"getxattr", "lgetxattr", "fgetxattr", "getxattrat", "setxattr", "lsetxattr", "fsetxattr", "setxattrat",
			"listxattr", "llistxattr", "flistxattr", "listxattrat", "removexattr", "lremovexattr", "fremovexattr", "removexattrat"},
			Action: Allow, Why: "extended attributes: cp -a, tar, Python's shutil.copystat; trusted.* and security.* need capabilities"},
		{Names: []string{"fcntl", "flock", "dup", "dup2", "dup3", "pipe", "pipe2"},
			Action: Allow, Why: "descriptors: every shell"},
		{Names: []string{"ioctl"}, Args: []Cond{{Arg: 1, In: []uint32{ioctlTIOCSTI, ioctlTIOCLINUX, ioctlTIOCSETD}}},
			Action: Errno(errPerm), Why: "TIOCSTI and TIOCLINUX put input into a terminal; TIOCSETD loads line disciplines, each a kernel module. The kernel uses 32 bits of the request"},
		{Names: []string{"ioctl"}, Action: Allow, Why: "terminals, sockets, FIONREAD: every program; there are few devices, and Landlock limits their ioctls"},
		{Names: []string{"mknod"}, Args: []Cond{{Arg: 1, Mask: modeType, In: []uint32{0, modeFIFO, modeRegular, modeSocket}}},
			Action: Allow, Why: "mkfifo of older libraries; no devices"},
		{Names: []string{"mknod"}, Action: Errno(errPerm), Why: "devices and invalid file types"},
		{Names: []string{"mknodat"}, Args: []Cond{{Arg: 2, Mask: modeType, In: []uint32{0, modeFIFO, modeRegular, modeSocket}}},
			Action: Allow, Why: "mkfifo; no devices"},
		{Names: []string{"mknodat"}, Action: Errno(errPerm), Why: "devices and invalid file types"},
		{Names: []string{"inotify_init", "inotify_init1", "inotify_add_watch", "inotify_rm_watch"},
			Action: Allow, Why: "Node's fs.watch, watchdog, tail -f; bounded per user namespace"},
		{Names: []string{"name_to_handle_at"}, Action: Allow, Why: "systemd's libraries and find compare mounts with it; its counterpart open_by_handle_at is refused"},
		{Names: []string{"statmount", "listmount"}, Action: Allow, Why: "the content of /proc/self/mountinfo, for newer libmount"},
		{Names: []string{"cachestat", "mincore"}, Action: Allow, Why: "databases query the page cache; the kernel answers only for files that the caller may write"},
	}
}

// memoryRules are the rules of a process's own memory.
func memoryRules() []Rule {
	return []Rule{
		{Names: []string{"mmap", "munmap", "mremap", "mprotect", "brk", "msync"},
			Action: Allow, Why: "memory: every program, and every just-in-time compiler"},
		{Names: []string{"mlock", "mlock2", "mlockall", "munlock", "munlockall"},
			Action: Allow, Why: "OpenSSL, libsodium and GnuPG pin keys; RLIMIT_MEMLOCK bounds it"},
		{Names: []string{"mseal"}, Action: Allow, Why: "glibc 2.41 seals its own mappings; it only takes rights away"},
		{Names: []string{"map_shadow_stack"}, Action: Allow, Why: "glibc with shadow stacks (CET)"},
		{Names: []string{"pkey_alloc", "pkey_free", "pkey_mprotect"}, Action: Allow, Why: "V8 protects its code pages with keys"},
		{Names: []string{"remap_file_pages"}, Action: Allow, Why: "old databases; the kernel emulates it with plain mappings"},
		{Names: []string{"membarrier"}, Action: Allow, Why: "V8, BEAM, .NET and liburcu order memory by it"},
		{Names: []string{"arch_prctl"}, Action: Allow, Why: "thread-local storage: every program on amd64"},
		{Names: []string{"memfd_secret"}, Action: Errno(errNoSys), Why: "each page permanently splits large mappings of the host kernel; most kernels disable the call"},
		{Names: []string{"get_mempolicy", "set_mempolicy", "set_mempolicy_home_node", "mbind", "migrate_pages", "move_pages"},
			Action: Errno(errNoSys), Why: "only the host places memory on NUMA nodes; on ENOSYS libnuma assumes a machine without NUMA, on EPERM it prints a warning"},
	}
}

// countedRules are the rules of memory outside of any process, if a cgroup counts it.
func countedRules() []Rule {
	return []Rule{
		{Names: []string{"madvise"}, Action: Allow, Why: "memory: every allocator"},
		{Names: []string{"splice", "tee", "vmsplice"}, Action: Allow, Why: "copying through pipes: cat, Go's io.Copy"},
		{Names: []string{"memfd_create"}, Action: Allow, Why: "BEAM and other just-in-time compilers map code twice through it; the memory cgroup counts it"},
		{Names: sysvCalls(), Action: Allow, Why: "System V IPC: PostgreSQL, fakeroot; the sandbox has an IPC namespace of its own and the memory cgroup counts it"},
	}
}

// uncountedRules are the rules of the same calls if nothing counts that memory.
func uncountedRules() []Rule {
	return []Rule{
		{Names: []string{"madvise"}, Args: []Cond{{Arg: 2, In: []uint32{madvPageOut}}},
			Action: Errno(errInval), Why: "MADV_PAGEOUT puts shared memory into swap, where /proc shows it for no process; a kernel without it answers EINVAL"},
		{Names: []string{"madvise"}, Action: Allow, Why: "memory: every allocator"},
		{Names: []string{"splice", "tee", "vmsplice"}, Action: Errno(errInval), Why: "the pipe keeps the pages, huge ones too, after the process has unmapped them; EINVAL is the answer for an unsupported file, after which programs copy with read and write"},
		{Names: []string{"setsockopt"}, Args: []Cond{{Arg: 1, In: []uint32{solSocket}}, {Arg: 2, In: []uint32{soSndBuf, soRcvBuf}}},
			Action: Skip, Why: "the watchdog counts for each socket the size of its buffers; the kernel too silently reduces a request"},
		{Names: []string{"memfd_create"}, Action: Errno(errNoSys), Why: "its pages may be mapped by no process and so escape the watchdog; libraries fall back to a file in /dev/shm or /tmp, which Disk bounds"},
		{Names: sysvCalls(), Action: Errno(errNoSys), Why: "segments, queues and semaphores outlive the processes that made them and escape the watchdog; a kernel without System V IPC answers the same"},
	}
}

func sysvCalls() []string {
	return []string{"shmget", "shmat", "shmdt", "shmctl", "semget", "semop", "semtimedop", "semctl", "msgget", "msgsnd", "msgrcv", "msgctl"}
}

// processRules are the rules of processes and threads.
func processRules() []Rule {
	return []Rule{
		{Names: []string{"clone"}, Args: []Cond{{Arg: 0, Mask: cloneNewAny, In: []uint32{0}}},
			Action: Allow, Why: "threads and processes: every program; without a new namespace"},
		{Names: []string{"clone"}, Action: Errno(errPerm), Why: "a new user namespace would give capabilities, and with them access to most of the kernel. CLONE_NEWTIME cannot be requested here: its bit is part of the signal"},
		{Names: []string{"clone3"}, Action: Errno(errNoSys), Why: "its flags are in memory, which a filter cannot read; libc falls back to clone"},
		{Names: []string{"fork", "vfork", "execve", "execveat"}, Action: Allow, Why: "starting programs: every shell, and the agent"},
		{Names: []string{"exit", "exit_group", "wait4", "waitid"}, Action: Allow, Why: "ends of processes: every program, and the agent"},
		{Names: []string{"kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open", "pidfd_send_signal", "process_mrelease"},
			Action: Allow, Why: "signals within the sandbox's own PID namespace, between processes of one user"},
		{Names: []string{"rt_sigaction", "rt_sigprocmask", "rt_sigpending", "rt_sigsuspend", "rt_sigtimedwait", "rt_sigreturn", "sigaltstack", "pause", "restart_syscall", "signalfd", "signalfd4"},
			Action: Allow, Why: "handling signals: every program"},
		{Names: []string{"futex", "futex_waitv", "futex_wait", "futex_wake", "futex_requeue", "set_robust_list", "get_robust_list", "set_tid_address", "rseq"},
			Action: Allow, Why: "threads: every libc; without rseq and robust lists glibc warns or slows down"},
		{Names: []string{"getpid", "getppid", "gettid", "getpgid", "getpgrp", "getsid", "setpgid", "setsid"},
			Action: Allow, Why: "process groups and sessions: every shell"},
		{Names: []string{"sched_yield", "sched_getaffinity", "sched_setaffinity", "sched_getparam", "sched_setparam", "sched_getscheduler", "sched_setscheduler",
			"sched_getattr", "sched_setattr", "sched_get_priority_max", "sched_get_priority_min", "sched_rr_get_interval", "getpriority", "setpriority", "ioprio_get", "ioprio_set", "getcpu"},
			Action: Allow, Why: "counting processors (nproc, os.cpus) and lowering the priority; real-time classes need RLIMIT_RTPRIO, which is 0"},
		{Names: []string{"prctl"}, Args: []Cond{{Arg: 0, In: []uint32{prctlSchedCore}}},
			Action: Errno(errInval), Why: "PR_SCHED_CORE keeps all other processes off the sibling processors, beyond any quota; a kernel without it answers EINVAL"},
		{Names: []string{"prctl"}, Args: []Cond{{Arg: 0, In: []uint32{prctlSetSpeculation}}},
			Action: Errno(errPerm), Why: "PR_SET_SPECULATION_CTRL: the operator decides on speculation, and a cache flush at every context switch slows down neighbours; the kernel answers EPERM for a forced state. PR_GET_SPECULATION_CTRL is allowed"},
		{Names: []string{"prctl"}, Action: Allow, Why: "thread names, parent-death signals, no_new_privs: most programs"},
		{Names: []string{"seccomp"}, Action: Allow, Why: "browsers and nested sandboxes add filters, which can only remove rights"},
		{Names: []string{"landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"},
			Action: Allow, Why: "the agent puts programs into their Landlock domain, and programs may restrict themselves further"},
		{Names: []string{"ptrace"}, Action: Allow, Why: "gdb, strace and leak sanitizers. Since Linux 4.8, which is older than all supported kernels, the filter runs after the tracer; " +
			"the agent is undumpable, has another uid if the sandbox has a range of ids, and is outside the programs' Landlock domain"},
		{Names: []string{"personality"}, Args: []Cond{{Arg: 0, In: []uint32{0, persLinux32, persUname26, persLinux32 | persUname26, persQuery}}},
			Action: Allow, Why: "querying, and the UTS personality of an older or a 32-bit machine (setarch)"},
		{Names: []string{"personality"}, Action: Errno(errPerm), Why: "other values disable protections: READ_IMPLIES_EXEC, ADDR_NO_RANDOMIZE, MMAP_PAGE_ZERO"},
		{Names: []string{"uprobe", "uretprobe"}, Action: Allow, Why: "made by the kernel's own trampoline when the operator traces the process; if it were refused, the traced program would crash"},
	}
}

// socketRules are the rules of sockets. The network namespace has a loopback and at most one TUN
// device to the daemon's stack. The rules keep the number of reachable protocols small.
func socketRules() []Rule {
	inet := Cond{Arg: 0, In: []uint32{afInet, afInet6}}
	kind := func(t ...uint32) Cond { return Cond{Arg: 1, Mask: sockTypeMask, In: t} }
	protocol := func(p ...uint32) Cond { return Cond{Arg: 2, In: p} }
	return []Rule{
		{Names: []string{"socket"}, Args: []Cond{{Arg: 0, In: []uint32{afUnix}}},
			Action: Allow, Why: "BEAM, Python's multiprocessing, Node's IPC"},
		{Names: []string{"socket"}, Args: []Cond{inet, kind(sockStream), protocol(0, protoTCP)},
			Action: Allow, Why: "servers and clients on the sandbox's loopback"},
		{Names: []string{"socket"}, Args: []Cond{inet, kind(sockDgram), protocol(0, protoUDP)},
			Action: Allow, Why: "UDP on the loopback; libc also asks for its own address with it"},
		{Names: []string{"socket"}, Args: []Cond{inet, kind(sockRaw, sockPacket)},
			Action: Errno(errPerm), Why: "raw packets; ping expects EPERM without the capability. SOCK_PACKET with an internet family is an old name of AF_PACKET"},
		{Names: []string{"socket"}, Args: []Cond{inet},
			Action: Errno(errProtoNoSupport), Why: "MPTCP, SCTP, DCCP, UDP-Lite, SMC, ICMP: each loads a module; programs (Go's listeners ask for MPTCP) fall back on this answer"},
		{Names: []string{"socket"}, Args: []Cond{{Arg: 0, In: []uint32{afNetlink}}, protocol(netlinkRoute)},
			Action: Allow, Why: "getaddrinfo, if_nameindex and Node's os.networkInterfaces list addresses; changing them needs a capability"},
		{Names: []string{"socket"}, Args: []Cond{{Arg: 0, In: []uint32{afNetlink}}},
			Action: Errno(errProtoNoSupport), Why: "netfilter, audit, xfrm, crypto and other interfaces of the kernel; the answer is that of a kernel without them"},
		{Names: []string{"socket"}, Action: Errno(errAFNoSupport), Why: "VSOCK reaches the hypervisor, PACKET the wire, ALG and KEY the kernel's cryptography; programs need none of the other families"},
		{Names: []string{"socketpair"}, Args: []Cond{{Arg: 0, In: []uint32{afUnix}}}, Action: Allow, Why: "BEAM, Node's child processes, asyncio"},
		{Names: []string{"socketpair"}, Action: Errno(errAFNoSupport), Why: "creates sockets of the family before it fails to pair them"},
		{Names: []string{"bind", "listen", "accept", "accept4", "connect", "shutdown", "getsockname", "getpeername", "getsockopt"},
			Action: Allow, Why: "servers and clients"},
		{Names: []string{"sendto", "sendmmsg"}, Args: []Cond{{Arg: 3, Mask: msgOOB, In: []uint32{msgOOB}}},
			Action: Errno(errNotSupp), Why: "MSG_OOB: out-of-band bytes of UNIX sockets gave an attacker the kernel's memory (CVE-2025-38236), and a filter cannot see the socket's family. Of TCP only telnet and FTP's abort use it. A kernel without it answers EOPNOTSUPP. Receiving needs no row, because no such byte can be sent"},
		{Names: []string{"sendmsg"}, Args: []Cond{{Arg: 2, Mask: msgOOB, In: []uint32{msgOOB}}},
			Action: Errno(errNotSupp), Why: "as sendto; the kernel uses the flags of this argument and not those in the message"},
		{Names: []string{"sendto", "recvfrom", "sendmsg", "recvmsg", "sendmmsg", "recvmmsg"},
			Action: Allow, Why: "servers and clients; sendmsg and recvmsg are how the agent passes descriptors"},
		{Names: []string{"setsockopt"}, Args: []Cond{{Arg: 1, In: []uint32{protoTCP}}, {Arg: 2, In: []uint32{tcpULP}}},
			Action: Errno(errNoProtoOpt), Why: "upper layer protocols (TLS, ESP) in the kernel: they have had vulnerabilities and no benefit on a loopback; OpenSSL then encrypts in user space"},
		{Names: []string{"setsockopt"}, Action: Allow, Why: "servers and clients"},
	}
}

// waitRules are the rules of time and of waiting for events.
func waitRules() []Rule {
	return []Rule{
		{Names: []string{"poll", "ppoll", "select", "pselect6", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2", "eventfd", "eventfd2"},
			Action: Allow, Why: "waiting: every event loop"},
		{Names: []string{"nanosleep", "clock_nanosleep", "clock_gettime", "clock_getres", "gettimeofday", "time", "times", "alarm", "getitimer", "setitimer"},
			Action: Allow, Why: "clocks and sleeping: every program"},
		{Names: []string{"timer_create", "timer_settime", "timer_gettime", "timer_getoverrun", "timer_delete", "timerfd_create", "timerfd_settime", "timerfd_gettime"},
			Action: Allow, Why: "timers: event loops and profilers; RLIMIT_SIGPENDING bounds them"},
		{Names: []string{"adjtimex", "clock_adjtime"}, Action: Allow, Why: "ntp_gettime reads the clock's state; changing it needs a capability"},
		{Names: []string{"mq_open", "mq_unlink", "mq_timedsend", "mq_timedreceive", "mq_notify", "mq_getsetattr"},
			Action: Allow, Why: "POSIX message queues in the sandbox's own IPC namespace; RLIMIT_MSGQUEUE bounds them"},
	}
}

// identityRules are the rules of credentials. Programs have no capabilities and no_new_privs, so
// changing ids has no effect for them. The agent starts programs as another user with these calls
// if the user namespace maps a range of ids.
func identityRules() []Rule {
	return []Rule{
		{Names: []string{"getuid", "geteuid", "getgid", "getegid", "getresuid", "getresgid", "getgroups", "capget"},
			Action: Allow, Why: "asking: every program"},
		{Names: []string{"setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setgroups", "setfsuid", "setfsgid", "capset"},
			Action: Allow, Why: "the agent becomes the sandbox's user; su and sudo fail because they have no rights, not because of the filter"},
		{Names: []string{"uname", "sysinfo", "getrandom"}, Action: Allow, Why: "every program; the host name is the sandbox's own"},
	}
}

// limitRules are the rules of resource limits and usage. RLIMIT_CORE must stay as Rlimits sets it:
// at any other value, 0 included, the kernel may run the host's core handler on the sandbox's
// memory (core(5)).
func limitRules() []Rule {
	core := func(arg int) Cond { return Cond{Arg: arg, In: []uint32{rlimitCore}} }
	return []Rule{
		{Names: []string{"getrlimit", "getrusage"}, Action: Allow, Why: "reading: every shell's ulimit and time"},
		{Names: []string{"setrlimit"}, Args: []Cond{core(0)}, Action: Skip, Why: "ulimit -c: there are no core dumps in any case; GnuPG requires success"},
		{Names: []string{"setrlimit"}, Action: Allow, Why: "lowering limits; raising one needs a capability"},
		{Names: []string{"prlimit64"}, Args: isNull(2), Action: Allow, Why: "reading: libc's getrlimit"},
		{Names: []string{"prlimit64"}, Args: append([]Cond{core(1)}, isNull(3)...), Action: Skip, Why: "as setrlimit, which libc makes with this call"},
		{Names: []string{"prlimit64"}, Args: []Cond{core(1)}, Action: Errno(errPerm), Why: "a call that changes and reads cannot be skipped, because it needs an answer"},
		{Names: []string{"prlimit64"}, Action: Allow, Why: "the other limits: every shell, and the agent"},
	}
}

// isNull returns the conditions of a NULL pointer: both halves of the argument are 0.
func isNull(arg int) []Cond {
	return []Cond{{Arg: arg, In: []uint32{0}}, {Arg: arg, High: true, In: []uint32{0}}}
}

// TagResource is the resource whose hard limit is the process tag (internal/agent, processTags).
type TagResource uint32

// The resources that can carry the tag. The kernel enforces neither.
const (
	// TagLocks is RLIMIT_LOCKS, which Linux has not enforced since 2.4.25 (getrlimit(2)).
	TagLocks TagResource = rlimitLocks
	// TagRSS is RLIMIT_RSS, which neither Linux nor gVisor enforces. In gVisor RLIMIT_LOCKS cannot
	// be changed.
	TagRSS TagResource = rlimitRSS
)

// ProgramRules are the rules for programs only, in addition to Rules. They keep a program from
// changing its tag, the hard limit of resource: its children inherit the tag, and the agent
// finds the processes of a program by it.
//
// With TagRSS, and so in gVisor, they also deny what that kernel would allow programs but Linux
// does not.
func ProgramRules(resource TagResource) []Rule {
	eperm := Errno(errPerm)
	ofTag := func(arg int) []Cond { return []Cond{{Arg: arg, In: []uint32{uint32(resource)}}} }
	rules := []Rule{
		{Names: []string{"setrlimit"}, Args: ofTag(0), Action: eperm, Why: "the tag must not change"},
		{Names: []string{"setrlimit"}, Action: Allow, Why: "Rules decides on the other limits"},
		{Names: []string{"prlimit64"}, Args: isNull(2), Action: Allow, Why: "reading: tags are not secret"},
		{Names: []string{"prlimit64"}, Args: ofTag(1), Action: eperm, Why: "the tag must not change, neither the caller's nor that of another process"},
		{Names: []string{"prlimit64"}, Args: []Cond{{Arg: 0, In: []uint32{0}}}, Action: Allow, Why: "the caller's own limits: every shell"},
		{Names: []string{"prlimit64"}, Action: eperm, Why: "limits of other processes, such as the agent's, if it runs as the same user: it needs descriptors to find the processes to kill"},
	}
	if resource != TagRSS {
		return rules
	}
	return append(rules,
		Rule{Names: []string{"setpriority"}, Args: []Cond{{Arg: 2, Mask: signBit, In: []uint32{signBit}}}, Action: Errno(errAcces), Why: "a priority above the default, which gVisor does not check against RLIMIT_NICE"},
		Rule{Names: []string{"setpriority"}, Action: Allow, Why: "lowering the own priority"})
}

// refusedRules are the rules of privileged calls: EPERM, as from a kernel without the capability.
func refusedRules() []Rule {
	eperm := Errno(errPerm)
	return []Rule{
		{Names: []string{"unshare", "setns"}, Action: eperm, Why: "new or other namespaces give capabilities and a way out of the sandbox"},
		{Names: []string{"mount", "umount2", "pivot_root", "chroot", "fsopen", "fsmount", "fsconfig", "fspick", "move_mount", "open_tree", "open_tree_attr", "mount_setattr"},
			Action: eperm, Why: "the mounts are part of the boundary: programs add none and remove no mask"},
		{Names: []string{"open_by_handle_at"}, Action: eperm, Why: "opens files by inode number, without checking the directories above them"},
		{Names: []string{"bpf", "perf_event_open", "userfaultfd"}, Action: eperm, Why: "programs in the kernel, performance counters and blocked page faults: most exploits use one of them"},
		{Names: []string{"add_key", "request_key", "keyctl"}, Action: eperm, Why: "keyrings are not namespaced and hold memory that no cgroup counts"},
		{Names: []string{"process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp"}, Action: eperm, Why: "access to other processes; debuggers need only ptrace"},
		{Names: []string{"kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "reboot"}, Action: eperm, Why: "replacing the kernel or parts of it"},
		{Names: []string{"iopl", "ioperm"}, Action: eperm, Why: "I/O ports of the machine"},
		{Names: []string{"swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "vhangup"}, Action: eperm, Why: "settings of the administrator"},
		{Names: []string{"settimeofday", "clock_settime", "sethostname", "setdomainname"}, Action: eperm, Why: "the clock is shared with the host; the host name is set before programs run"},
		{Names: []string{"syslog"}, Action: eperm, Why: "the kernel's log contains addresses and names of other tenants"},
		{Names: []string{"fanotify_init", "fanotify_mark"}, Action: eperm, Why: "watches whole mounts and can block their users"},
		{Names: []string{"lsm_get_self_attr", "lsm_set_self_attr", "lsm_list_modules"}, Action: eperm, Why: "configures security modules of the host"},
		{Names: []string{"sysfs", "ustat", "uselib"}, Action: eperm, Why: "obsolete; ustat reports on devices, uselib bypasses the loader"},
	}
}

// absentRules are the calls that are answered with ENOSYS, as by a kernel without them. A call
// without a rule gets the same answer; the rules here record that each was decided.
func absentRules() []Rule {
	enosys := Errno(errNoSys)
	return []Rule{
		{Names: []string{"io_uring_setup", "io_uring_enter", "io_uring_register"}, Action: enosys, Why: "performs most system calls without passing this filter; libuv and others fall back"},
		{Names: []string{"io_setup", "io_destroy", "io_submit", "io_cancel", "io_getevents", "io_pgetevents"}, Action: enosys, Why: "the number of requests is one limit for the whole host (fs.aio-max-nr), which a sandbox could use up; databases fall back to threads"},
		{Names: []string{"modify_ldt"}, Action: enosys, Why: "segments for 16-bit code, with a history of vulnerabilities; kernels may lack it"},
		{Names: []string{"file_getattr", "file_setattr", "listns", "rseq_slice_yield"}, Action: enosys, Why: "new calls that no program needs yet; review them when one does"},
		{Names: []string{"set_thread_area", "get_thread_area", "epoll_ctl_old", "epoll_wait_old"}, Action: enosys, Why: "32-bit leftovers in the 64-bit table, never implemented there"},
		{Names: []string{"_sysctl", "create_module", "get_kernel_syms", "query_module", "nfsservctl", "lookup_dcookie"}, Action: enosys, Why: "removed from the kernel"},
		{Names: []string{"afs_syscall", "getpmsg", "putpmsg", "security", "tuxcall", "vserver"}, Action: enosys, Why: "reserved numbers that were never implemented"},
	}
}

// Values that rules compare. They are the same on both architectures.
const (
	// CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
	cloneNewAny = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000

	ioctlTIOCSTI   = 0x5412
	ioctlTIOCLINUX = 0x541c
	ioctlTIOCSETD  = 0x5423

	modeType    = 0xf000
	modeFIFO    = 0x1000
	modeRegular = 0x8000
	modeSocket  = 0xc000

	signBit = 1 << 31 // of an int

	prctlSetSpeculation  = 53
	prctlSchedCore       = 62
	prctlSchedCoreCreate = 1

	msgOOB = 1

	madvPageOut = 21

	solSocket = 1
	soSndBuf  = 7
	soRcvBuf  = 8

	persLinux32 = 0x8
	persUname26 = 0x20000
	persQuery   = 0xffffffff

	afUnix    = 1
	afInet    = 2
	afInet6   = 10
	afNetlink = 16

	sockTypeMask = 0xf // the other bits are SOCK_CLOEXEC and SOCK_NONBLOCK
	sockStream   = 1
	sockDgram    = 2
	sockRaw      = 3
	sockPacket   = 10

	protoTCP     = 6
	protoUDP     = 17
	netlinkRoute = 0
	tcpULP       = 31

	rlimitCore  = 4
	rlimitRSS   = 5
	rlimitLocks = 10
)
