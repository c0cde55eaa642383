package driver

import "context"

// Rester is an optional interface of a Sandbox that uses the processor although nothing runs in it,
// such as a virtual machine. The engine lets ready sandboxes rest until they get a job. Both
// methods may be called repeatedly, but not concurrently with each other.
type Rester interface {
	// Rest stops the sandbox with everything in it, so that it uses no processor. Only Wake,
	// Destroy and Dead may be used then. After an error the sandbox may rest or not.
	Rest(ctx context.Context) error
	// Wake continues a sandbox that rests, and returns when its clock is right. It does nothing in
	// a sandbox that does not rest. After an error only Destroy is defined.
	Wake(ctx context.Context) error
}
