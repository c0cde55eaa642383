package v86

import (
	"testing"
	"time"
)

func TestSmoke(t *testing.T) {
	t0 := time.Now()
	box := newBox(t)
	t.Log("created", time.Since(t0))
	for _, c := range []string{"echo hi", "echo hi", "echo hi; echo e >&2; exit 3", "date; uname -m; cat /proc/uptime", "ls / | wc -l"} {
		t0 = time.Now()
		r := run(t, box, c)
		t.Logf("%v %q %q %d %v", time.Since(t0), r.stdout, r.stderr, r.ExitCode, r.Outcome)
	}
	t0 = time.Now()
	if err := box.(*sandbox).Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Log("reset", time.Since(t0))
	t0 = time.Now()
	r := run(t, box, "date; echo hi")
	t.Logf("%v %q %q %d %v", time.Since(t0), r.stdout, r.stderr, r.ExitCode, r.Outcome)
	u, err := box.(*sandbox).MemoryUsed(t.Context())
	t.Log(u, err)
}
