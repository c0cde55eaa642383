package driver

import (
	"context"

	"github.com/sandbar-dev/sandbar"
)

// Holder is the ability of a Sandbox to start a program before there is the file
// that it opens. It serves interpreters that look at nothing else before: the
// program must not be able to tell.
type Holder interface {
	// Hold starts a program as Start does, and returns when it waits for path,
	// which does not exist yet. Its input must be nil. Unsupported where the
	// system has no such thing, and if the program ends or goes on instead. After
	// an error the sandbox is good for nothing but Destroy.
	Hold(ctx context.Context, c sandbar.Cmd, path string, std Stdio) (Held, error)
}

// Held is a program that waits for a file. What it is as a Process it is already:
// it can be signalled, killed and waited for.
type Held interface {
	Process
	// Release lets the program go on, once; its result's Duration begins here. If
	// code is not nil the file appears with it, with mode 0644. If it is nil the
	// caller has written the file. After an error the program has not gone on, and
	// the sandbox is good for nothing but Destroy. Gone: it has ended.
	Release(ctx context.Context, code *string) error
	// Abandon ends a program that was not released, and removes what was made for
	// it; not a file that the caller has written at its path.
	Abandon(ctx context.Context) error
}
