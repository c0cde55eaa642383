package policy

import "github.com/sandbar-dev/sandbar/internal/agent/wire"

// The rules of the process that downloads and unpacks images. It runs only Sandbar's code, but
// parses data from registries and image authors. The rules limit an attacker who takes that code
// over. A call without a rule is ENOSYS, in particular those that start programs or create sockets.

// UnpackRules returns the rules of that process, whose process id is pid. It inherits its
// connection to the daemon, and receives further connections over it.
//
// Landlock does not cover changes of modes and times. The rules allow them on descriptors only:
// Landlock prevents that the process opens a file outside of the staging directory, and the daemon
// passes it none.
func UnpackRules(pid uint32) []Rule {
	return []Rule{
		{Names: []string{"read", "write", "pread64", "lseek", "close", "fstat", "newfstatat", "statx", "getdents64", "readlinkat"},
			Action: Allow, Why: "the connections, and the files of the staging directory"},
		{Names: []string{"fcntl"}, Args: []Cond{{Arg: 1, In: []uint32{fcntlGetFD, fcntlSetFD, fcntlGetFL, fcntlSetFL, fcntlDupCloexec}}},
			Action: Allow, Why: "O_NONBLOCK"},
		{Names: []string{"fcntl"}, Action: Errno(errPerm), Why: "no locks, no leases, no signals"},
		{Names: []string{"recvmsg"}, Action: Allow, Why: "descriptors from the daemon: connections to registries, pipes"},
		{Names: []string{"openat"}, Args: []Cond{{Arg: 3, Mask: modeSetID, In: []uint32{0}}},
			Action: Allow, Why: "the files of the staging directory, to which Landlock keeps it"},
		{Names: []string{"mkdirat", "unlinkat", "renameat", "linkat", "symlinkat"},
			Action: Allow, Why: "unpacking layers, and merging them; Landlock keeps them to the staging directory"},
		{Names: []string{"fchmod"}, Args: []Cond{{Arg: 1, Mask: modeSetID, In: []uint32{0}}}, Action: Allow, Why: "modes of what it has open"},
		{Names: []string{"utimensat"}, Args: []Cond{{Arg: 1, In: []uint32{0}}, {Arg: 1, High: true, In: []uint32{0}}}, Action: Allow, Why: "times of what it has open"},
		{Names: []string{"openat", "fchmod", "utimensat"}, Action: Errno(errPerm), Why: "no setuid and no setgid bits, no times by name"},
		{Names: []string{"mmap", "mprotect"}, Args: []Cond{{Arg: 2, Mask: unpackExec, In: []uint32{0}}}, Action: Allow, Why: "memory of the runtime"},
		{Names: []string{"mmap", "mprotect"}, Action: Errno(errPerm), Why: "no code but the program's own"},
		{Names: []string{"munmap", "madvise", "mincore", "brk", "futex", "sched_yield", "sched_getaffinity", "set_robust_list", "rseq", "membarrier"},
			Action: Allow, Why: "memory and threads of the runtime"},
		{Names: []string{"clone"}, Args: []Cond{{Arg: 0, Mask: cloneThread, In: []uint32{cloneThread}}}, Action: Allow, Why: "threads of the runtime"},
		{Names: []string{"clone"}, Action: Errno(errPerm), Why: "no processes"},
		{Names: []string{"epoll_create1", "epoll_ctl", "epoll_pwait", "eventfd2"}, Action: Allow, Why: "waiting: the runtime's poller"},
		{Names: []string{"nanosleep", "clock_nanosleep", "clock_gettime", "gettimeofday", "restart_syscall"}, Action: Allow, Why: "time"},
		{Names: []string{"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "getpid", "gettid"},
			Action: Allow, Why: "the runtime interrupts its own threads with signals"},
		{Names: []string{"tgkill"}, Args: []Cond{{Arg: 0, In: []uint32{pid}}}, Action: Allow, Why: "the same"},
		{Names: []string{"tgkill"}, Action: Errno(errPerm), Why: "no signals to other processes"},
		{Names: []string{"exit", "exit_group", "getrandom", "uname", "getrlimit"}, Action: Allow, Why: "ending, and random numbers for TLS"},
	}
}

// Values that rules compare, besides those of Rules.
const (
	modeSetID  = 0o6000 // S_ISUID and S_ISGID
	unpackExec = 0x4    // PROT_EXEC

	fcntlGetFD, fcntlSetFD, fcntlGetFL, fcntlSetFL = 1, 2, 3, 4
	fcntlDupCloexec                                = 1030 // F_DUPFD_CLOEXEC
)

// UnpackLandlock allows in one directory what unpacking needs, and nothing elsewhere: no devices,
// sockets or FIFOs, and no execution.
func UnpackLandlock(dir string) wire.Landlock {
	return wire.Landlock{HandledFS: llEverything, Scoped: llScopeAbstractUnix | llScopeSignal,
		Rules: []wire.LandlockRule{{Path: dir, Access: llReadFile | llReadDir | llWriteFile | llTruncate |
			llMakeDir | llMakeReg | llMakeSym | llRemoveDir | llRemoveFile | llRefer}}}
}
