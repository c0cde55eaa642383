package image

import (
	"errors"
	"time"
)

// A lock is a file that is locked as long as it is open, and no longer than the
// process lives. Locks taken twice in one process exclude each other like those
// of two.

// errBusy: somebody else holds the lock.
var errBusy = errors.New("in use")

// lockPoll is how often a lock that is held is tried again.
const lockPoll = 20 * time.Millisecond
