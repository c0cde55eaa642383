package driver

import "context"

// Resetter is the ability of a Sandbox to go back to its beginning.
type Resetter interface {
	// Reset ends every program of the sandbox and puts its files back to what
	// they were when it was made. Programs that are started meanwhile may be
	// ended too. On error the sandbox should be destroyed.
	Reset(ctx context.Context) error
}

// Gauge is the ability of a Sandbox to tell what it uses now.
type Gauge interface {
	// MemoryUsed is what counts towards Limits.Memory at this moment, in bytes.
	MemoryUsed(ctx context.Context) (int64, error)
}
