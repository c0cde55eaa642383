// Package worker is the process that is a sandbox of the wasm driver: its files
// (package memfs), its shell (package shell), and what starts and ends its
// programs. It speaks the agent's protocol (package wire) over its standard
// input and output, so to the host it is an agent like any other; its kernel
// is itself.
//
// WebAssembly runs in further processes, the runners (package guest), since
// compiled code can only be ended together with its process, and the files of
// the sandbox must outlive that. Runners are used again for one program after
// the other, all of this one sandbox.
//
// What it promises:
//
//   - No program reaches the host: files are those of memfs, programs those of
//     this package and wasmsh, and there is no network.
//   - It ends with its input, and its runners with it.
//   - Limits are for the sandbox as a whole: memory (the linear memory of all
//     programs, the files, and what the shell holds), processes, bytes and
//     inodes of files; open files are limited for each program.
//   - A second Setup takes the sandbox back to where the first one brought it:
//     every program is ended, and the files are as they were.
package worker
