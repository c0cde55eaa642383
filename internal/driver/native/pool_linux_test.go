package native

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// printed keeps the standard output of a program.
type printed struct{ bytes.Buffer }

func (*printed) Started() {}
func (p *printed) Output(c sandbar.Chunk) error {
	if c.Stream == sandbar.Stdout {
		p.Write(c.Data)
	}
	return nil
}

// Under load, with some of the prestarted sandboxes killed, every job gets its own result, and no
// resource is left.
func TestReadySandboxes(t *testing.T) {
	testenv.Need(t, testenv.Node)
	d := newDriver(t)
	descriptors := openDescriptors(t)
	e, err := engine.New(engine.Config{Driver: d, AllowDegraded: true, Templates: []engine.Template{
		{Min: 2, Max: 4}, {Language: "javascript", Min: 1, Max: 3}}})
	if err != nil {
		t.Fatal(err)
	}
	awaitReady(t, e, 2, 1)
	if n := killFirst(t, d); n < 3 {
		t.Fatalf("%d sandboxes are alive, want 3 at least", n)
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 8 {
				want := fmt.Sprintf("%d-%d", i, j)
				job := sandbar.Job{Language: "shell", Code: "echo $ID; echo $ID > /tmp/mine; ls /tmp", Spec: sandbar.Spec{Env: map[string]string{"ID": want}}}
				if j%2 == 1 {
					job.Language, job.Code = "javascript", "console.log(process.env.ID); const fs = require('fs'); fs.writeFileSync('/tmp/mine', ''); console.log(fs.readdirSync('/tmp').join())"
				}
				var out printed
				r, err := e.Run(t.Context(), job, &out)
				if err != nil || r.Outcome != sandbar.Exited || r.ExitCode != 0 || out.String() != want+"\nmine\n" {
					t.Errorf("%s: %v %d, %v, output %q", want, r.Outcome, r.ExitCode, err, out.String())
				}
			}
		})
	}
	wg.Wait()
	var hits int64
	for _, s := range e.Templates() {
		hits += s.Hits
	}
	if hits == 0 {
		t.Errorf("no job found a ready sandbox: %+v", e.Templates())
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := e.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if left := d.Registry.IDs(); len(left) != 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
	// The engine has closed the driver, so there cannot be more than before.
	deadline := time.Now().Add(30 * time.Second)
	for n := openDescriptors(t); n > descriptors; n = openDescriptors(t) {
		if time.Now().After(deadline) {
			t.Fatalf("%d descriptors became %d", descriptors, n)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// awaitReady waits until each template has that many ready sandboxes.
func awaitReady(t *testing.T, e *engine.Engine, want ...int) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		enough := true
		for i, s := range e.Templates() {
			enough = enough && s.Ready >= want[i]
		}
		if enough {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not ready: %+v", e.Templates())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// killFirst kills the first processes of all sandboxes, agents or those of slots, and returns their
// number when they have ended.
func killFirst(t *testing.T, d *Driver) (killed int) {
	t.Helper()
	var pids []int
	for _, pid := range descendants(t, d) {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil || !nested(string(status)) {
			continue
		}
		p, err := os.FindProcess(pid)
		if err == nil && p.Kill() == nil {
			pids = append(pids, pid)
		}
	}
	// A killed process may run on until a processor is free for it.
	waitUntil(t, "they have ended", func() bool {
		return !slices.ContainsFunc(pids, func(pid int) bool { return unix.Kill(pid, 0) == nil })
	})
	return len(pids)
}

// nested reports whether a process is PID 1 of a child PID namespace.
func nested(status string) bool {
	for line := range strings.Lines(status) {
		if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			f := strings.Fields(ids)
			return len(f) > 1 && f[len(f)-1] == "1"
		}
	}
	return false
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
