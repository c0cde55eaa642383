package main

import "golang.org/x/sys/unix"

// forbidCore keeps this process's memory, where tokens and environments are, out
// of core dumps. A limit of 1 and not 0: where core dumps go to a program, the
// kernel starts that for 0 and not for 1, and no file fits in 1. Where an
// outer limit is lower it stays.
func forbidCore() {
	var now unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_CORE, &now) == nil {
		most := min(now.Max, 1)
		_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: most, Max: most})
	}
}
