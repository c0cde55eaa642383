package control

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// runningExec is a command from its client's side.
type runningExec struct {
	t    testing.TB
	conn *upgraded
	in   *wire.Reader
}

// outcome is the end of a command.
type outcome struct {
	stdout, stderr bytes.Buffer
	started        int
	credit         int
	result         *wire.Result
	failure        *wire.ErrorDetail
}

func startExec(r *rig, bearer, id string, x wire.Exec) *runningExec {
	r.t.Helper()
	b, err := json.Marshal(x)
	if err != nil {
		r.t.Fatal(err)
	}
	c := openExec(r, bearer, id)
	c.send(wire.Request, b)
	return c
}

func openExec(r *rig, bearer, id string) *runningExec {
	r.t.Helper()
	status, body, conn := r.upgradeTo(bearer, "/sandboxes/"+id+"/exec", wire.UpgradeExec)
	if conn == nil {
		r.t.Fatalf("%d %s", status, body)
	}
	return &runningExec{r.t, conn, wire.NewReader(conn.in)}
}

func (c *runningExec) send(k wire.Kind, data []byte) {
	c.t.Helper()
	if _, err := c.conn.Write(wire.Append(nil, k, data)); err != nil {
		c.t.Fatal(err)
	}
}

// wait reads to the end of the command.
func (c *runningExec) wait() *outcome {
	c.t.Helper()
	o := &outcome{}
	for o.result == nil && o.failure == nil {
		c.next(o)
	}
	if _, _, err := c.in.Next(); err == nil {
		c.t.Error("a frame follows the last")
	}
	c.conn.Close()
	return o
}

func (c *runningExec) next(o *outcome) {
	c.t.Helper()
	k, data, err := c.in.Next()
	if err != nil {
		c.t.Fatalf("the connection ended: %v", err)
	}
	switch k {
	case wire.Started:
		o.started++
	case wire.Stdout:
		o.stdout.Write(data)
	case wire.Stderr:
		o.stderr.Write(data)
	case wire.Credit:
		n, err := wire.CreditOf(data)
		if err != nil {
			c.t.Fatal(err)
		}
		o.credit += n
	case wire.Ended:
		if err := json.Unmarshal(data, &o.result); err != nil {
			c.t.Fatal(err)
		}
	case wire.Failed:
		var e wire.Error
		if err := json.Unmarshal(data, &e); err != nil {
			c.t.Fatal(err)
		}
		o.failure = &e.Error
	default:
		c.t.Fatalf("a frame of kind %q", byte(k))
	}
}

func TestExec(t *testing.T) {
	r := newRig(t, Options{}, nil)
	id := string(r.create(`{"secret":"` + secret + `"}`).ID)
	for _, tc := range []struct {
		name           string
		exec           wire.Exec
		stdout, stderr string
		code           int
		outcome        string // default exited
		failure        sandbar.Code
	}{
		{name: "both outputs", exec: wire.Exec{Args: []string{"write", "stdout", "a\x01\r\n", ";", "write", "stderr", "b"}}, stdout: "a\x01\r\n", stderr: "b"},
		{name: "exit code", exec: wire.Exec{Args: []string{"exit", "7"}}, code: 7},
		{name: "environment", exec: wire.Exec{Args: []string{"env", "A"}, Env: map[string]string{"A": "b"}}, stdout: "A=b\n"},
		{name: "directory", exec: wire.Exec{Args: []string{"dir"}, Dir: "/tmp"}, stdout: "/tmp\n"},
		{name: "no input", exec: wire.Exec{Args: []string{"count-stdin"}}, stdout: "0\n"},
		{name: "timeout", exec: wire.Exec{Args: []string{"block-until", "never"}, Timeout: 0.05}, outcome: "timeout"},
		{name: "output limit", exec: wire.Exec{Args: []string{"flood", "stdout", "1000"}, Output: 10}, stdout: "abcdefghij", outcome: "output_limit"},
		{name: "signal", exec: wire.Exec{Args: []string{"signal", "11"}}, outcome: "signaled"},
		{name: "no such program", exec: wire.Exec{Args: []string{"nothing"}}, failure: sandbar.NotFound},
		{name: "no program", failure: sandbar.Invalid},
		{name: "timeout out of range", exec: wire.Exec{Args: []string{"dir"}, Timeout: 1e6}, failure: sandbar.Invalid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := startExec(r, secret, id, tc.exec).wait()
			if o.stdout.String() != tc.stdout || o.stderr.String() != tc.stderr {
				t.Errorf("stdout %q, stderr %q", &o.stdout, &o.stderr)
			}
			if tc.failure != "" {
				if o.failure == nil || o.failure.Code != tc.failure {
					t.Errorf("%+v, want %s", o.failure, tc.failure)
				}
				return
			}
			if tc.outcome == "" {
				tc.outcome = "exited"
			}
			if o.result == nil || o.started != 1 || o.result.Outcome != tc.outcome || (o.result.ExitCode != nil) != (tc.outcome == "exited") ||
				o.result.ExitCode != nil && *o.result.ExitCode != tc.code {
				t.Errorf("started %d times, %+v, failure %+v", o.started, o.result, o.failure)
			}
		})
	}
}

// TestExecLargeOutput tests that a large output arrives byte for byte.
func TestExecLargeOutput(t *testing.T) {
	r := newRig(t, Options{}, nil)
	id := string(r.create("{}").ID)
	o := startExec(r, token, id, wire.Exec{Args: []string{"flood", "stdout", "10000000"}}).wait()
	if o.stdout.Len() != 10_000_000 {
		t.Fatalf("%d bytes", o.stdout.Len())
	}
	for i, b := range o.stdout.Bytes() {
		if b != faulty.Pattern(int64(i)) {
			t.Fatalf("byte %d is %q", i, b)
		}
	}
}

// TestExecInput tests that input is sent within the credit and returned complete.
func TestExecInput(t *testing.T) {
	r := newRig(t, Options{}, nil)
	id := string(r.create("{}").ID)
	c := startExec(r, token, id, wire.Exec{Args: []string{"echo-stdin"}, Stdin: true})
	input := bytes.Repeat([]byte("0123456789abcdef"), 5*wire.Window/16)
	o := &outcome{credit: wire.Window}
	for sent := 0; sent < len(input); {
		n := min(o.credit, len(input)-sent)
		if n == 0 {
			c.next(o)
			continue
		}
		c.send(wire.Stdin, input[sent:sent+n])
		sent, o.credit = sent+n, o.credit-n
	}
	c.send(wire.Stdin, nil)
	for o.result == nil && o.failure == nil {
		c.next(o)
	}
	if !bytes.Equal(o.stdout.Bytes(), input) || *o.result.ExitCode != 0 {
		t.Errorf("%d bytes of %d were returned; %+v", o.stdout.Len(), len(input), o.result)
	}
}

// TestExecEnds tests the ways to end a command: a cancel, a disconnect and a protocol violation.
// None of them waits for the program to read its input.
func TestExecEnds(t *testing.T) {
	full := bytes.Repeat([]byte("x"), wire.Window)
	for name, end := range map[string]func(*runningExec){
		"cancel":               func(c *runningExec) { c.send(wire.Cancel, nil) },
		"cancel behind input":  func(c *runningExec) { c.send(wire.Stdin, full); c.send(wire.Cancel, nil) },
		"too much input":       func(c *runningExec) { c.send(wire.Stdin, append(full, 'x')) },
		"input after its end":  func(c *runningExec) { c.send(wire.Stdin, nil); c.send(wire.Stdin, []byte("x")) },
		"a frame of no kind":   func(c *runningExec) { c.send('?', nil) },
		"the client hangs up":  func(c *runningExec) { c.conn.Close() },
		"a frame is too large": func(c *runningExec) { c.conn.Write([]byte("i\xff\xff\xff\xff")) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Options{}, nil)
			id := string(r.create("{}").ID)
			c := startExec(r, token, id, wire.Exec{Args: []string{"block-until", "never"}, Stdin: true})
			<-r.driver.Reached("never")
			end(c)
			if strings.HasPrefix(name, "cancel") {
				if o := c.wait(); o.result == nil || o.result.Outcome != "cancelled" {
					t.Errorf("%+v", o)
				}
			}
			await(t, "the program has ended", func() bool { return r.driver.Counts().Processes == 0 })
			if n := r.driver.Counts().Sandboxes; n != 1 {
				t.Errorf("%d sandboxes", n)
			}
		})
	}
}

func TestExecBadRequests(t *testing.T) {
	r := newRig(t, Options{}, nil)
	id := string(r.create("{}").ID)
	for name, tc := range map[string]struct {
		kind wire.Kind
		data string
		says string
	}{
		"not JSON":       {wire.Request, `{`, "not a JSON object"},
		"unknown field":  {wire.Request, `{"arsg":["x"]}`, "did you mean args?"},
		"args no list":   {wire.Request, `{"args":"ls"}`, "args must be a list of strings"},
		"another frame":  {wire.Stdin, `x`, "it must be a request"},
		"no program":     {wire.Request, `{}`, "no program"},
		"empty program":  {wire.Request, `{"args":[""]}`, "no program"},
		"bad enviroment": {wire.Request, `{"args":["dir"],"env":{"":"x"}}`, "not empty"},
	} {
		t.Run(name, func(t *testing.T) {
			c := openExec(r, token, id)
			c.send(tc.kind, []byte(tc.data))
			if o := c.wait(); o.failure == nil || o.failure.Code != sandbar.Invalid || !strings.Contains(o.failure.Message+o.failure.Fix, tc.says) {
				t.Errorf("%+v", o.failure)
			}
		})
	}
}

// TestMaxConnections tests that connections are bounded per sandbox, and are released when they
// end.
func TestMaxConnections(t *testing.T) {
	r := newRig(t, Options{MaxConnections: 2}, nil)
	id, other := string(r.create("{}").ID), string(r.create("{}").ID)
	a := startExec(r, token, id, wire.Exec{Args: []string{"block-until", "a"}})
	startExec(r, token, id, wire.Exec{Args: []string{"block-until", "never"}})
	<-r.driver.Reached("a")
	<-r.driver.Reached("never")
	if status, body, _ := r.upgradeTo(token, "/sandboxes/"+id+"/exec", wire.UpgradeExec); status != 503 || errorOf(t, body).Code != sandbar.Exhausted {
		t.Errorf("a third: %d %s", status, body)
	}
	if o := startExec(r, token, other, wire.Exec{Args: []string{"dir"}}).wait(); o.result == nil {
		t.Errorf("another sandbox: %+v", o.failure)
	}
	r.driver.Open("a")
	a.wait()
	await(t, "there is a place again", func() bool {
		status, _, conn := r.upgradeTo(token, "/sandboxes/"+id+"/exec", wire.UpgradeExec)
		if conn != nil {
			conn.Close()
		}
		return status == 101
	})
}

// TestExecWhenTheSandboxEnds tests that the end of the sandbox ends its commands.
func TestExecWhenTheSandboxEnds(t *testing.T) {
	r := newRig(t, Options{}, nil)
	id := string(r.create("{}").ID)
	stopped := startExec(r, token, id, wire.Exec{Args: []string{"block-until", "never"}})
	<-r.driver.Reached("never")
	if status, text := r.ask(token, "DELETE", "/sandboxes/"+id, ""); status != 204 {
		t.Errorf("%d %s", status, text)
	}
	if o := stopped.wait(); o.result == nil || o.result.Outcome != "cancelled" {
		t.Errorf("%+v %+v", o.result, o.failure)
	}
	id = string(r.create("{}").ID)
	lost := startExec(r, token, id, wire.Exec{Args: []string{"block-until", "later", ";", "lost"}})
	<-r.driver.Reached("later")
	r.driver.Open("later")
	if o := lost.wait(); o.result == nil || o.result.Outcome != "lost" {
		t.Errorf("%+v %+v", o.result, o.failure)
	}
}
