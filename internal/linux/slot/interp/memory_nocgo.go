//go:build !cgo

package interp

// keepsMemory says that a process keeps its parent's memory.
const keepsMemory = false
