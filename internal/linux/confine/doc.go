// Package confine takes rights from the processes of this program that read what
// strangers wrote: on Linux by Landlock, a system-call filter and rlimits, all of
// package policy. The processes are those of the wasm and v86 drivers, the one that
// unpacks images (Unpacker) and the one that carries sandboxes' packets (Network).
//
// For WebAssembly it is a second layer: programs reach only the functions that they are
// given, on every system. There, a mechanism that the kernel lacks is left out. For
// images and packets no other layer stands between a fault of a parser and the host;
// SECURITY.md says which kernels hold which part.
//
// It needs a program without cgo, as sandbar is. With cgo, as under the race detector,
// it cannot reach all threads and leaves Landlock and the filter out.
package confine
