package iii

import (
	"os"
	"testing"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/native"
	"github.com/sandbar-dev/sandbar/internal/testenv"
)

// newNative starts a server whose sandboxes are real. At the end of the test it
// is shut down, and then nothing of it may be left.
func newNative(t testing.TB, o Options) *rig {
	t.Helper()
	return newNativeWith(t, o, nil)
}

// newNativeWith is newNative with other settings of the engine.
func newNativeWith(t testing.TB, o Options, change func(*engine.Config)) *rig {
	t.Helper()
	testenv.Need(t, testenv.Linux, testenv.UserNS)
	agent, err := os.ReadFile(testenv.Build(t, "cmd/sandbar-agent"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := native.New(driver.Host{}, agent)
	if err != nil {
		t.Fatal(err)
	}
	return newRig(t, d, o, change)
}
