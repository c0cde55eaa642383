package driver

import (
	"context"

	"github.com/sandbar-dev/sandbar"
)

// Saver is an optional interface of a Sandbox whose state can be saved: its files, and if
// Caps.SavesPrograms its programs with their memory. The sandbox's Driver is then a Restorer.
type Saver interface {
	// Save writes the state into dir, an empty directory of the daemon's user that no other user can
	// enter, and returns the space that it takes on disk, in bytes. The sandbox stands still while it
	// does so: calls that are made meanwhile wait. After an error the sandbox goes on, and the caller
	// removes what is in dir.
	//
	// Unavailable, Timeout: the sandbox does not answer. Exhausted: the state exceeds o.MaxBytes, or
	// the disk is full. Gone: the sandbox has ended.
	Save(ctx context.Context, dir string, o SaveOptions) (size int64, err error)
}

// SaveOptions are the options of Save.
type SaveOptions struct {
	// MaxBytes bounds the space that the state may take on disk, in bytes. Default: no bound.
	MaxBytes int64
	// Commit, if set, is called with the state's size when dir is complete and its files are on disk.
	// If it returns nil, the sandbox stays still for ever, and can only be destroyed. Its error is
	// returned by Save, and the sandbox goes on.
	//
	// If Commit is nil, the sandbox goes on after Save, and only this Driver can restore the state.
	Commit func(size int64) error
}

// Restorer is an optional interface of a Driver that makes sandboxes from states of Saver.
type Restorer interface {
	// Restore makes a sandbox from a state in dir and the Spec of the saved sandbox. It has the saved
	// files and, if Caps.SavesPrograms, programs. Random numbers of its kernel, the clock, and for a
	// state without Commit the identity of the machine, are new before a program runs. The programs go
	// on; their standard input ends, and their output is read and dropped. Connections into the
	// sandbox are closed.
	//
	// dir is not changed, and not used after Restore has returned. It can be restored repeatedly. ctx
	// bounds the creation only. After an error no part of the sandbox remains.
	//
	// Gone: the state is damaged or incomplete. Unsupported: this daemon or host cannot use it; Fix
	// says what to change. Invalid: s is not the Spec of the saved sandbox.
	Restore(ctx context.Context, id sandbar.ID, s sandbar.Spec, dir string) (Sandbox, error)
}
