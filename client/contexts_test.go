package client

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// cells runs cells in a context of a daemon.
type cells struct {
	t       *testing.T
	c       *Client
	id, ctx string
}

func newCells(t *testing.T) cells {
	testenv.Need(t, testenv.Python)
	c, id := newDaemon(t, "127.0.0.1:0")
	made, err := c.CreateContext(within(t), id, wire.CreateContext{})
	if err != nil || made.Language != "python" || made.ID == "" || made.Dir != sandbar.DefaultDir {
		t.Fatalf("%+v, %v", made, err)
	}
	return cells{t, c, id, made.ID}
}

// run returns the events as text, and the end.
func (x cells) run(cell wire.Cell) (string, wire.End) {
	x.t.Helper()
	var b strings.Builder
	end, err := x.c.RunCell(within(x.t), x.id, x.ctx, cell, func(e wire.Event) error {
		switch e.Type {
		case wire.EventStdout, wire.EventStderr:
			b.WriteString(e.Text)
		case wire.EventResult:
			b.WriteString("[" + e.Text + "]")
		case wire.EventError:
			b.WriteString("!" + e.Name + ": " + e.Value)
		}
		return nil
	})
	if err != nil {
		x.t.Fatal(err)
	}
	return b.String(), end
}

func (x cells) want(code, want string) {
	x.t.Helper()
	if got, _ := x.run(wire.Cell{Code: code}); got != want {
		x.t.Errorf("%q: got %q, want %q", code, got, want)
	}
}

func TestContexts(t *testing.T) {
	x := newCells(t)
	x.want("x = 1", "")
	x.want("print('é' * 3); x + 1", "ééé\n[2]")
	x.want("import os; os.write(1, b'\\xff\\xe2\\x82'); os.write(1, b'\\xac');", "\ufffd€")
	x.want("undefined", "!NameError: name 'undefined' is not defined")
	if got, _ := x.run(wire.Cell{Code: "os.environ['A']", Env: map[string]string{"A": "b"}}); got != "['b']" {
		t.Errorf("%q", got)
	}
	all, err := x.c.Contexts(within(t), x.id)
	if err != nil || len(all) != 1 || all[0].ExecutionCount != 5 || all[0].Busy {
		t.Errorf("%+v, %v", all, err)
	}
	if again, err := x.c.RestartContext(within(t), x.id, x.ctx); err != nil || again.ExecutionCount != 0 {
		t.Errorf("%+v, %v", again, err)
	}
	x.want("x", "!NameError: name 'x' is not defined")
	if err := x.c.RemoveContext(within(t), x.id, x.ctx); err != nil {
		t.Error(err)
	}
	_, err = x.c.RunCell(within(t), x.id, x.ctx, wire.Cell{Code: "1"}, func(wire.Event) error { return nil })
	if sandbar.CodeOf(err) != sandbar.NotFound {
		t.Errorf("a removed context: %v", err)
	}
	for _, bad := range []wire.CreateContext{{Language: "cobol"}, {Dir: "/no/such/dir"}, {Env: map[string]string{"a=b": ""}}} {
		if _, err := x.c.CreateContext(within(t), x.id, bad); err == nil || sandbar.CodeOf(err) == sandbar.Internal {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// What ends a cell ends neither the context nor the sandbox.
func TestCellsThatEndBadly(t *testing.T) {
	x := newCells(t)
	x.want("x = 1", "")
	for _, c := range []struct {
		name, event, outcome string
		lost                 bool
		cell                 wire.Cell
	}{
		{"endless", "!KeyboardInterrupt: ", "timeout", false, wire.Cell{Code: "while True: pass", Timeout: 0.3}},
		{"sleeping", "!KeyboardInterrupt: ", "timeout", false, wire.Cell{Code: "import subprocess; subprocess.call(['sleep', '1000'])", Timeout: 0.3}},
		{"deaf", "did not react", "timeout", true, wire.Cell{Code: "import time\nwhile True:\n  try: time.sleep(1000)\n  except BaseException: pass", Timeout: 0.3}},
		{"flood", "!KeyboardInterrupt: ", "output_limit", false, wire.Cell{Code: "while True: print('x' * 1000)", Output: 100_000}},
		{"much HTML", "", "output_limit", false, wire.Cell{Code: "class A:\n  def _repr_html_(self): return '<' * 4_000_000\nA()", Output: 100_000}},
		{"too much HTML", "was left out", "exited", false, wire.Cell{Code: "class A:\n  def _repr_html_(self): return '<' * 100_000_000\nA()"}},
		{"exit", "exited with 3", "exited", true, wire.Cell{Code: "import os; os._exit(3)"}},
		{"kill", "signal 9", "signaled", true, wire.Cell{Code: "import os; os.kill(os.getpid(), 9)"}},
		{"forgery", "unknown kind", "lost", true, wire.Cell{Code: "import os, time\nfor fd in range(3, 300):\n  try: os.write(fd, b'zzzzz')\n  except OSError: pass\ntime.sleep(1000)"}},
		{"fork", "[1]", "exited", false, wire.Cell{Code: "import os\nif os.fork(): os.wait()\n1"}},
		{"patched", "[2]", "exited", false, wire.Cell{Code: "import sys, json, os\nsys.stdout = display = json.dumps = os.write = sys.stderr = None\n2"}},
		{"input", "!StdinNotImplementedError: ", "exited", false, wire.Cell{Code: "input('name? ')"}},
		{"exit()", "!SystemExit: ", "exited", false, wire.Cell{Code: "exit()"}},
		{"deep", "!RecursionError: ", "exited", false, wire.Cell{Code: "def f(): f()\nf()"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := x
			x.t = t
			got, end := x.run(c.cell)
			if !strings.Contains(got, c.event) || end.Outcome != c.outcome || end.Lost != c.lost {
				t.Errorf("%+v, events %q", end, got[max(0, len(got)-300):])
			}
			if _, end := x.run(wire.Cell{Code: "import sys; sys.stdout = sys.__stdout__; import importlib, json; importlib.reload(json); print('alive')"}); end.Failed {
				t.Errorf("the next cell failed: %+v", end)
			}
		})
	}
}

// A client that leaves, or an event that it cannot take, interrupts the cell.
func TestCellIsCancelled(t *testing.T) {
	x := newCells(t)
	x.want("import time; x = 1", "")
	full := errors.New("full")
	_, err := x.c.RunCell(within(t), x.id, x.ctx, wire.Cell{Code: "print('up', flush=True)\ntime.sleep(1000)"}, func(e wire.Event) error {
		if e.Type == wire.EventStdout {
			return full
		}
		return nil
	})
	if err != full {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(within(t))
	_, err = x.c.RunCell(ctx, x.id, x.ctx, wire.Cell{Code: "print('up', flush=True)\ntime.sleep(1000)"}, func(e wire.Event) error {
		if e.Type == wire.EventStdout {
			cancel()
		}
		return nil
	})
	if sandbar.CodeOf(err) != sandbar.Canceled {
		t.Error(err)
	}
	x.want("x", "[1]") // waits for the other one
	done := make(chan string, 1)
	go func() {
		got, _ := x.run(wire.Cell{Code: "print('up', flush=True)\ntime.sleep(1000)"})
		done <- got
	}()
	for {
		if err := x.c.InterruptContext(within(t), x.id, x.ctx); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-done:
			if !strings.Contains(got, "!KeyboardInterrupt") {
				t.Errorf("%q", got)
			}
			x.want("x", "[1]")
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}
