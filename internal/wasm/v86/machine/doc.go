// Package machine is a PC: the emulator v86, which others wrote in JavaScript
// and Rust, run by Go alone. Its JavaScript (the devices) is run by goja, its
// WebAssembly (the processor) by wazero, and so are the modules that it makes
// of the guest's code as it goes. There is no Node, no browser and no network.
//
// What this package adds, instead of the emulator's own:
//
//   - The loop. A Machine does nothing but in Step, for about a millisecond of
//     the guest's time; between two steps it stands still, and so does its clock.
//   - The two serial ports, Console (COM1) and Channel (COM2), as Go code:
//     every byte of a guest passes through them. Both hold the line (RTS) and
//     have a limit on what is queued.
//   - Compiling the guest's code, in the background.
//   - The place of an initial file system: at the end of memory, wherever that
//     is, and not always behind 64 MiB.
//
// What it promises: the guest reaches its own memory, its disk's copy in
// memory, and the two ports; nothing of the host. An error of Step is the end of
// the machine. A Machine is used by one goroutine.
package machine
