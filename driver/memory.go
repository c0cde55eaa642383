package driver

import "context"

// PeakMemory is the ability of a Sandbox to report the most memory it has used.
type PeakMemory interface {
	// PeakMemory returns the highest memory use of the sandbox so far, in bytes; 0 if it is
	// unknown. It may cost a few system calls.
	PeakMemory() int64
}

// CurrentMemory is the ability of a Sandbox to report the memory it uses now.
type CurrentMemory interface {
	// CurrentMemory returns what counts towards Limits.Memory at this moment, in bytes.
	CurrentMemory(ctx context.Context) (int64, error)
}
