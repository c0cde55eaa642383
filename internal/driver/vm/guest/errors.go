package guest

import (
	"errors"
	"syscall"

	"github.com/sandbar-dev/sandbar"
)

// writeError returns the error of a failed write to the cache directory.
func writeError(what string, err error) error {
	if _, ok := errors.AsType[*sandbar.Error](err); ok {
		return err
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return &sandbar.Error{Code: sandbar.Exhausted, Message: what + ": the disk of the cache directory is full", Err: err,
			Fix: "free space, or set the driver's option cache to a directory on another disk"}
	}
	return sandbar.Errorf(sandbar.Internal, "%s: %w", what, err)
}
