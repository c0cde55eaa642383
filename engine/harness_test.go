package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// rig is an engine with a faulty driver.
type rig struct {
	*engine.Engine
	t      testing.TB
	driver *faulty.Driver
	mu     sync.Mutex
	seen   []engine.Observation
}

// newRig makes an engine that is shut down at the test's end; then the driver must have no
// sandboxes. A bubble also fails if a goroutine remains.
func newRig(t testing.TB, d *faulty.Driver, change func(*engine.Config)) *rig {
	t.Helper()
	r := &rig{t: t, driver: d}
	cfg := engine.Config{Driver: d, Observe: r.observe}
	if change != nil {
		change(&cfg)
	}
	e, err := engine.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.Engine = e
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := e.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := d.Leaks(); err != nil {
			t.Error(err)
		}
		if s := e.Stats(); s.Active+s.Queued+s.Sandboxes+s.Removing != 0 {
			t.Errorf("after shutdown: %+v", s)
		}
	})
	return r
}

func (r *rig) observe(o engine.Observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, o)
}

func (r *rig) observed() []engine.Observation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]engine.Observation(nil), r.seen...)
}

// admit admits a job. An error fails the test.
func (r *rig) admit(j sandbar.Job) *engine.Execution {
	r.t.Helper()
	x, err := r.Admit(j)
	if err != nil {
		r.t.Fatalf("admit: %v", err)
	}
	return x
}

// create makes a sandbox. An error fails the test.
func (r *rig) create() *engine.Sandbox {
	r.t.Helper()
	s, err := r.Create(context.Background(), sandbar.Spec{})
	if err != nil {
		r.t.Fatalf("create: %v", err)
	}
	return s
}

// inBubble runs a test with a fake clock.
func inBubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// script is a job for the faulty driver's interpreter.
func script(code string) sandbar.Job { return sandbar.Job{Language: "python", Code: code} }

// command is a job without a language.
func command(args ...string) sandbar.Job { return sandbar.Job{Cmd: sandbar.Cmd{Args: args}} }

// answer is what a call of Run returned.
type answer struct {
	sandbar.Result
	err error
}

// run calls Run in its own goroutine.
func run(x *engine.Execution, s engine.Sink) <-chan answer {
	c := make(chan answer, 1)
	go func() {
		r, err := x.Run(s)
		c <- answer{r, err}
	}()
	return c
}

// recorder is a Sink that stores its calls and checks the promises to a Sink: one call at a time,
// Started first and once, offsets without gaps.
type recorder struct {
	started chan struct{} // closed by Started
	hold    chan struct{} // if set, every Output blocks until it is closed
	pause   time.Duration // duration of every Output
	failAt  int           // the number of the Output that fails, from 1
	boom    bool          // the failure is a panic

	inside atomic.Int32
	mu     sync.Mutex
	calls  int
	data   [3]bytes.Buffer
	faults []string
}

func newRecorder() *recorder { return &recorder{started: make(chan struct{})} }

var errSink = errors.New("the receiver has had enough")

func (r *recorder) fault(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

func (r *recorder) enter() func() {
	if r.inside.Add(1) != 1 {
		r.fault("two calls at a time")
	}
	return func() { r.inside.Add(-1) }
}

func (r *recorder) Started() {
	defer r.enter()()
	select {
	case <-r.started:
		r.fault("Started twice")
	default:
		close(r.started)
	}
}

func (r *recorder) Output(c sandbar.Chunk) error {
	defer r.enter()()
	select {
	case <-r.started:
	default:
		r.fault("Output before Started")
	}
	if r.hold != nil {
		<-r.hold
	}
	time.Sleep(r.pause)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	if r.calls == r.failAt {
		if r.boom {
			panic("the receiver has exploded")
		}
		return errSink
	}
	if r.failAt > 0 && r.calls > r.failAt {
		r.faults = append(r.faults, "called again after a failure")
	}
	if int64(r.data[c.Stream].Len()) != c.Offset {
		r.faults = append(r.faults, fmt.Sprintf("%v: offset %d after %d bytes", c.Stream, c.Offset, r.data[c.Stream].Len()))
	}
	if len(c.Data) == 0 || len(c.Data) > 32<<10 {
		r.faults = append(r.faults, fmt.Sprintf("a chunk of %d bytes", len(c.Data)))
	}
	r.data[c.Stream].Write(c.Data)
	return nil
}

func (r *recorder) text(s sandbar.Stream) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.data[s].String()
}

func (r *recorder) check(t testing.TB) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.faults {
		t.Errorf("sink: %s", f)
	}
}

// wantCode fails the test unless err has the code.
func wantCode(t testing.TB, err error, code sandbar.Code) {
	t.Helper()
	if sandbar.CodeOf(err) != code {
		t.Errorf("error %v has code %q, want %q", err, sandbar.CodeOf(err), code)
	}
}

// wantOutcome fails the test unless the answer is a result with the outcome.
func (a answer) want(t testing.TB, o sandbar.Outcome) {
	t.Helper()
	if a.err != nil || a.Outcome != o {
		t.Errorf("got %v, %v; want outcome %v", a.Outcome, a.err, o)
	}
}

// endless is an input that blocks for ever.
type endless struct{ ctx context.Context }

func (e endless) Read([]byte) (int, error) { <-e.ctx.Done(); return 0, io.EOF }

// handedOver returns when the sandbox of an ended program is being removed, or is removed.
func handedOver() {
	time.Sleep(time.Millisecond)
	synctest.Wait()
}
