package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/sandbar-dev/sandbar/internal/testenv"
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
	before := snapshot(t)
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
	waitUntil(t, "namespaces and mounts are as before", func() []string { return difference(before, snapshot(t)) })
}

// start has n programs under way that try to outlive everything.
func start(t *testing.T, d *daemon, n int) {
	t.Helper()
	ctx := within(t, 2*time.Minute)
	c, _, err := websocket.Dial(ctx, "ws://"+d.addr+"/ws", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}})
	if err != nil {
		t.Fatalf("%v; the daemon said:\n%s", err, d.said())
	}
	t.Cleanup(func() { c.CloseNow() })
	for i := range n {
		m, err := json.Marshal(map[string]any{"v": 1, "type": "execute", "id": fmt.Sprint("x", i),
			"ts": "2026-01-01T00:00:00.000Z", "language": "shell",
			"code":   "trap '' TERM HUP INT; (setsid sh -c 'trap \"\" TERM HUP INT; sleep 1000' &); echo up; sleep 1000",
			"limits": map[string]any{"timeout_ms": 300_000, "memory_mb": 64}})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Write(ctx, websocket.MessageText, m); err != nil {
			t.Fatal(err)
		}
	}
	for up := 0; up < n; {
		_, b, err := c.Read(ctx)
		if err != nil {
			t.Fatalf("%v; the daemon said:\n%s", err, d.said())
		}
		var f struct{ Type, Data, Message string }
		if err := json.Unmarshal(b, &f); err != nil || f.Type == "error" || f.Type == "result" {
			t.Fatalf("%s (%v)", b, err)
		}
		if f.Type == "stdout" {
			up++
		}
	}
}

// snapshot is the namespaces that any process is in and the mounts of this one.
func snapshot(t *testing.T) map[string]bool {
	t.Helper()
	seen := map[string]bool{}
	for _, kind := range []string{"net", "mnt", "pid", "user", "ipc", "uts", "cgroup"} {
		for _, f := range glob(t, "/proc/[0-9]*/ns/"+kind) {
			if to, err := os.Readlink(f); err == nil && ours(filepath.Dir(filepath.Dir(f))) {
				seen[to] = true
			}
		}
	}
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	seen["mounts "+string(b)] = true
	return seen
}

// ours tells whether a process is of this program's making: an agent or what
// runs under one. Others come and go on a busy machine.
func ours(proc string) bool {
	for p := proc; ; {
		b, err := os.ReadFile(p + "/cmdline")
		if err != nil || len(b) == 0 {
			return false
		}
		if len(b) > 14 && string(b[:14]) == "sandbar-agent\x00" {
			return true
		}
		parent := statusField(p+"/status", "PPid:")
		if parent == "" || parent == "0" || parent == "1" {
			return false
		}
		p = "/proc/" + parent
	}
}

func difference(before, after map[string]bool) (d []string) {
	for k := range after {
		if !before[k] {
			d = append(d, k)
		}
	}
	slices.Sort(d)
	return d
}

// waitUntil polls until nothing is left; how long it takes is not tested.
func waitUntil(t *testing.T, what string, left func() []string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		l := left()
		if len(l) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not so: %s: %v", what, l)
		}
	}
}
