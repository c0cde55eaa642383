package native

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// If sandboxes have their own ids, pending signals of their programs, and other per-user resources,
// are not charged to the daemon's user.
func TestQuotasAreOwn(t *testing.T) {
	testenv.Need(t, testenv.Python)
	d := newDriver(t)
	if !d.IDs.Ranged {
		return // escape case 94 tests the limits without ranges of ids
	}
	for name, owner := range map[string]int{"cold": 0, "template": firstFork} {
		before := pendingSignals(t)
		box, _, err := d.create(t.Context(), sandbar.NewID(), degraded(d), owner)
		if err != nil {
			t.Fatal(err)
		}
		defer box.Destroy(context.Background())
		p, said := talker(t, box, `
import ctypes, os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN + 5])
libc, n = ctypes.CDLL(None), 0
while libc.sigqueue(os.getpid(), signal.SIGRTMIN + 5, None) == 0: n += 1
print(n, flush=True)
sys.stdin.read()`)
		if n, err := strconv.Atoi(strings.TrimSpace(said)); err != nil || n < 1000 {
			t.Errorf("%s: %q signals wait", name, said)
		}
		// Another process of this user may have some of its own.
		if now := pendingSignals(t); now-before > 500 {
			t.Errorf("%s: %d signals more are charged to this user", name, now-before)
		}
		_ = p.Signal(9)
		p.Wait()
	}
}

// firstFork is an id that owns a namespace as a template's does.
const firstFork = 0x6ffe0000

// talker starts a Python program and returns its first output.
func talker(t *testing.T, box driver.Sandbox, program string) (driver.Process, string) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	in, hold, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close(); in.Close(); hold.Close() })
	p, err := box.Start(t.Context(), sandbar.Cmd{Args: []string{"python3", "-c", program}}, driver.Stdio{Stdin: in, Stdout: w})
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	n, err := r.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return p, string(buf[:n])
}

// pendingSignals returns the number of pending signals of this user's processes.
func pendingSignals(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "\nSigQ:\t")
	n, _, _ := strings.Cut(rest, "/")
	count, err := strconv.Atoi(n)
	if err != nil {
		t.Fatal(err)
	}
	return count
}
