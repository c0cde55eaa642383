package policy

import (
	"slices"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// The rules of the processes of the wasm driver. They run foreign programs as WebAssembly only. The
// rules limit an attacker who takes over the WebAssembly runtime. A call without a rule is ENOSYS,
// in particular sockets.

// WasmRunnerRules are the rules of the processes that execute WebAssembly. They communicate over
// descriptors that they inherit.
func WasmRunnerRules() []Rule {
	return slices.Concat(wasmCommonRules(), []Rule{
		{Names: []string{"clone"}, Args: []Cond{{Arg: 0, Mask: cloneThread, In: []uint32{cloneThread}}},
			Action: Allow, Why: "threads of the runtime"},
		{Names: []string{"clone"}, Action: Errno(errPerm), Why: "no processes"},
	})
}

// WasmWorkerRules are the rules of the process that starts them. A runner inherits this filter and
// adds its own.
func WasmWorkerRules() []Rule {
	return slices.Concat(wasmCommonRules(), []Rule{
		{Names: []string{"clone"}, Args: []Cond{{Arg: 0, Mask: cloneNewAny, In: []uint32{0}}},
			Action: Allow, Why: "threads, and runners; no namespaces"},
		{Names: []string{"clone"}, Action: Errno(errPerm), Why: "namespaces are the way to capabilities"},
		{Names: []string{"execve"}, Action: Allow, Why: "starting runners; Landlock leaves nothing else to execute"},
		{Names: []string{"wait4", "waitid", "pidfd_open", "pidfd_send_signal"}, Action: Allow, Why: "ending runners"},
		{Names: []string{"pipe2", "dup3", "chdir", "arch_prctl", "close_range"}, Action: Allow, Why: "what happens between fork and exec, and at the start of a program"},
	})
}

func wasmCommonRules() []Rule {
	return []Rule{
		{Names: []string{"read", "write", "readv", "writev", "pread64", "lseek", "close", "fstat", "newfstatat", "statx", "fcntl", "getdents64", "readlinkat"},
			Action: Allow, Why: "the connection, and reading the compiled modules"},
		{Names: []string{"openat"}, Args: []Cond{{Arg: 2, Mask: openWriting, In: []uint32{0}}},
			Action: Allow, Why: "the compiled modules, the only files that Landlock allows"},
		{Names: []string{"openat"}, Action: Errno(errPerm), Why: "nothing is written"},
		{Names: []string{"mmap", "munmap", "mprotect", "madvise", "mremap", "brk", "mincore", "futex", "sched_yield", "sched_getaffinity",
			"set_robust_list", "rseq", "membarrier", "set_tid_address"}, Action: Allow, Why: "memory and threads of the runtime, and compiled modules, which are executed"},
		{Names: []string{"epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_wait", "eventfd2", "ppoll", "poll"}, Action: Allow, Why: "waiting: the runtime's poller"},
		{Names: []string{"nanosleep", "clock_nanosleep", "clock_gettime", "clock_getres", "gettimeofday", "restart_syscall"}, Action: Allow, Why: "time"},
		{Names: []string{"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "tgkill", "getpid", "gettid", "getppid", "getpgid"},
			Action: Allow, Why: "the runtime interrupts its own threads with signals"},
		{Names: []string{"kill"}, Action: Errno(errPerm), Why: "no signals to other processes"},
		{Names: []string{"exit", "exit_group", "getrandom", "uname", "getrusage", "getrlimit", "setrlimit", "prlimit64"}, Action: Allow, Why: "ending, random numbers, and one's own limits"},
		{Names: []string{"prctl", "seccomp", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"}, Action: Allow, Why: "dropping further rights, as a runner does at its start, and PR_SET_PDEATHSIG"},
	}
}

// Values that rules compare, besides those of Rules.
const (
	cloneThread = 0x00010000
	// O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, O_APPEND and the bit of O_TMPFILE that is not
	// O_DIRECTORY, whose value differs between architectures.
	openWriting = 0x1 | 0x2 | 0x40 | 0x200 | 0x400 | 0x400000
)

// WasmLandlock lets the processes of the wasm driver read the given directories, and execute one
// file: their own program.
func WasmLandlock(program string, readable ...string) wire.Landlock {
	l := wire.Landlock{HandledFS: llEverything, Scoped: llScopeAbstractUnix | llScopeSignal,
		Rules: []wire.LandlockRule{{Path: program, Access: llExecute | llReadFile}}}
	for _, dir := range readable {
		if dir != "" {
			l.Rules = append(l.Rules, wire.LandlockRule{Path: dir, Access: llRead})
		}
	}
	return l
}
