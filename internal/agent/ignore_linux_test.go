//go:build amd64 || arm64

package agent

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// Signals that processes send have no effect, and a fault ends the process without a word of the Go
// runtime.
func TestIgnoreSent(t *testing.T) {
	const inner = "SANDBAR_TEST_IGNORE_SENT"
	if os.Getenv(inner) != "" {
		ignoreSent(ignoredSignals[:]...)
		for range 100 {
			for _, n := range ignoredSignals {
				_ = unix.Kill(os.Getpid(), n)
			}
		}
		os.Stdout.WriteString("alive\n")
		page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			t.Fatal(err)
		}
		page[0] = 1
		os.Stdout.WriteString("alive after a fault\n")
		return
	}
	c := exec.Command("/proc/self/exe", "-test.run=^TestIgnoreSent$")
	c.Env = append(os.Environ(), inner+"=1")
	out, err := c.CombinedOutput()
	if string(out) != "alive\n" || c.ProcessState.ExitCode() != 2 {
		t.Errorf("%q, %v", out, err)
	}
}
