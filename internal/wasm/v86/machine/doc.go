// Package machine emulates a PC with v86, an emulator in JavaScript and Rust, in pure Go. goja runs
// its JavaScript (the devices); wazero runs its WebAssembly (the processor) and the modules that it
// generates from the guest's code. There is no Node, browser or network.
//
// This package replaces or adds:
//
//   - The main loop. A Machine runs only in Step, for about a millisecond of the guest's time.
//     Between two steps it and its clock stand still.
//   - The two serial ports, Console (COM1) and Channel (COM2), in Go. Both use hardware flow
//     control (RTS) and have bounded queues.
//   - Compilation of the generated modules in a goroutine of its own.
//   - The address of an initial file system: the end of memory, instead of 64 MiB, which small
//     machines do not have.
//
// # Invariants
//
//   - The guest can access its own memory, the copy of its disk in memory, and the two ports;
//     nothing of the host.
//   - After an error of Step the machine cannot be used any more.
//   - A Machine is used by one goroutine.
package machine
