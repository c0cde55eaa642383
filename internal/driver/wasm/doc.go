// Package wasm is the driver without requirements on the operating system: a sandbox is a process
// of this same binary (package worker) with files in memory, a shell written in Go, and Python and
// JavaScript as WebAssembly. It runs wherever Go does, without privileges, also inside other
// sandboxes.
//
// The boundary is that of WebAssembly: a program is compiled code that can access its own linear
// memory and the functions that it imports, which only access files in memory. The daemon itself
// never runs a program's code. On Linux, seccomp and Landlock confine the worker and its runners
// further.
//
// Invariants beyond package driver:
//
//   - Programs are those of the sandbox: sh and its utilities, python3, node. No program of the
//     host is ever started.
//   - A sandbox can be reset to its initial state (driver.Resetter), whatever it contains, within a
//     few milliseconds.
//   - A limit that the driver cannot enforce (cpus, cpu_shares) is refused.
//
// The modules are compiled once, into the user's cache directory, by a process of their own.
package wasm
