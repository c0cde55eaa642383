// Package worker is the process of a sandbox of the wasm driver. It has the sandbox's files
// (package memfs) and shell (package shell), and starts and ends its programs. It speaks the
// agent's protocol (package wire) over standard input and output, like an agent.
//
// Other processes, the runners (package guest), execute WebAssembly: compiled code can be
// interrupted only by ending its process, and the files of the sandbox must survive that. A runner
// executes one program after another, all of this sandbox.
//
// # Invariants
//
//   - Programs cannot access the host: their files are those of memfs, their programs those of this
//     package and of package shell, and there is no network.
//   - The worker ends its runners and exits at the end of its input.
//   - Limits apply to the whole sandbox: memory (the linear memory of all programs, the files, and
//     the shell's heap), processes, bytes and inodes of files. The limit of open files applies to
//     each program.
//   - A second Setup resets the sandbox: it ends every program and restores the files as they were
//     after the first Setup.
package worker
