package client

import (
	"errors"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

func TestRun(t *testing.T) {
	c, id := newDaemon(t, "127.0.0.1:0")
	r, err := c.Run(within(t), id, Command{Cmd: "echo $A; pwd; echo failed >&2; exit 3", Env: map[string]string{"A": "b"}, Dir: "/tmp"})
	if err != nil || r.Stdout != "b\n/tmp\n" || r.Stderr != "failed\n" || r.ExitCode != 3 {
		t.Errorf("%+v, %v", r, err)
	}
	failed, ok := errors.AsType[*CommandError](r.Check())
	if !ok || failed.Result != r || failed.Error() != "the command ended with 3: failed" {
		t.Errorf("Check: %v", r.Check())
	}
	long := CommandResult{ExitCode: 1, Stderr: strings.Repeat("x", 10_000)}
	if n := len(long.Check().Error()); n > 600 {
		t.Errorf("a message of %d bytes", n)
	}
	if err := (CommandResult{}).Check(); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]bool{"/tmp": true, "/etc/passwd": true, "/none": false} {
		if got, err := c.Exists(within(t), id, name); err != nil || got != want {
			t.Errorf("%s exists: %v, %v", name, got, err)
		}
	}
	if _, err := c.Snapshot(within(t), id); sandbar.CodeOf(err) != sandbar.Unsupported {
		t.Errorf("Snapshot: %v", err)
	}
}

// RunCode keeps one context for a language, and makes another one if that is gone.
func TestRunCode(t *testing.T) {
	testenv.Need(t, testenv.Python)
	c, id := newDaemon(t, "127.0.0.1:0")
	run := func(code string) Execution {
		t.Helper()
		x, err := c.RunCode(within(t), id, "python", wire.Cell{Code: code})
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	done := make(chan string)
	for range 4 { // at the same time, in one context
		go func() {
			x, err := c.RunCode(within(t), id, "python", wire.Cell{Code: "x = globals().get('x', 0) + 1; x"})
			if err != nil {
				t.Error(err)
			}
			done <- x.Text()
		}()
	}
	seen := map[string]bool{}
	for range 4 {
		seen[<-done] = true
	}
	if len(seen) != 4 || !seen["4"] {
		t.Errorf("four cells count %v", seen)
	}
	if x := run("print('said'); 1/0"); x.Error == nil || x.Error.Name != "ZeroDivisionError" || !strings.HasPrefix(x.Output(), "said\nTraceback") {
		t.Errorf("%+v", x)
	}
	all, err := c.Contexts(within(t), id)
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	if err := c.RemoveContext(within(t), id, all[0].ID); err != nil {
		t.Fatal(err)
	}
	if x := run("'x' in globals()"); x.Text() != "False" {
		t.Errorf("a new context has the variables of the old one: %+v", x)
	}
	if err := c.Stop(within(t), id); err != nil {
		t.Fatal(err)
	}
	if _, err := c.RunCode(within(t), id, "python", wire.Cell{Code: "1"}); sandbar.CodeOf(err) != sandbar.NotFound {
		t.Errorf("in a sandbox that has ended: %v", err)
	}
}
