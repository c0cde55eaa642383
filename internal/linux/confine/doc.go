// Package confine drops the rights of those processes of this program that parse untrusted data. On
// Linux it uses Landlock, seccomp and rlimits, all from package policy. The processes are those of
// the wasm and v86 drivers, the image unpacker (Unpacker) and the process with the TCP/IP stacks
// (Network).
//
// For WebAssembly it is a second layer: on every system, programs reach only the functions that
// they import. A mechanism that the kernel lacks is left out there. For images and packets it is
// the only layer between a parser bug and the host; SECURITY.md says which kernels have which
// mechanism.
//
// It needs a binary without cgo, as sandbar is. With cgo, as under the race detector, Go cannot
// make a system call on all threads, so Landlock and seccomp are left out.
package confine
