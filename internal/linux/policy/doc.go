// Package policy is what a native sandbox may do, as data: which system calls
// are answered and how, what its root file system is built from, what Landlock
// adds to that, and the limits on each process. Every row says why it is
// there.
//
// The package promises three things. It makes no system call: everything is a
// pure function of its arguments, so a plan can be printed, compared with a
// golden file and reviewed before anything is done. It leaves nothing to
// chance: every system call of linux/amd64 and linux/arm64 has a row, and a
// test fails when one has none or a row changes nothing. And it is the same
// everywhere: the tables of both architectures are in every build.
//
// The agent (internal/agent) applies what is computed here; the types it
// takes are those of internal/agent/wire.
package policy
