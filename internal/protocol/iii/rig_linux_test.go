package iii

import (
	"testing"

	"github.com/sandbar-dev/sandbar/engine"
)

// largeDisk is a disk limit with room for 256 MiB in /tmp, on drivers that give one directory a
// quarter of the limit.
const largeDisk = 1200 << 20

// newReal starts a server with real sandboxes: native ones, or below TestOver those of another
// driver. At the end of the test it shuts the server down and checks for leaks.
func newReal(t testing.TB, o Options) *rig {
	t.Helper()
	return newRealWith(t, o, nil)
}

// newRealWith is newReal with other settings of the engine.
func newRealWith(t testing.TB, o Options, change func(*engine.Config)) *rig {
	t.Helper()
	return newRig(t, backends.New(t), o, change)
}
