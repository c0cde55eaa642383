package function

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/settings"
)

// Bounds of a program's output, in bytes.
const (
	maxOutput  = 1 << 20  // per stream, in a result
	maxPartial = 64 << 10 // per stream, in an error
)

// defaultTimeout is the default time limit of a program.
const defaultTimeout = 300 * time.Second

// execRequest has the parameters of sandbox::exec and of the last step of sandbox::run.
type execRequest struct {
	raw     request
	id      string
	command command
	stdin   *string // base64
	env     environment
	timeout *uint64 // ms
	workdir *string
}

// execResult is the result of a program.
type execResult struct {
	Stdout      string `json:"stdout"`
	Stderr      string `json:"stderr"`
	ExitCode    int    `json:"exit_code"`
	TimedOut    bool   `json:"timed_out"` // always false: a timeout is S200
	DurationMS  int64  `json:"duration_ms"`
	Success     bool   `json:"success"`
	Truncated   bool   `json:"truncated,omitempty"`
	OutOfMemory bool   `json:"out_of_memory,omitempty"`
}

// exec implements sandbox::exec.
func (f *Functions) exec(ctx context.Context, data json.RawMessage) (any, error) {
	var req execRequest
	var err error
	req.raw, err = decode(data, "ExecRequest", must(text("sandbox_id", &req.id)), text("cmd", &req.command.cmd),
		stringList("args", &req.command.args), stringList("argv", &req.command.argv), optional(text, "stdin", &req.stdin),
		variables("env", &req.env), optional(number[uint64], "timeout_ms", &req.timeout), optional(text, "workdir", &req.workdir))
	if err != nil {
		return nil, err
	}
	r, err := f.execute(ctx, req)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// execute runs a program to its end. It checks in the order that clients expect.
func (f *Functions) execute(ctx context.Context, req execRequest) (*execResult, error) {
	id, err := parseID(req.id)
	if err != nil {
		return nil, err
	}
	argv, err := req.command.resolve(req.raw)
	if err != nil {
		return nil, err
	}
	if err := req.env.check(); err != nil {
		return nil, err
	}
	b, err := f.enter(id)
	if err != nil {
		return nil, err
	}
	defer f.leave(b)
	var stdin io.Reader
	if req.stdin != nil && *req.stdin != "" {
		raw, err := parseBase64("stdin", *req.stdin)
		if err != nil {
			return nil, err
		}
		stdin = bytes.NewReader(raw)
	}
	cmd := sandbar.Cmd{Args: argv, Env: req.env.pairs, Dir: value(req.workdir, "/")}
	if cmd.Dir == "" {
		cmd.Dir = "/"
	}
	timeout := f.timeout(req.timeout)
	var out capture
	began := time.Now()
	r, err := f.supervise(ctx, b, cmd, stdin, timeout, &out)
	if err != nil {
		return f.notStarted(err, argv[0], b, began)
	}
	return f.ended(r, req, timeout, &out, began)
}

// timeout returns a program's time limit.
func (f *Functions) timeout(asked *uint64) time.Duration {
	t := defaultTimeout
	if asked != nil {
		t = settings.Milliseconds(*asked)
	}
	t = min(t, f.opt.Config.MaxExecTimeout())
	if _, _, most := f.opt.Engine.Limits(); most.Timeout > 0 {
		t = min(t, most.Timeout)
	}
	return t
}

// supervise starts a program and waits for its end. With a limit of 0 it does not start the
// program, which counts as timed out.
func (f *Functions) supervise(ctx context.Context, b *sandboxEntry, cmd sandbar.Cmd, stdin io.Reader, timeout time.Duration, out *capture) (sandbar.Result, error) {
	if timeout <= 0 {
		return sandbar.Result{Outcome: sandbar.TimedOut}, nil
	}
	_, least, _ := f.opt.Engine.Limits()
	p, err := b.sandbox.StartSink(ctx, cmd, stdin, sandbar.Limits{Timeout: max(timeout, least.Timeout)}, out)
	if err != nil {
		return sandbar.Result{}, err
	}
	defer context.AfterFunc(ctx, p.Kill)() // no caller waits any more
	return p.Wait(context.Background())
}

// notStarted returns the result of a program that could not be started through its own fault.
func (f *Functions) notStarted(err error, program string, b *sandboxEntry, began time.Time) (*execResult, error) {
	if _, gone := f.opt.Engine.Get(context.Background(), b.sandbox.ID()); gone != nil {
		return nil, fail(S004, "%s", b.id) // the sandbox ended meanwhile
	}
	exit, text, failed := startFailure(err, b.id)
	if failed != nil {
		return nil, failed
	}
	return &execResult{ExitCode: exit, Stderr: fmt.Sprintf("exec: %s: %s\n", program, text),
		DurationMS: time.Since(began).Milliseconds()}, nil
}

// ended maps every outcome of a program.
func (f *Functions) ended(r sandbar.Result, req execRequest, timeout time.Duration, out *capture, began time.Time) (*execResult, error) {
	res := &execResult{Stdout: lossy(out.stdout), Stderr: lossy(out.stderr), Truncated: out.truncated,
		DurationMS: time.Since(began).Milliseconds()}
	switch r.Outcome {
	case sandbar.Exited:
		res.ExitCode = r.ExitCode
	case sandbar.Signaled:
		res.ExitCode = 128 + r.Signal
		if why := sandbar.ForeignCall(r.Signal); why != "" {
			res.Stderr += "exec: " + why + "\n"
		}
	case sandbar.OutOfMemory:
		res.ExitCode, res.OutOfMemory = 128+9, true
	// the request has no output limit; if the engine has one, it has killed the program
	case sandbar.OutputLimit:
		res.ExitCode, res.Truncated = 128+9, true
	case sandbar.TimedOut:
		return nil, f.timedOut(req, timeout, out)
	case sandbar.Cancelled:
		return nil, fail(S300, "shell run: session terminated: the sandbox was stopped, or the caller has left")
	default: // Lost, and outcomes that this table lacks
		return nil, fail(S300, "shell run: session terminated: the sandbox died; how the program ended is not known")
	}
	res.Success = res.ExitCode == 0
	return res, nil
}

// timedOut returns S200 with the program's output so far. Its fix is twice the time, if that is
// allowed.
func (f *Functions) timedOut(req execRequest, timeout time.Duration, out *capture) error {
	e := fail(S200, "exec timed out after %d ms", timeout.Milliseconds())
	if len(out.stdout)+len(out.stderr) > 0 {
		e.partial = out.partial()
	}
	longest := f.timeout(new(uint64(settings.Milliseconds(1 << 63).Milliseconds())))
	if more := min(max(2*timeout, time.Second), longest); more > timeout && req.raw != nil {
		return e.with(req.raw.fixed(map[string]any{"timeout_ms": more.Milliseconds()}), "the same call with more time")
	}
	return e
}

// capture is a sink that keeps the first bytes of the output.
type capture struct {
	stdout, stderr []byte
	truncated      bool
}

// Started implements engine.Sink.
func (*capture) Started() {}

// Output implements engine.Sink. It discards bytes beyond the cap, and the program continues.
func (c *capture) Output(chunk sandbar.Chunk) error {
	to := &c.stdout
	if chunk.Stream == sandbar.Stderr {
		to = &c.stderr
	}
	room := maxOutput - len(*to)
	if len(chunk.Data) > room {
		c.truncated = true
	}
	*to = append(*to, chunk.Data[:min(room, len(chunk.Data))]...)
	return nil
}

// partial returns the last bytes of what was kept.
func (c *capture) partial() *partial {
	last := func(b []byte) string { return lossy(b[max(0, len(b)-maxPartial):]) }
	return &partial{Stdout: last(c.stdout), Stderr: last(c.stderr),
		Truncated: c.truncated || max(len(c.stdout), len(c.stderr)) > maxPartial}
}
