// Package v86 is the driver whose sandbox is a PC: a machine with memory,
// serial ports and a disk of its own, emulated by a process of this same binary
// (package worker below internal/wasm/v86), in which any 32-bit Linux runs. It needs
// no rights and nothing of the operating system.
//
// The boundary is an emulator's: the guest's instructions are interpreted, or
// compiled to WebAssembly that reaches the emulator's memory alone, and its
// devices lead nowhere. Around it stands what the host has: on Linux a
// system-call filter and Landlock on the worker.
//
// What it promises beyond package driver:
//
//   - An image boots once, for each size of memory; the machine as it is then
//     is kept in the user's cache directory, and every sandbox begins as it.
//   - A sandbox can be taken back to that (driver.Resetter).
//   - A machine in which nothing is under way takes no processor time.
//   - A machine of which nothing is heard in time is an error, of every Create.
//   - A limit it cannot hold (all but memory) is refused.
package v86
