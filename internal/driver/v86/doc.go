// Package v86 is the driver whose sandbox is an emulated PC with its own memory, serial ports and
// disk. A process of this same binary emulates it (internal/wasm/v86/worker). The PC runs any
// 32-bit x86 Linux. The driver needs no privileges and no feature of the host's kernel.
//
// The boundary is an emulator's: the guest's instructions are interpreted, or compiled to
// WebAssembly that can access only the emulator's memory. No device of the PC is connected to the
// host. On Linux, seccomp and Landlock confine the emulator's process further.
//
// # Invariants beyond package driver
//
//   - An image boots once for each memory size. The snapshot of the booted machine is kept in the
//     user's cache directory, and every sandbox starts from it.
//   - A sandbox can be reset to that snapshot (driver.Resetter).
//   - A machine without requests, programs or connections in progress uses no processor time.
//   - If a machine does not boot within the boot timeout, that Create and all later ones fail.
//   - A limit that the driver cannot enforce is refused. It enforces memory only.
package v86
