package driver

import (
	"context"
	"time"
)

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

// Meter is the ability of a Sandbox to measure what it uses.
type Meter interface {
	// Measure returns the use at this moment. Unsupported: nothing counts it on this host. Gone: the
	// sandbox has ended.
	Measure(ctx context.Context) (Use, error)
}

// Use is what a sandbox uses at one moment.
type Use struct {
	// CPUTime is the processor time of all its programs since its creation.
	CPUTime time.Duration
	// Memory is what counts towards Limits.Memory, in bytes. Cache is the part of it in the page
	// cache, and Files the part of Cache in files that programs have written and in shared memory.
	Memory, Cache, Files int64
	// Processes is the number of processes and threads, those of the sandbox's own agent included; 0
	// if nothing counts them.
	Processes int64
}
