package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// executions is the number of running executions for which a round waits before it kills the
// daemon.
const executions = 20

// A daemon that is killed with SIGKILL at any moment leaves nothing: its sandboxes end by
// themselves, the next start removes empty cgroups, and waiting clients get an error. KILLS is the
// number of rounds ("make kills N=1000").
func TestKilledDaemon(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS)
	n := rounds(t)
	testenv.Build(t, "cmd/sandbar") // before adopt: from then on every new child belongs to a daemon
	others := adopt(t)
	dir := t.TempDir()
	before := mounts(t)
	began := time.Now()
	var unchecked []*daemon
	for i := range n {
		d := startDaemon(t, dir) // its start removes what is left of those before
		calls := load(t, d)
		if full := i%20 == 0; full || rand.IntN(5) > 0 {
			d.await(t)
			unchecked = check(t, i, others, unchecked, d)
			if full {
				start(t, d, executions)
			}
		}
		time.Sleep(rand.N(300 * time.Millisecond)) // a random moment, independent of the condition above
		d.kill()
		calls.answered(t, i)
		unchecked = append(unchecked, d)
		if (i+1)%50 == 0 {
			t.Logf("%d kills, %.2f s each so far", i+1, time.Since(began).Seconds()/float64(i+1))
		}
	}
	last := newDaemon(t, dir)
	check(t, n, others, unchecked, last)
	took := time.Since(began)
	if err := last.stop(); err != nil {
		t.Errorf("the daemon after all ended with %v; it said:\n%s", err, last.said())
	}
	waitUntil(t, "namespaces and mounts are as before", func() []string { return remains(t, before, append(unchecked, last)...) })
	waitUntil(t, "nothing is left", func() []string { return append(orphans(t, others), leftovers(t, last)...) })
	t.Logf("%d kills survived, %.2f s each; left: 0 processes, mounts, control groups, namespaces, directories, sockets and callers without an answer", n, took.Seconds()/float64(n))
}

// check waits until nothing is left of the daemons that were killed before the current one.
func check(t *testing.T, round int, others []int, killed []*daemon, now *daemon) []*daemon {
	t.Helper()
	waitUntil(t, fmt.Sprintf("round %d: nothing of the killed daemons is left", round), func() (left []string) {
		for _, k := range killed {
			left = append(left, leftovers(t, k)...)
		}
		return append(left, orphans(t, others, now)...)
	})
	return nil
}

// adopt makes this process a child subreaper until the test ends, so that orphaned processes become
// its children, and returns its present children, which are not orphans.
func adopt(t *testing.T) (others []int) {
	t.Helper()
	set := func(on uintptr) {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, on, 0, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	set(1)
	t.Cleanup(func() { set(0) })
	return children(t)
}

// children returns the children of this process.
func children(t *testing.T) (pids []int) {
	t.Helper()
	own := strconv.Itoa(os.Getpid())
	for _, f := range glob(t, "/proc/[0-9]*/status") {
		if statusField(f, "PPid:") == own {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// orphans reaps exited children of this process and returns the others, without daemons and known
// processes such as the engine of other tests.
func orphans(t *testing.T, others []int, but ...*daemon) (left []string) {
	t.Helper()
	for _, pid := range children(t) {
		f := fmt.Sprintf("/proc/%d/status", pid)
		if slices.Contains(others, pid) || slices.ContainsFunc(but, func(d *daemon) bool { return d.cmd.Process.Pid == pid }) {
			continue
		}
		if statusField(f, "State:") == "Z" {
			unix.Wait4(pid, nil, unix.WNOHANG, nil)
			continue
		}
		left = append(left, fmt.Sprintf("process %d, %s", pid, statusField(f, "Name:")))
	}
	return left
}

// calls are clients that keep a daemon busy until it is killed.
type calls struct {
	cancel context.CancelFunc
	wait   sync.WaitGroup
	mu     sync.Mutex
	wrong  []string
}

// load keeps a daemon busy, from before it listens until it is killed, with short and long programs
// and long-lived sandboxes.
func load(t *testing.T, d *daemon) *calls {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := &calls{cancel: cancel}
	for range 2 {
		c.wait.Go(func() { c.again(ctx, func() error { return c.execute(ctx, d) }) })
	}
	c.wait.Go(func() { c.again(ctx, func() error { return sandboxes(ctx, d) }) })
	return c
}

// again calls f until ctx ends. f fails before the daemon listens and after it was killed.
func (c *calls) again(ctx context.Context, f func() error) {
	for ctx.Err() == nil {
		if err := f(); err != nil {
			time.Sleep(2 * time.Millisecond)
		}
	}
}

// execute keeps five programs running until the connection breaks. Results of finished programs
// must be correct.
func (c *calls) execute(ctx context.Context, d *daemon) error {
	// Not ctx: the daemon's death must break the connection.
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	ws, err := d.connect(whole)
	if err != nil {
		return err
	}
	defer ws.CloseNow()
	programs := []string{"print(6*7)", "echo 42", outliving, "echo 42", "print(6*7)"}
	begin := func(n int) error {
		language := "shell"
		if strings.HasPrefix(programs[n%5], "print") {
			language = "python"
		}
		return send(whole, ws, strconv.Itoa(n), language, programs[n%5])
	}
	n := 0
	for ; n < 5; n++ {
		if err := begin(n); err != nil {
			return err
		}
	}
	output := map[string]string{}
	for {
		_, b, err := ws.Read(whole)
		if err != nil {
			if whole.Err() != nil {
				c.fault("a client of a daemon that is gone still waits")
			}
			return err
		}
		var m struct {
			Type, ID, Data string
			Exit           *int `json:"exit_code"`
		}
		if err := json.Unmarshal(b, &m); err != nil {
			return err
		}
		output[m.ID] += m.Data
		if m.Type != "result" && m.Type != "error" {
			continue
		}
		if m.Exit == nil || *m.Exit != 0 || output[m.ID] != "42\n" {
			c.fault(fmt.Sprintf("execution %s with the output %q ended with %s", m.ID, output[m.ID], b))
		}
		if err := begin(n); err != nil {
			return err
		}
		n++
	}
}

func (c *calls) fault(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrong = append(c.wrong, what)
}

// sandboxes makes a long-lived sandbox, runs a command there and stops it.
func sandboxes(ctx context.Context, d *daemon) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	var made struct{ ID string }
	if err := d.ask(ctx, "POST", "/sandboxes", object{}, &made); err != nil {
		return err
	}
	command := object{"cmd": "(setsid sleep 1000 >/dev/null 2>&1 &); sleep 0.05"}
	if err := d.ask(ctx, "POST", "/sandboxes/"+made.ID+"/executor/run", command, nil); err != nil {
		return err
	}
	return d.ask(ctx, "DELETE", "/sandboxes/"+made.ID, nil, nil)
}

// ask sends a request to the daemon's own API. An answer of nil is not read.
func (d *daemon) ask(ctx context.Context, method, path string, body, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+d.addr+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	switch {
	case err != nil:
		return err
	case resp.StatusCode > 299:
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, said)
	case answer == nil:
		return nil
	}
	return json.Unmarshal(said, answer)
}

// answered waits until all clients of a killed daemon have noticed.
func (c *calls) answered(t *testing.T, round int) {
	t.Helper()
	c.cancel()
	done := make(chan struct{})
	go func() { c.wait.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Minute + 10*time.Second):
		t.Fatalf("round %d: clients of a daemon that is gone still wait", round)
	}
	if len(c.wrong) > 0 {
		t.Fatalf("round %d: %v", round, c.wrong)
	}
}
