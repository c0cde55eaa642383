package sandbox

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/server/importpolicy"
)

// Every outcome has its exit code, its flags and its line.
func TestOutcomes(t *testing.T) {
	limits := sandbar.Limits{Timeout: 2 * time.Second, Memory: 64 << 20, Output: 1 << 20}
	want := map[sandbar.Outcome]struct {
		code      int
		truncated bool
		timedOut  bool
		line      string
	}{
		sandbar.Exited:      {3, false, false, ""},
		sandbar.Signaled:    {139, false, false, "Killed by signal 11\n"},
		sandbar.OutOfMemory: {137, false, false, "Killed: out of memory (limit 64 MiB)\n"},
		sandbar.OutputLimit: {ExitNone, true, false, "Killed: too much output (limit 1 MiB)\n"},
		sandbar.TimedOut:    {ExitNone, false, true, "Execution timed out after 2s\n"},
		sandbar.Cancelled:   {ExitNone, false, false, "Execution was cancelled\n"},
		sandbar.Lost:        {ExitNone, false, false, "The sandbox died under the program; how the program ended is not known\n"},
	}
	for _, o := range sandbar.Outcomes {
		w, ok := want[o]
		if !ok {
			t.Errorf("%v is not in the table", o)
			continue
		}
		in := sandbar.Result{Outcome: o, Duration: time.Second}
		switch o {
		case sandbar.Exited:
			in.ExitCode = 3
		case sandbar.Signaled, sandbar.OutOfMemory:
			in.Signal = 11
		}
		out := newCapture(100, nil)
		out.Output(sandbar.Chunk{Stream: sandbar.Stderr, Data: []byte("mine")})
		r := newResult(in, out, Meta{}, limits)
		if r.ExitCode != w.code || r.Truncated != w.truncated || r.TimedOut != w.timedOut || r.Meta.Outcome != o.String() || r.Succeeded() {
			t.Errorf("%v: %+v", o, r)
		}
		stderr := "mine"
		if w.line != "" {
			stderr += "\n" + w.line
		}
		if r.Stderr != stderr {
			t.Errorf("%v: stderr %q, want %q", o, r.Stderr, stderr)
		}
	}
}

func TestCompact(t *testing.T) {
	exited := Meta{Outcome: "exited"}
	for _, c := range []struct {
		name string
		r    Result
		want string
	}{
		{"output", Result{Stdout: "a\nb\n", Meta: exited}, "a\nb\n"},
		{"stderr of a success is left out", Result{Stdout: "a", Stderr: "w", Meta: exited}, "a"},
		{"nothing", Result{Meta: exited}, "(no output)"},
		{"blank", Result{Stdout: " \n", Meta: exited}, "(no output)"},
		{"failure", Result{ExitCode: 2, Stderr: "bad\n", Meta: exited}, "Error (exit_code=2): bad"},
		{"failure with output", Result{ExitCode: 2, Stdout: "out\n", Stderr: "bad\n", Meta: exited}, "Error (exit_code=2): bad\nstdout:\nout"},
		{"failure without a word", Result{ExitCode: 1, Meta: exited}, "Error (exit_code=1):"},
		{"timeout", Result{ExitCode: ExitNone, Stderr: "Execution timed out after 1s\n", Meta: Meta{Outcome: "timeout"}}, "Error (exit_code=-1): Execution timed out after 1s"},
		{"exit code 0 and not a success", Result{Stdout: "x", Stderr: "no", Meta: Meta{Outcome: "blocked"}}, "Error (exit_code=0): no\nstdout:\nx"},
	} {
		if got := c.r.Compact(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// The names are those of the execution abstraction, and stable.
func TestJSON(t *testing.T) {
	r := Result{Stdout: "o", Stderr: "e", ExitCode: -1, Duration: 1500 * time.Millisecond, Truncated: true, TimedOut: true,
		Meta: Meta{Runtime: "native", Boundary: "namespaces", Language: "python", Outcome: "timeout", Truncated: true, TimedOut: true, BlockedImports: []string{"os"},
			Limits: limitsOf(sandbar.Limits{Timeout: 2500 * time.Millisecond, Memory: 64 << 20}, 10<<10)}}
	got, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"stdout":"o","stderr":"e","exit_code":-1,"duration":1.5,"truncated":true,"timed_out":true,"meta":{"runtime":"native","boundary":"namespaces",` +
		`"language":"python","outcome":"timeout","truncated":true,"timed_out":true,"blocked_imports":["os"],"resource_limits":{"timeout_sec":2.5,"max_output_kb":10,"memory_mb":64}}}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
	if l := limitsOf(sandbar.Limits{Timeout: -1, Memory: -1}, -1); l != (ResourceLimits{}) {
		t.Errorf("no limits are %+v", l)
	}
}

func TestBlocked(t *testing.T) {
	err := &sandbar.Error{Code: sandbar.Denied, Message: "not run", Err: &importpolicy.Blocked{Imports: []string{"os"}}}
	r, ok := newBlocked(err, Meta{Runtime: "x"})
	if !ok || r.ExitCode != ExitBlocked || r.Meta.Outcome != "blocked" || r.Meta.BlockedImports[0] != "os" || r.Succeeded() || !strings.Contains(r.Stderr, "blocked imports: os") {
		t.Errorf("%+v", r)
	}
	for _, err := range []error{nil, sandbar.Errorf(sandbar.Denied, "another")} {
		if _, ok := newBlocked(err, Meta{}); ok {
			t.Errorf("%v is about imports", err)
		}
	}
}

func TestOpenWithoutAgent(t *testing.T) {
	for _, a := range []Agent{{}, AgentProgram(nil)} {
		_, err := Open(Options{Agent: a})
		if e := sandbar.AsError(err); e == nil || e.Code != sandbar.Invalid || !strings.Contains(e.Fix, "sandbox.Self") {
			t.Errorf("%v", err)
		}
	}
}
