// Package shell is a shell that needs no operating system: it runs scripts
// over a [memfs.FS], with utilities that are Go functions. It is what "sh"
// means in a sandbox of WebAssembly.
//
// The language is that of POSIX with the most used parts of bash: arrays, [[,
// ((, local, here-strings, brace expansion, process substitution, pipefail.
// mvdan.cc/sh/v3/syntax parses it; the evaluation is this package's own, since
// it has to answer for what a script can reach.
//
// What it promises:
//
//   - Nothing of the host is reachable. No file, process, environment variable,
//     user name, host name, process id or clock but the time of day. The
//     package does not start programs and opens nothing; a script sees
//     [Config].FS, Config.Env and the streams it is given.
//   - It behaves like processes. Pipelines, subshells and jobs run at the same
//     time, each with its own variables, directory and descriptors; a pipe holds
//     64 KiB and then holds its writer; a writer without readers ends as by
//     SIGPIPE; kill, trap and wait work between them. Nothing outlives [Run].
//   - It is bounded. [Limits] hold for processes, descriptors, nesting and the
//     length of values. What goes beyond fails in the script, as it does at the
//     limits of a kernel.
//   - It ends when its context does, at once unless it is inside a program
//     that does not look at its own.
//
// What it does not do: job control with a terminal, SIGSTOP, and aliases beyond
// words. What a script may use of memory in all is the business of whoever runs
// it: [Run] is meant for a process with limits of its own.
package shell
