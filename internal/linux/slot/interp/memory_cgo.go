//go:build cgo

package interp

// keepsMemory says that a process keeps its parent's memory. The C library has registered a part of
// it with the kernel (rseq(2)), which kills a process without it.
const keepsMemory = true
