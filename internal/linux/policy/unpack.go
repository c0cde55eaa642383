package policy

import "github.com/sandbar-dev/sandbar/internal/agent/wire"

// What the process that fetches and unpacks images may do. It executes our code
// alone, but reads what registries and the makers of images wrote: these rules
// are for that code, should somebody come to control it. A call without a row is
// answered with ENOSYS: programs and sockets first of all.

// UnpackRules are the system calls of the process with this pid that unpacks
// images. It has its connection to the daemon from the start, and further ones
// arrive over it.
//
// Landlock does not look at changes of modes and times. They are allowed on
// descriptors alone: Landlock leaves none of a file outside the staging directory,
// and the daemon passes none.
func UnpackRules(pid uint32) []Rule {
	return []Rule{
		{Names: []string{"read", "write", "pread64", "lseek", "close", "fstat", "newfstatat", "statx", "getdents64", "readlinkat"},
			Action: Allow, Why: "the connections, and the files of the staging directory"},
		{Names: []string{"fcntl"}, Args: []Cond{{Arg: 1, In: []uint32{fcntlGetFD, fcntlSetFD, fcntlGetFL, fcntlSetFL, fcntlDupCloexec}}},
			Action: Allow, Why: "no waiting in reads and writes"},
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
		{Names: []string{"tgkill"}, Action: Errno(errPerm), Why: "others are not signalled"},
		{Names: []string{"exit", "exit_group", "getrandom", "uname", "getrlimit"}, Action: Allow, Why: "ending, and random numbers for TLS"},
	}
}

// What rows compare with, beyond those of Rules.
const (
	modeSetID  = 0o6000 // S_ISUID and S_ISGID
	unpackExec = 0x4    // PROT_EXEC

	fcntlGetFD, fcntlSetFD, fcntlGetFL, fcntlSetFL = 1, 2, 3, 4
	fcntlDupCloexec                                = 1030 // F_DUPFD_CLOEXEC
)

// UnpackLandlock lets the process that unpacks images do in one directory what
// that takes, and nothing anywhere else: no devices, no sockets, no FIFOs, and
// nothing is executed.
func UnpackLandlock(dir string) wire.Landlock {
	return wire.Landlock{HandledFS: llEverything, Scoped: llScopeAbstractUnix | llScopeSignal,
		Rules: []wire.LandlockRule{{Path: dir, Access: llReadFile | llReadDir | llWriteFile | llTruncate |
			llMakeDir | llMakeReg | llMakeSym | llRemoveDir | llRemoveFile | llRefer}}}
}
