package iii

import (
	"testing"

	"github.com/sandbar-dev/sandbar/engine"
)

// largeDisk has room for 256 MiB in /tmp, of which a driver may have to give one
// directory no more than a quarter.
const largeDisk = 1200 << 20

// newReal starts a server whose sandboxes are real: native ones, or below
// TestOver those of another driver. At the end of the test it is shut down, and
// then nothing of it may be left.
func newReal(t testing.TB, o Options) *rig {
	t.Helper()
	return newRealWith(t, o, nil)
}

// newRealWith is newReal with other settings of the engine.
func newRealWith(t testing.TB, o Options, change func(*engine.Config)) *rig {
	t.Helper()
	return newRig(t, backends.New(t), o, change)
}
