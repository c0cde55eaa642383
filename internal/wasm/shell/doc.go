// Package shell is a POSIX shell without an operating system. It runs scripts on a [memfs.FS]; its
// utilities are Go functions. It is the program "sh" in a sandbox of the wasm driver.
//
// The language is POSIX with the most used extensions of bash: arrays, [[, ((, local, here-strings,
// brace expansion, process substitution, pipefail. mvdan.cc/sh/v3/syntax parses it. The interpreter
// is this package's own, because that module's interpreter uses pipes and files of the host.
//
// # Invariants
//
//   - Scripts cannot access the host: no file, process, environment variable, user name, host name
//     or process id, and no clock except the time of day. The package starts no programs and opens
//     no files. A script sees [Config].FS, Config.Env and the given streams.
//   - Processes behave as on Unix. Pipelines, subshells and jobs run concurrently, each with its
//     own variables, working directory and descriptors. A pipe holds 64 KiB and then blocks its
//     writer. A write to a pipe without a reader ends the process with SIGPIPE. kill, trap and wait
//     work between processes. All processes end before [Run] returns.
//   - Resources are bounded. [Limits] bound processes, descriptors, nesting and the length of
//     values. A script that exceeds one fails, as at a limit of a kernel.
//   - All processes end with the context: at once, except for a program that ignores its own
//     context.
//
// Not supported are job control with a terminal, SIGSTOP, and aliases for more than words. The
// total memory of a script is not bounded: call [Run] in a process with limits of its own.
package shell
