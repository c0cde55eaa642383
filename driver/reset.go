package driver

import "context"

// Resetter is an optional interface of a Sandbox that can return to its initial state.
type Resetter interface {
	// Reset kills every program of the sandbox and restores its files to their state after
	// creation. It may also kill programs that are started during the call. After an error the
	// sandbox should be destroyed.
	Reset(ctx context.Context) error
}
