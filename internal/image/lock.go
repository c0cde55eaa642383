package image

import (
	"errors"
	"time"
)

// A lock is a flock(2) on an open file. It ends with the descriptor, at the latest with the
// process. Two locks within one process exclude each other like those of two processes.

// errBusy: another holder has the lock.
var errBusy = errors.New("in use")

// lockPoll is the interval of attempts to take a busy lock.
const lockPoll = 20 * time.Millisecond
