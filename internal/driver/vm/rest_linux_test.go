package vm

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// clockOf fails the test unless the machine's clock is right within 10 ms. The bounds are those of
// a program that prints the time.
func clockOf(t *testing.T, box driver.Sandbox) {
	t.Helper()
	before := time.Now()
	var seconds float64
	if _, err := fmt.Sscan(run(t, box, "python3", "-c", "import time; print(time.time())"), &seconds); err != nil {
		t.Fatal(err)
	}
	clock := time.Unix(0, int64(seconds*1e9))
	if clock.Before(before.Add(-10*time.Millisecond)) || clock.After(time.Now().Add(10*time.Millisecond)) {
		t.Errorf("the machine has the time %v, between %v and %v", clock, before, time.Now())
	}
}

// ticks returns the processor time of the monitor of a machine, in hundredths of a second.
func ticks(t *testing.T, pid int) (sum int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	for _, f := range strings.Fields(rest)[11:13] {
		var n int
		fmt.Sscan(f, &n)
		sum += n
	}
	return sum
}

// TestRest checks that a machine that rests uses no processor, that its programs stand still, and
// that they go on with the right time.
func TestRest(t *testing.T) {
	d := newDriver(t, testOptions(t))
	box := newBox(t, d, "rest")
	rester, ok := driver.As[driver.Rester](box)
	if !ok {
		t.Fatal("a machine cannot rest")
	}
	ctx := context.Background()
	p, err := box.Start(ctx, sandbar.Cmd{Args: []string{"sh", "-c", "while :; do date +%s >>/tmp/alive; sleep 0.2; done"}}, driver.Stdio{})
	if err != nil {
		t.Fatal(err)
	}
	pid := monitorOf(t, d)
	for round := range 3 {
		if err := rester.Rest(ctx); err != nil {
			t.Fatal(err)
		}
		if err := rester.Rest(ctx); err != nil {
			t.Errorf("a second Rest: %v", err)
		}
		before := ticks(t, pid)
		time.Sleep(2 * time.Second)
		if used := ticks(t, pid) - before; used > 1 {
			t.Errorf("round %d: the machine used %d0 ms of a processor within 2 s", round, used)
		}
		for range 2 {
			if err := rester.Wake(ctx); err != nil {
				t.Fatal(err)
			}
		}
		clockOf(t, box)
	}
	lines := run(t, box, "sh", "-c", "wc -l </tmp/alive; sleep 1; wc -l </tmp/alive")
	var first, second int
	if fmt.Sscan(lines, &first, &second); first == 0 || second <= first {
		t.Errorf("the program has written %q lines", lines)
	}
	if err := p.KillTree(); err != nil {
		t.Error(err)
	}
}

// TestRestEnds checks that a machine can be destroyed and can die while it rests.
func TestRestEnds(t *testing.T) {
	d := newDriver(t, testOptions(t))
	ctx := context.Background()
	rest := func(id string) (driver.Sandbox, driver.Rester) {
		box := newBox(t, d, id)
		r, _ := driver.As[driver.Rester](box)
		if err := r.Rest(ctx); err != nil {
			t.Fatal(err)
		}
		return box, r
	}
	box, _ := rest("destroyed")
	if err := box.Destroy(ctx); err != nil {
		t.Error(err)
	}
	box, r := rest("killed")
	process, err := os.FindProcess(monitorOf(t, d))
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	dead, _ := driver.As[driver.Watcher](box)
	select {
	case <-dead.Dead():
	case <-time.After(patience):
		t.Fatal("the end of the machine is not reported")
	}
	if err := r.Wake(ctx); sandbar.CodeOf(err) != sandbar.Unavailable {
		t.Errorf("waking a machine that has ended: %v", err)
	}
}
