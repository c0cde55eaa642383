package policy

import (
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// The rules of the process that runs sandboxes' TCP/IP stacks (package netstack). It uses the Go
// runtime, TUN devices and memory files that the daemon passes to it, and outgoing sockets. It
// opens no file, starts no process and listens on no socket. Any other call is ENOSYS.

// NetworkRules returns the rules of that process, whose process id is pid.
func NetworkRules(pid uint32) []Rule {
	return []Rule{
		{Names: []string{"read", "write", "writev", "close", "pread64", "pwrite64"}, Action: Allow, Why: "sockets, TUN devices and the byte counters in memory files"},
		{Names: []string{"fcntl"}, Action: Allow, Why: "O_NONBLOCK"},
		{Names: []string{"ioctl"}, Args: []Cond{{Arg: 1, In: []uint32{ioctlInputQueue}}}, Action: Allow, Why: "FIONREAD: the bytes in a socket's queue"},
		{Names: []string{"ioctl"}, Action: Errno(errPerm), Why: "the configuration of a TUN device must not change"},
		{Names: []string{"socket"}, Args: []Cond{{Arg: 0, In: []uint32{familyIPv4, familyIPv6}}, {Arg: 1, Mask: socketKind, In: []uint32{socketStream, socketDatagram}},
			{Arg: 2, In: []uint32{0, protocolTCP, protocolUDP}}}, Action: Allow, Why: "TCP and UDP"},
		{Names: []string{"socket"}, Action: Errno(errPerm), Why: "no raw sockets, no other family"},
		{Names: []string{"connect", "sendto", "recvfrom", "sendmsg", "recvmsg", "shutdown", "getsockname", "getpeername"},
			Action: Allow, Why: "connections, the socket to the daemon, and route queries over netlink"},
		{Names: []string{"setsockopt"}, Args: []Cond{{Arg: 1, In: []uint32{levelSocket}},
			{Arg: 2, In: []uint32{optionBroadcast, optionKeepAlive, optionUrgentInline, optionLinger}}}, Action: Allow, Why: "what package net sets, urgent data in its place, and resets"},
		{Names: []string{"setsockopt"}, Args: []Cond{{Arg: 1, In: []uint32{protocolTCP}},
			{Arg: 2, In: []uint32{optionNoDelay, optionKeepIdle, optionKeepInterval, optionKeepCount}}}, Action: Allow, Why: "what package net sets"},
		{Names: []string{"setsockopt"}, Args: []Cond{{Arg: 1, In: []uint32{levelIPv6}}, {Arg: 2, In: []uint32{optionOnlyIPv6}}}, Action: Allow, Why: "what package net sets"},
		{Names: []string{"setsockopt"}, Action: Errno(errPerm), Why: "no filters, no other protocols above TCP"},
		{Names: []string{"getsockopt"}, Args: []Cond{{Arg: 1, In: []uint32{levelSocket}}, {Arg: 2, In: []uint32{optionError}}}, Action: Allow, Why: "how a connect ended"},
		{Names: []string{"getsockopt"}, Action: Errno(errPerm), Why: "nothing else is asked"},
		{Names: []string{"mmap", "mprotect"}, Args: []Cond{{Arg: 2, Mask: protExec, In: []uint32{0}}}, Action: Allow, Why: "memory of the runtime"},
		{Names: []string{"mmap", "mprotect"}, Action: Errno(errPerm), Why: "no new code"},
		{Names: []string{"munmap", "madvise", "brk", "mincore", "futex", "sched_yield", "sched_getaffinity"}, Action: Allow, Why: "memory and threads of the runtime"},
		{Names: []string{"clone"}, Args: []Cond{{Arg: 0, Mask: cloneThread, In: []uint32{cloneThread}}}, Action: Allow, Why: "threads of the runtime"},
		{Names: []string{"clone"}, Action: Errno(errPerm), Why: "no processes"},
		{Names: []string{"epoll_create1", "epoll_ctl", "epoll_pwait", "eventfd2"}, Action: Allow, Why: "waiting: the runtime's poller"},
		{Names: []string{"nanosleep", "clock_nanosleep", "clock_gettime", "gettimeofday", "restart_syscall"}, Action: Allow, Why: "time"},
		{Names: []string{"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "getpid", "gettid"}, Action: Allow, Why: "the runtime interrupts its own threads with signals"},
		{Names: []string{"tgkill"}, Args: []Cond{{Arg: 0, In: []uint32{pid}}}, Action: Allow, Why: "the same"},
		{Names: []string{"tgkill"}, Action: Errno(errPerm), Why: "no signals to other processes"},
		{Names: []string{"exit", "exit_group", "getrandom"}, Action: Allow, Why: "ending, and random numbers"},
	}
}

// Arguments that the rules compare. The values are the same on both architectures.
const (
	ioctlInputQueue = 0x541b // TIOCINQ, FIONREAD

	familyIPv4, familyIPv6       = 2, 10
	socketKind                   = 0xf // the other bits are flags
	socketStream, socketDatagram = 1, 2
	protocolTCP, protocolUDP     = 6, 17

	levelSocket        = 1
	optionError        = 4
	optionBroadcast    = 6
	optionKeepAlive    = 9
	optionUrgentInline = 10
	optionLinger       = 13
	optionNoDelay      = 1
	optionKeepIdle     = 4
	optionKeepInterval = 5
	optionKeepCount    = 6
	levelIPv6          = 41
	optionOnlyIPv6     = 26

	protExec = 0x4
)

// NetworkLandlock allows no file, and no signal to another process.
func NetworkLandlock() wire.Landlock {
	return wire.Landlock{HandledFS: llEverything, Scoped: llScopeAbstractUnix | llScopeSignal}
}
