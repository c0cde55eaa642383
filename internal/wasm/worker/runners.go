package worker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar/internal/wasm/call"
	"github.com/sandbar-dev/sandbar/internal/wasm/guest"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/program"
)

// maxIdle bounds the idle runners. One that has loaded Python takes about 80 MB.
const maxIdle = 2

// runners is a pool of runners.
type runners struct {
	cache, modules string

	mu     sync.Mutex
	idle   []*runner
	all    map[*runner]bool // started and not ended
	closed bool
}

// runner is one process.
type runner struct {
	cmd    *exec.Cmd
	conn   *call.Conn
	in     io.Closer // the runner exits when it is closed
	loaded map[call.Language]bool
	errors *stderrHead
	once   sync.Once // guards end
}

func newRunners(cache, modules string) *runners {
	return &runners{cache: cache, modules: modules, all: map[*runner]bool{}}
}

// errClosed is the error of starting a runner while the worker exits.
var errClosed = errors.New("the sandbox is being destroyed")

// close ends all runners and waits for them.
func (r *runners) close() {
	r.mu.Lock()
	r.closed = true
	all := slices.Collect(maps.Keys(r.all))
	r.mu.Unlock()
	for _, n := range all {
		_ = n.cmd.Process.Kill()
	}
	for _, n := range all {
		r.end(n)
	}
}

// stderrHead stores the first 1024 bytes of a runner's standard error. No program's output is in
// it.
type stderrHead struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (t *stderrHead) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if room := 1024 - t.b.Len(); room > 0 {
		t.b.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}

func (t *stderrHead) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// start starts a runner.
func (r *runners) start() (*runner, error) {
	exe, err := executable()
	if err != nil {
		return nil, err
	}
	n := &runner{loaded: map[call.Language]bool{}, errors: &stderrHead{}}
	n.cmd = &exec.Cmd{Path: exe, Args: guest.Args(guest.ModeRun, r.cache, r.modules), Env: Env(), Dir: rootDir(),
		Stderr: n.errors, SysProcAttr: childAttr(), WaitDelay: time.Second}
	in, err := n.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := n.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	n.in, n.conn = in, call.NewConn(out, in)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errClosed
	}
	if err := n.cmd.Start(); err != nil {
		return nil, err
	}
	r.all[n] = true
	return n, nil
}

// end kills a runner and waits for its exit.
func (r *runners) end(n *runner) {
	n.once.Do(func() {
		_ = n.cmd.Process.Kill() // it may have exited already
		_ = n.in.Close()
		_ = n.cmd.Wait()
		r.mu.Lock()
		delete(r.all, n)
		r.mu.Unlock()
	})
}

// take returns an idle runner, preferably one that has loaded the language, or else a new one.
func (r *runners) take(l call.Language) (*runner, error) {
	r.mu.Lock()
	best := len(r.idle) - 1
	for i, n := range r.idle {
		if n.loaded[l] {
			best = i
		}
	}
	if best < 0 {
		r.mu.Unlock()
		return r.start()
	}
	n := r.idle[best]
	r.idle = append(r.idle[:best], r.idle[best+1:]...)
	r.mu.Unlock()
	return n, nil
}

// give returns a runner to the pool.
func (r *runners) give(n *runner) {
	r.mu.Lock()
	var drop *runner
	r.idle = append(r.idle, n)
	if len(r.idle) > maxIdle {
		drop, r.idle = r.idle[0], r.idle[1:]
	}
	r.mu.Unlock()
	if drop != nil {
		r.end(drop)
	}
}

// warm starts a runner with a loaded language in the background.
func (r *runners) warm(l call.Language) {
	go func() {
		n, err := r.start()
		if err != nil {
			return // the next program reports the error
		}
		if n.load(l) != nil {
			r.end(n)
			return
		}
		r.give(n)
	}()
}

// load makes a runner load an interpreter in advance.
func (n *runner) load(l call.Language) error {
	n.loaded[l] = true
	return n.conn.Send(call.KindLoad, &call.Load{Language: l})
}

// errRunner is the error of a runner that exited while a program ran.
var errRunner = errors.New("the process that ran the program has exited")

// interpreter returns the program that runs a language.
func (w *worker) interpreter(l call.Language) program.Program {
	return func(ctx context.Context, c *program.Context) int {
		code, err := w.interpret(ctx, l, c)
		if err != nil && ctx.Err() == nil {
			_, _ = io.WriteString(c.Stderr, path.Base(c.Args[0])+": "+err.Error()+"\n") // standard error may be closed
		}
		return code
	}
}

// failed is the exit code of a program that ended by a fault of its own or of the interpreter: 128
// + SIGABRT.
const failed = 134

// interpret runs one program in a runner.
func (w *worker) interpret(ctx context.Context, l call.Language, c *program.Context) (int, error) {
	n, err := w.runners.take(l)
	if err != nil {
		return failed, err
	}
	n.loaded[l] = true
	k := newKernel(ctx, w, c)
	result := make(chan outcome, 1)
	go func() {
		done, err := k.converse(n, l)
		k.close()
		result <- outcome{done, err}
	}()
	var out outcome
	select {
	case out = <-result:
	case <-ctx.Done():
		w.runners.end(n)
		w.runners.warm(l)
		// The goroutine of converse ends later: all that it waits for ends with the program.
		return failed, ctx.Err()
	}
	if out.err != nil {
		w.runners.end(n)
		if text := n.errors.String(); text != "" {
			out.err = errors.New(text)
		}
		return failed, out.err
	}
	if a, ok := ctx.Value(accountKey{}).(*account); ok {
		a.add(time.Duration(out.done.CPU)*time.Microsecond, out.done.Denied)
	}
	if out.done.Fault {
		w.runners.end(n) // the interpreter's state may be corrupt
		return failed, errors.New(out.done.Text)
	}
	w.runners.give(n)
	return int(out.done.Code), nil
}

type outcome struct {
	done call.Done
	err  error
}

// converse makes a runner run the program and answers its system calls.
func (k *kernel) converse(n *runner, l call.Language) (done call.Done, err error) {
	limit := k.w.plan.memory
	if limit <= 0 || limit > maxLinear {
		limit = maxLinear
	}
	run := call.Run{Language: l, Args: k.c.Args, Env: k.c.Env, Dir: k.c.Dir, Memory: limit}
	if l == call.Python {
		run.Args, run.Env = pythonRun(run.Args, run.Env, run.Dir)
	}
	if err := n.conn.Send(call.KindRun, &run); err != nil {
		return done, errRunner
	}
	for {
		kind, payload, err := n.conn.Receive()
		if err != nil {
			return done, errRunner
		}
		switch kind {
		case call.KindDone:
			return done, done.Decode(payload)
		case call.KindRequest:
			var q call.Request
			if err := q.Decode(payload); err != nil {
				return done, err
			}
			a := k.do(&q)
			if err := n.conn.Send(call.KindAnswer, &a); err != nil {
				return done, errRunner
			}
		default:
			return done, call.Expect(kind, call.KindDone)
		}
	}
}

// maxLinear is the size of the largest 32-bit linear memory, in bytes.
const maxLinear = 4 << 30

// rootDir returns a working directory that always exists.
func rootDir() string {
	if d := os.Getenv("SYSTEMROOT"); d != "" {
		return d
	}
	return "/"
}
