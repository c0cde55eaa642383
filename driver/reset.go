package driver

import "context"

// Resetter is the ability of a Sandbox to go back to its beginning.
type Resetter interface {
	// Reset ends every program of the sandbox and puts its files back to what
	// they were when it was made. Programs that are started meanwhile may be
	// ended too. On error the sandbox should be destroyed.
	Reset(ctx context.Context) error
}
