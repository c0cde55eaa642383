package e2e

import (
	"context"
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

	"github.com/sandbar-dev/sandbar/internal/test/testenv/dockerd"
)

// rounds returns how often the daemon is killed; KILLS sets it.
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

// outliving is a program that tries to survive its sandbox, and prints that it runs.
const outliving = "trap '' TERM HUP INT; (setsid sh -c 'trap \"\" TERM HUP INT; sleep 1000' &); echo up; sleep 1000"

// start starts n programs that try to survive their sandbox, and returns the connection of
// their executions.
func start(t *testing.T, d *daemon, n int) *websocket.Conn {
	t.Helper()
	c := d.dial(t)
	for i := range n {
		execute(t, c, fmt.Sprint("x", i), outliving)
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
	c, err := d.connect(within(t, 2*time.Minute))
	if err != nil {
		t.Fatalf("%v; the daemon said:\n%s", err, d.said())
	}
	t.Cleanup(func() { c.CloseNow() })
	return c
}

// connect opens a connection that speaks Fathom.
func (d *daemon) connect(ctx context.Context) (*websocket.Conn, error) {
	c, _, err := websocket.Dial(ctx, "ws://"+d.addr+"/ws", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}})
	return c, err
}

// execute requests the execution of a shell program.
func execute(t *testing.T, c *websocket.Conn, id, code string) {
	t.Helper()
	if err := send(within(t, time.Minute), c, id, "shell", code); err != nil {
		t.Fatal(err)
	}
}

// send sends an execute message.
func send(ctx context.Context, c *websocket.Conn, id, language, code string) error {
	m, err := json.Marshal(object{"v": 1, "type": "execute", "id": id, "ts": "2026-01-01T00:00:00.000Z", "language": language, "code": code,
		"limits": object{"timeout_ms": 300_000, "memory_mb": 64}})
	if err != nil {
		return err
	}
	return c.Write(ctx, websocket.MessageText, m)
}

// frame has the fields of a server message that these tests read.
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

// mounts returns the mounts of this process, without those of test Docker Engines, which tests
// of other packages add and remove.
func mounts(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.Collect(strings.Lines(string(b)))
	return strings.Join(slices.DeleteFunc(lines, func(l string) bool { return strings.Contains(l, "/"+dockerd.Prefix) }), "")
}

// remains returns the namespaces with processes of the daemons' sandboxes, and the daemons' new
// mounts. It ignores those of concurrent tests.
func remains(t *testing.T, before string, daemons ...*daemon) (left []string) {
	t.Helper()
	for _, kind := range []string{"net", "mnt", "pid", "user", "ipc", "uts", "cgroup"} {
		for _, f := range glob(t, "/proc/[0-9]*/ns/"+kind) {
			if to, err := os.Readlink(f); err == nil && belongs(filepath.Dir(filepath.Dir(f)), daemons) {
				left = append(left, f+" "+to)
			}
		}
	}
	for line := range strings.Lines(mounts(t)) {
		ours := slices.ContainsFunc(daemons, func(d *daemon) bool { return strings.Contains(line, d.dir) || strings.Contains(line, owner(d)) })
		if ours && !strings.Contains(before, line) {
			left = append(left, "mount "+line)
		}
	}
	return left
}

// belongs reports whether a process is an agent of one of the daemons, or a descendant of one.
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

// waitUntil polls until nothing is left. It does not test the duration.
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
