package escapesuite

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sandbar-dev/sandbar/driver"
)

// raceCases are case 77: many concurrent clients.
func raceCases() []Case {
	return []Case{
		daemonCase("77-races", "more creations than slots, concurrent removals of one sandbox", races),
	}
}

// endCases are cases 81 to 88: unexpected ends of the daemon, of clients and of the host's
// resources.
func endCases() []Case {
	return []Case{
		daemonCase("81-killed", "SIGKILL to the daemon during executions", killed),
		daemonCase("82-ended", "SIGTERM to the daemon during an execution", ended),
		daemonCase("83-directory", "a state directory that cannot be written", directory),
		daemonCase("84-memory", "the kernel's choice of a victim when the host runs out of memory", memory),
		daemonCase("85-clock", "the host's clock jumps", func(context.Context, *Suite, *daemon) error {
			return notRun("the suite does not set the host's clock; the project's tests set a simulated one")
		}),
		daemonCase("86-vanished", "clients that disconnect during executions", vanished),
		daemonCase("87-backend", "the engine behind the driver is restarted", func(_ context.Context, s *Suite, _ *daemon) error {
			if s.Driver.Caps().Boundary == driver.BoundaryNamespaces || s.Driver.Caps().Boundary == driver.BoundaryNone {
				return notRun("this driver uses no container engine")
			}
			return notRun("the suite does not restart the host's container engine; the project's tests restart their own")
		}),
		daemonCase("88-strangers", "random numbers and names that sandboxes of one template share", compareRandom),
	}
}

func races(ctx context.Context, _ *Suite, d *daemon) error {
	var mu sync.Mutex
	var wait sync.WaitGroup
	made, others := []string{}, map[int]int{}
	var failed error
	for range 4 * maxSandboxes {
		wait.Go(func() {
			a, err := d.request(ctx, "POST", "/sandboxes", `{}`)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				failed = err
			case a.status == 201:
				var s struct{ ID string }
				_ = json.Unmarshal(a.body, &s)
				made = append(made, s.ID)
			default:
				others[a.status]++
			}
		})
	}
	wait.Wait()
	if failed != nil {
		return failed
	}
	live, err := d.live(ctx)
	if err != nil {
		return err
	}
	slices.Sort(made)
	slices.Sort(live)
	switch {
	case len(made) > maxSandboxes:
		return escaped("%d sandboxes exist at once; the limit is %d", len(made), maxSandboxes)
	case !slices.Equal(made, live):
		return escaped("%d sandboxes were created and %d are listed", len(made), len(live))
	}
	for status := range others {
		if status != 429 && status != 503 && status != 504 {
			return escaped("a creation without a free slot was answered with status %d", status)
		}
	}
	for _, id := range made {
		for range 3 {
			wait.Go(func() {
				if a, err := d.request(ctx, "DELETE", "/sandboxes/"+id, nil); err != nil || (a.status != 204 && a.status != 404 && a.status != 409 && a.status != 410) {
					mu.Lock()
					defer mu.Unlock()
					failed = fmt.Errorf("removing a sandbox concurrently: status %d, %v", a.status, err)
				}
			})
		}
	}
	wait.Wait()
	if failed != nil {
		return failed
	}
	if live, err = d.live(ctx); err == nil && len(live) > 0 {
		err = escaped("%d sandboxes are still listed after their removal", len(live))
	}
	return err
}

// newTag returns a new random argument by which a program can be found on the host.
func newTag() string { return "escape-" + strings.ToLower(rand.Text()) }

// taggedProcesses returns the processes of this host with the tag in their arguments.
func taggedProcesses(tag string) (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if b, err := os.ReadFile("/proc/" + e.Name() + "/cmdline"); err == nil && strings.Contains(string(b), tag) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// awaitGone waits until no process has the tag.
func awaitGone(ctx context.Context, tag string, within time.Duration) error {
	for end := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		pids := taggedProcesses(tag)
		if len(pids) == 0 {
			return nil
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return escaped("%d processes of sandboxes are left after %v", len(pids), within)
		}
	}
}

// sleeper returns a shell program that does not exit. The process that prints "up" has the tag in
// its arguments.
func sleeper(tag string) string {
	return "trap '' TERM HUP INT; sh -c 'echo up; while :; do sleep 1; done' " + tag
}

// start starts n sleepers, waits until they run, and returns their connection.
func (d *daemon) start(ctx context.Context, n int, tag string) (*conn, error) {
	c, err := d.dial(ctx)
	if err != nil {
		return nil, err
	}
	for i := range n {
		e := execution{ID: fmt.Sprint("e", i), Language: "shell", Code: sleeper(tag), Timeout: time.Minute}
		if err := c.send(ctx, e.text()); err != nil {
			return nil, err
		}
	}
	for up := 0; up < n; {
		m, err := c.next(ctx)
		if err != nil {
			return nil, err
		}
		switch m.Type {
		case "stdout":
			up++
		case "result", "error":
			return nil, fmt.Errorf("a program that does not exit has ended: %s %s", m.Type, m.Code)
		}
	}
	return c, nil
}

func killed(ctx context.Context, s *Suite, d *daemon) error {
	m := newTag()
	c, err := d.start(ctx, 10, m)
	if err != nil {
		return err
	}
	defer c.ws.CloseNow()
	d.kill()
	if s.Driver.Caps().PrivateProcesses { // otherwise the next daemon kills them
		if err := awaitGone(ctx, m, 10*time.Second); err != nil {
			return err
		}
	}
	next, err := s.launch(ctx, d.dir)
	if err != nil {
		return err
	}
	s.d = next
	if err := awaitGone(ctx, m, 10*time.Second); err != nil {
		return err
	}
	gc := exec.CommandContext(ctx, s.Binary, "gc", "--dry-run", "--json")
	gc.Env = append(s.Environ, "SANDBAR_RUNTIME_DIR="+filepath.Join(d.dir, "run"))
	text, err := gc.Output()
	var found struct {
		Leftovers []struct{ Kind, Name string }
	}
	if err != nil || json.Unmarshal(text, &found) != nil {
		return fmt.Errorf("looking for leftovers: %v: %.200s", err, text)
	}
	if len(found.Leftovers) > 0 {
		return escaped("%d leftovers, the first a %s: %s", len(found.Leftovers), found.Leftovers[0].Kind, found.Leftovers[0].Name)
	}
	return nil
}

func ended(ctx context.Context, _ *Suite, d *daemon) error {
	c, err := d.dial(ctx)
	if err != nil {
		return err
	}
	defer c.ws.CloseNow()
	e := execution{ID: "e", Language: "shell", Code: "echo one; sleep 1; echo two; exit 5", Timeout: time.Minute}
	if err := c.send(ctx, e.text()); err != nil {
		return err
	}
	o, signalled := &outcome{}, false
	for {
		m, err := c.next(ctx)
		if err != nil {
			return escaped("the connection ended before the execution's result: %v", err)
		}
		if m.Type == "stdout" && !signalled {
			signalled = true
			if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				return err
			}
		}
		if o.add(m) {
			break
		}
	}
	if o.output.String() != "one\ntwo\n" || o.exit == nil || *o.exit != 5 {
		return escaped("the daemon did not wait for the execution: output %q, status %s, error %s", o.output.String(), o.status, o.code)
	}
	c.ws.CloseNow()
	select {
	case <-d.gone:
	case <-ctx.Done():
		return escaped("the daemon does not end")
	}
	if code := d.cmd.ProcessState.ExitCode(); code != 0 {
		return escaped("the daemon ended with code %d: %s", code, d.log.tail())
	}
	return nil
}

func directory(ctx context.Context, s *Suite, d *daemon) error {
	file := filepath.Join(d.dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return err
	}
	for _, variable := range []string{"SANDBAR_RUNTIME_DIR", "SANDBAR_STATE_DIR"} {
		cmd := exec.CommandContext(ctx, s.Binary, "serve", "--listen", "127.0.0.1:0")
		cmd.Env = append(s.Environ, "SANDBAR_RUNTIME_DIR="+filepath.Join(d.dir, "other"), "SANDBAR_STATE_DIR="+filepath.Join(d.dir, "other"), variable+"="+filepath.Join(file, "below"))
		text, err := cmd.CombinedOutput()
		if err == nil {
			return escaped("the daemon started with a file as the parent of %s", variable)
		}
		if ctx.Err() != nil || !strings.Contains(string(text), file) {
			return escaped("the daemon's error does not name the file that is the parent of %s: %.300q", variable, text)
		}
	}
	return nil
}

func memory(ctx context.Context, s *Suite, d *daemon) error {
	if s.Driver.Caps().Boundary == driver.BoundaryNone {
		return notRun("the driver has no boundary, and its programs have the daemon's score")
	}
	m := newTag()
	c, err := d.start(ctx, 1, m)
	if err != nil {
		return err
	}
	defer c.ws.CloseNow()
	score := func(pid int) (int, error) {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/oom_score_adj")
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimSpace(string(text)))
	}
	pids := taggedProcesses(m)
	if len(pids) == 0 {
		return notRun("programs of this driver are not processes of this host")
	}
	own, err := score(d.cmd.Process.Pid)
	if err != nil {
		return notRun("the daemon's oom_score_adj: %v", err)
	}
	for _, pid := range pids {
		if theirs, err := score(pid); err == nil && theirs <= own {
			return escaped("the kernel would kill the daemon (oom_score_adj %d) before a program of a sandbox (%d)", own, theirs)
		}
	}
	return nil
}

func vanished(ctx context.Context, _ *Suite, d *daemon) error {
	m := newTag()
	c, err := d.start(ctx, 5, m)
	if err != nil {
		return err
	}
	c.ws.CloseNow()
	return awaitGone(ctx, m, 30*time.Second)
}

// randomValues is a program that prints random values. No two programs may print the same line.
const randomValues = `import os, random, uuid, tempfile, secrets
print("random", random.random())
print("uuid", uuid.uuid4(), uuid.uuid1().int >> 64)
print("urandom", os.urandom(8).hex())
print("secrets", secrets.token_hex(8))
print("name", tempfile.mktemp())`

func compareRandom(ctx context.Context, s *Suite, d *daemon) error {
	if !s.Languages["python"] {
		return notRun("there is no Python in the sandbox")
	}
	seen := map[string]int{}
	for i := range 20 {
		o, err := d.shell(ctx, execution{Language: "python", Code: randomValues})
		if err != nil {
			return err
		}
		if o.exit == nil || *o.exit != 0 {
			return fmt.Errorf("the program failed: %s %s: %.300s", o.status, o.code, o.output.String())
		}
		for line := range strings.Lines(o.output.String()) {
			if before, ok := seen[line]; ok {
				return escaped("executions %d and %d both printed %q", before, i, strings.TrimSpace(line))
			}
			seen[line] = i
		}
	}
	return nil
}
