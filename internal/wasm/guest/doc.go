// Package guest is the runner: the process in which WebAssembly executes. It
// runs the interpreters of package artefact, one program at a time, each in a
// fresh instance, and has a worker do whatever a program asks of its system
// (package call).
//
// What it promises:
//
//   - A program reaches what the worker gives it and nothing else. The runner
//     opens no file, socket or process for a program; the standard streams, the
//     files and the working directory of a program are the worker's.
//   - It can be killed at any moment, and is: that is how programs are ended.
//     Code that a module has been compiled to cannot be interrupted otherwise.
//     It ends by itself when its input does, also while a program computes.
//   - Linear memory grows only by what the worker grants.
//
// # Garbage collection
//
// The collector stops all goroutines for a moment, and one that executes
// compiled WebAssembly does not stop. While a program runs the collector is
// therefore off, and is called for by the program's own goroutine, in system
// calls, when enough has been allocated. Otherwise a busy program would bring
// the process to a state in which it cannot even see that its input has ended.
package guest
