// Package wasm is the driver that needs nothing of the operating system: a
// sandbox is a process of this same binary (package worker) with files in
// memory, a shell written in Go, and Python and JavaScript as WebAssembly. It
// runs wherever Go does, without rights, also inside other sandboxes.
//
// The boundary is that of WebAssembly: a program is compiled code that can
// reach its own linear memory and the functions it was given, and those lead to
// files in memory. The daemon itself never runs code of a program. Around it
// stands what the host has: on Linux a system-call filter and Landlock on the
// worker and its runners.
//
// What it promises beyond package driver:
//
//   - Programs are those of the sandbox: sh and its utilities, python3, node.
//     No program of the host is ever started.
//   - A sandbox can be taken back to its beginning (driver.Resetter), whatever
//     it holds, in a few milliseconds.
//   - A limit it cannot hold (cpus, cpu_shares) is refused.
//
// The modules are compiled once, into the user's cache directory, by a process
// of their own.
package wasm
