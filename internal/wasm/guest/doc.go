// Package guest is the runner: the process that executes WebAssembly. It runs the interpreters of
// package artefact, one program at a time, each in a new instance, and forwards a program's system
// calls to a worker (package call).
//
// Invariants:
//
//   - A program can access only what the worker gives it. The runner opens no file, socket or
//     process for a program; its standard streams, files and working directory are in the worker.
//   - The runner can be killed at any time, and that is how programs are ended, because compiled
//     WebAssembly cannot be interrupted in any other way. It exits at the end of its input, also
//     while a program computes.
//   - Linear memory grows only as far as the worker allows.
//
// # Garbage collection
//
// Go's garbage collector stops all goroutines briefly, but one that executes compiled WebAssembly
// does not stop. So the collector is off while a program runs, and the program's own goroutine
// calls it, in system calls, after enough allocations. Otherwise a busy program would block the
// collector and with it the whole process, which could not even detect the end of its input.
package guest
