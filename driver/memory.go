package driver

import "context"

// Meter is the ability of a Sandbox to tell the most memory that it has held.
type PeakMemory interface {
	// PeakMemory is the most memory, in bytes, that the sandbox has held at once so
	// far; 0 if that is not known. It may cost a few system calls.
	PeakMemory() int64
}

// Gauge is the ability of a Sandbox to tell the memory that it holds now.
type CurrentMemory interface {
	// MemoryUsed is what counts towards Limits.Memory at this moment, in bytes.
	CurrentMemory(ctx context.Context) (int64, error)
}
