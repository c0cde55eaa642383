package main

import "golang.org/x/sys/unix"

// forbidCore keeps this process's memory, where tokens and environments are, out
// of core dumps. A limit of 1 and not 0: where core dumps go to a program, the
// kernel starts that for 0 and not for 1, and no file fits in 1. Sandboxes
// inherit it. An outer limit of 0 stays where the daemon has no right to raise it;
// hostenv.Probe refuses it there if it matters.
func limitCoreDumps() {
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1})
}
