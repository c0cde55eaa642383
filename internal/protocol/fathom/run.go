package fathom

import (
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/fathom/wire"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/text/strictjson"
)

// job returns the engine's job.
func (e *execute) job(client sandbar.Client, o *Options) sandbar.Job {
	job := sandbar.Job{
		Language:   e.language,
		Code:       e.code,
		Unrecorded: !o.Record,
		Spec: sandbar.Spec{
			Env:    e.env,
			Client: client,
			Limits: sandbar.Limits{
				Timeout:   time.Duration(e.limits.timeoutMS) * time.Millisecond,
				Memory:    e.limits.memoryMB * mebibyte,
				CPUShares: e.limits.cpuShares,
				Output:    e.limits.outputBytes,
			},
		},
	}
	if o.Network {
		job.Spec.Network = sandbar.NetworkOutbound
	}
	if e.stdin != "" {
		job.Stdin = strings.NewReader(e.stdin)
	}
	return job
}

// run is one execution of a connection, and the engine's Sink of it.
//
// While the connection exists it blocks if the client does not read, which blocks the program
// (back-pressure). After the end of the connection it discards output.
type run struct {
	conn *conn
	id   execID
	exec *engine.Execution
	// traced ends the execution's request in its trace.
	traced func()

	started        bool
	stdout, stderr text
	full           bool        // the next character would exceed the output limit
	cancelled      atomic.Bool // by the client
}

var _ engine.Sink = (*run)(nil)

func (r *run) run() {
	res, err := r.exec.Run(r)
	if res.Outcome != sandbar.OutputLimit {
		r.flush(sandbar.Stdout)
		r.flush(sandbar.Stderr)
	}
	r.end(r.ending(res, err), res)
	r.traced()
}

// Started implements engine.Sink.
func (r *run) Started() {
	r.started = true
	r.send(func(b []byte) []byte { return appendStatus(b, r.id, time.Now(), wire.Running) })
}

// Output implements engine.Sink. It fails only at the output limit. Executions of a lost connection
// are cancelled after the grace period instead.
func (r *run) Output(c sandbar.Chunk) error {
	for p := c.Data; len(p) > 0; {
		n := min(len(p), maxData)
		r.output(c.Stream, p[:n])
		if r.full {
			return engine.ErrFull
		}
		p = p[n:]
	}
	return nil
}

// room returns how many bytes of UTF-8 the client may still receive.
func (r *run) room() int64 {
	limit := r.exec.Limits().Output
	if limit < 0 {
		return math.MaxInt64
	}
	return limit - r.stdout.bytes - r.stderr.bytes
}

// appendOutput appends p, escaped for a JSON string, as far as whole characters fit within the
// output limit. A byte that is not UTF-8 becomes a character of three bytes.
func (r *run) appendOutput(b []byte, t *text, p []byte) []byte {
	if r.room() >= int64(len(strictjson.Replacement)*(t.n+len(p))) {
		return t.append(b, p)
	}
	for i := range p {
		before, length := *t, len(b)
		if b = t.append(b, p[i:i+1]); r.room() < 0 {
			*t, r.full = before, true
			return b[:length]
		}
	}
	return b
}

func (r *run) text(s sandbar.Stream) *text {
	if s == sandbar.Stderr {
		return &r.stderr
	}
	return &r.stdout
}

// output sends one message of output, or none if all of p is an incomplete character.
func (r *run) output(s sandbar.Stream, p []byte) {
	f := r.conn.out.take(r.conn.out.runs)
	if f == nil {
		return
	}
	f.b = appendOutputHead(f.b[:0], r.id, time.Now(), s)
	head := len(f.b)
	f.b = r.appendOutput(f.b, r.text(s), p)
	if len(f.b) == head {
		r.conn.out.release(f)
		return
	}
	f.b = appendOutputEnd(f.b)
	r.conn.out.send(f)
}

// flush sends the incomplete character at the end of a stream, unless the output limit has cut it.
func (r *run) flush(s sandbar.Stream) {
	if r.text(s).n == 0 || r.room() < int64(len(strictjson.Replacement)) {
		return
	}
	r.send(func(b []byte) []byte {
		return appendOutputEnd(r.text(s).flush(appendOutputHead(b, r.id, time.Now(), s)))
	})
}

// send sends one message, unless the connection is gone.
func (r *run) send(message func([]byte) []byte) {
	if f := r.conn.out.take(r.conn.out.runs); f != nil {
		f.b = message(f.b[:0])
		r.conn.out.send(f)
	}
}

// end sends the terminal messages of an execution.
func (r *run) end(e ending, res sandbar.Result) {
	fail := func(b []byte) []byte { return appendError(b, r.id, time.Now(), e.code, e.message) }
	if e.status != "" {
		r.send(func(b []byte) []byte { return appendStatus(b, r.id, time.Now(), e.status) })
	}
	if !e.result {
		r.conn.finish(r, fail)
		return
	}
	if e.code != "" {
		r.send(fail)
	}
	r.conn.finish(r, func(b []byte) []byte {
		return appendResult(b, r.id, time.Now(), result{
			exitCode: res.ExitCode, exited: e.exitCode,
			duration: res.Duration, peak: res.PeakMemory, cpu: res.CPUTime,
		})
	})
}

// ending returns the report of an execution's end.
func (r *run) ending(res sandbar.Result, err error) ending {
	if err == nil {
		return r.endingOfResult(res)
	}
	e := sandbar.AsError(err)
	if e.Code == sandbar.Canceled && r.cancelled.Load() {
		return endingOf(sandbar.Result{Outcome: sandbar.Cancelled})
	}
	return ending{code: codeOf(e), message: e.Error()}
}

func (r *run) endingOfResult(res sandbar.Result) ending {
	switch {
	case res.Outcome == sandbar.Cancelled && !r.cancelled.Load():
		// The server, not the client, has cancelled the execution, because it is shutting down. The
		// client may retry elsewhere.
		return ending{code: codeOf(errShutdown), message: errShutdown.Error()}
	case !r.started && res.Outcome == sandbar.TimedOut:
		return ending{code: wire.CodeTimeout, message: "limits.timeout_ms passed before the program had started"}
	case !r.started && res.Outcome == sandbar.OutOfMemory:
		return ending{code: wire.CodeOOM, message: "limits.memory_mb was used up before the program had started"}
	}
	return endingOf(res)
}

// refuse converts the platform's error to a refusal.
func refuse(id string, err error) *refusal {
	e := sandbar.AsError(err)
	return &refusal{id: id, code: codeOf(e), message: e.Error()}
}
