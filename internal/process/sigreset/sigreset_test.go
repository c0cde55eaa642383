package sigreset

import (
	"bytes"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// A program that is started by a process with ignored signals has all default dispositions. The
// process still ignores them.
func TestSignals(t *testing.T) {
	testenv.Need(t, testenv.Linux)
	if os.Getenv("INHERIT_TEST") != "" {
		if got := Reset(); !slices.Equal(got, []os.Signal{os.Interrupt, syscall.SIGHUP}) {
			t.Fatalf("ignored at the start: %v", got)
		}
		self, err := os.FindProcess(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		self.Signal(syscall.SIGHUP) // ends the test if it is not ignored
		os.Stdout.Write(ignoredBy(t))
		return
	}
	// Ignored signals are inherited by children (signal(7)).
	signal.Ignore(os.Interrupt, syscall.SIGHUP)
	defer signal.Reset(os.Interrupt, syscall.SIGHUP)
	if mask := ignoredBy(t); !bytes.Contains(mask, []byte("3\n")) {
		t.Fatalf("signals were to be inherited as ignored, and are not: %s", mask)
	}
	again := exec.Command(os.Args[0], "-test.run=^TestSignals$")
	again.Env = append(os.Environ(), "INHERIT_TEST=1")
	out, err := again.CombinedOutput()
	// The two signals are the lowest digit of the mask. Signals that the test's parent ignores are
	// in other digits.
	mask, _, _ := strings.Cut(string(out), "\n")
	if err != nil || !strings.HasPrefix(mask, "SigIgn:\t") || !strings.HasSuffix(mask, "0") {
		t.Errorf("%v: %s", err, out)
	}
}

// ignoredBy returns the signals that a new program ignores, from /proc.
func ignoredBy(t *testing.T) []byte {
	t.Helper()
	out, err := exec.Command("grep", "SigIgn", "/proc/self/status").Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}
