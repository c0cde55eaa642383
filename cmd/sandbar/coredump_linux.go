package main

import "golang.org/x/sys/unix"

// limitCoreDumps prevents core dumps of this process, whose memory holds tokens and environments;
// sandboxes inherit the limit. The limit is 1 byte, not 0: if core_pattern is a pipe, the kernel
// ignores a limit of 0 and skips the dump for 1 (core(5)). A hard limit of 0 that an unprivileged
// daemon cannot raise stays; hostenv.Probe reports it if it matters.
func limitCoreDumps() {
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1})
}
