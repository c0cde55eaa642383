package prespawn

import (
	"os"
	"sync/atomic"
	"testing"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

func TestAhead(t *testing.T) {
	testenv.Need(t, testenv.Linux) // only Linux lists a process's threads in a directory
	const many = 40
	var calls atomic.Int32
	Threads(many, func() { calls.Add(1) }, func() { calls.Add(1) })
	if n := calls.Load(); n != 2*many {
		t.Errorf("%d calls, want %d", n, 2*many)
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	if len(tasks) <= many {
		t.Errorf("there are %d threads", len(tasks))
	}
}
