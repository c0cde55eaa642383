package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/sandbar-dev/sandbar/internal/testenv"
	"github.com/sandbar-dev/sandbar/internal/testenv/dockerd"
)

// rounds is how often the daemon is killed; KILLS sets it.
func rounds(t *testing.T) int {
	t.Helper()
	s := os.Getenv("KILLS")
	if s == "" {
		return 5
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("KILLS=%q is not a number of rounds", s)
	}
	return n
}

// executions is how many are under way when the daemon is killed.
const executions = 20

// A daemon that is killed with SIGKILL while it works leaves nothing: its
// sandboxes end by themselves, and what cannot end, empty groups, is removed
// at the next start.
func TestKilledDaemon(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS)
	dir := t.TempDir()
	before := mounts(t)
	var killed []*daemon
	for i := range rounds(t) {
		d := newDaemon(t, dir)
		start(t, d, executions)
		d.kill()
		killed = append(killed, d)
		next := newDaemon(t, dir) // its start removes what is left
		for _, k := range killed[max(0, len(killed)-2):] {
			waitUntil(t, fmt.Sprintf("round %d: nothing of the killed daemon is left", i), func() []string { return leftovers(t, k) })
		}
		if err := next.stop(); err != nil {
			t.Fatalf("round %d: the daemon after it ended with %v; it said:\n%s", i, err, next.said())
		}
	}
	for _, k := range killed {
		if left := leftovers(t, k); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
	waitUntil(t, "namespaces and mounts are as before", func() []string { return remains(t, before, killed...) })
}

// start has n programs under way that try to outlive everything, and returns
// the connection over which they were asked for.
func start(t *testing.T, d *daemon, n int) *websocket.Conn {
	t.Helper()
	c := d.dial(t)
	for i := range n {
		execute(t, c, fmt.Sprint("x", i), "trap '' TERM HUP INT; (setsid sh -c 'trap \"\" TERM HUP INT; sleep 1000' &); echo up; sleep 1000")
	}
	for up := 0; up < n; {
		f := receive(t, c)
		if f.Type == "error" || f.Type == "result" {
			t.Fatalf("%+v; the daemon said:\n%s", f, d.said())
		}
		if f.Type == "stdout" {
			up++
		}
	}
	return c
}

// dial connects to a daemon's Fathom endpoint, until the test's end.
func (d *daemon) dial(t *testing.T) *websocket.Conn {
	t.Helper()
	c, _, err := websocket.Dial(within(t, 2*time.Minute), "ws://"+d.addr+"/ws", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}})
	if err != nil {
		t.Fatalf("%v; the daemon said:\n%s", err, d.said())
	}
	t.Cleanup(func() { c.CloseNow() })
	return c
}

// execute asks for a program of the shell.
func execute(t *testing.T, c *websocket.Conn, id, code string) {
	t.Helper()
	m, err := json.Marshal(map[string]any{"v": 1, "type": "execute", "id": id,
		"ts": "2026-01-01T00:00:00.000Z", "language": "shell", "code": code,
		"limits": map[string]any{"timeout_ms": 300_000, "memory_mb": 64}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Write(within(t, time.Minute), websocket.MessageText, m); err != nil {
		t.Fatal(err)
	}
}

// frame is a message of the server, as far as these tests read it.
type frame struct {
	Type, ID, Data, Message, Code string
	Retryable                     *bool
	ExitCode                      *int `json:"exit_code"`
}

// receive waits for the next message.
func receive(t *testing.T, c *websocket.Conn) frame {
	t.Helper()
	_, b, err := c.Read(within(t, 2*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	var f frame
	if err := json.Unmarshal(b, &f); err != nil {
		t.Fatalf("%s (%v)", b, err)
	}
	return f
}

// mounts are the mounts of this process, but for those of the Docker Engines of
// tests, which come and go with the tests of other packages.
func mounts(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.Collect(strings.Lines(string(b)))
	return strings.Join(slices.DeleteFunc(lines, func(l string) bool { return strings.Contains(l, "/"+dockerd.Prefix) }), "")
}

// remains lists the namespaces in which anything is that belongs to a sandbox
// of one of the daemons, and mounts that were not there before. Sandboxes of
// others, of tests that run beside this one, come and go and are not counted.
func remains(t *testing.T, before string, daemons ...*daemon) (left []string) {
	t.Helper()
	for _, kind := range []string{"net", "mnt", "pid", "user", "ipc", "uts", "cgroup"} {
		for _, f := range glob(t, "/proc/[0-9]*/ns/"+kind) {
			if to, err := os.Readlink(f); err == nil && belongs(filepath.Dir(filepath.Dir(f)), daemons) {
				left = append(left, f+" "+to)
			}
		}
	}
	if now := mounts(t); now != before {
		left = append(left, "mounts, which were:\n"+before+"and are:\n"+now)
	}
	return left
}

// belongs tells whether a process is an agent of one of the daemons, or runs
// under one.
func belongs(proc string, daemons []*daemon) bool {
	for p := proc; ; {
		b, err := os.ReadFile(p + "/cmdline")
		if err != nil || len(b) == 0 {
			return false
		}
		if a := strings.Split(string(b), "\x00"); a[0] == "sandbar-agent" {
			return len(a) > 2 && slices.ContainsFunc(daemons, func(d *daemon) bool { return strings.HasPrefix(a[2], owner(d)) })
		}
		parent := statusField(p+"/status", "PPid:")
		if parent == "" || parent == "0" || parent == "1" {
			return false
		}
		p = "/proc/" + parent
	}
}

// waitUntil polls until nothing is left; how long it takes is not tested.
func waitUntil(t *testing.T, what string, left func() []string) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		l := left()
		if len(l) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not so: %s: %v", what, l)
		}
	}
}
