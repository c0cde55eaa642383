package engine_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// odd decorates a driver with faults that a script cannot have. The tests also check that the
// engine finds abilities through a decorator.
type odd struct {
	*faulty.Driver
	nothing  bool                // Create returns neither a sandbox nor an error
	signal   func(sig int) error // instead of Signal
	result   func(*sandbar.Result)
	close    func() error  // instead of Close
	afterEnd chan struct{} // when closed, more output is written
	holdUp   chan struct{} // Start returns when it is closed
}

func (o *odd) Close() error {
	if o.close != nil {
		return o.close()
	}
	return o.Driver.Close()
}

func (o *odd) Create(ctx context.Context, id sandbar.ID, s sandbar.Spec) (driver.Sandbox, error) {
	if o.nothing {
		return nil, nil
	}
	b, err := o.Driver.Create(ctx, id, s)
	return oddSandbox{b, o}, err
}

type oddSandbox struct {
	driver.Sandbox
	o *odd
}

func (b oddSandbox) Unwrap() any { return b.Sandbox }

func (b oddSandbox) Start(ctx context.Context, c sandbar.Cmd, std driver.Stdio) (driver.Process, error) {
	p, err := b.Sandbox.Start(ctx, c, std)
	if b.o.afterEnd != nil {
		go func() {
			<-b.o.afterEnd
			if _, err := std.Stdout.Write([]byte("too late")); err == nil {
				panic("a write after the end was taken")
			}
		}()
	}
	if b.o.holdUp != nil {
		<-b.o.holdUp
	}
	return oddProcess{p, b.o}, err
}

type oddProcess struct {
	driver.Process
	o *odd
}

func (p oddProcess) Signal(sig int) error {
	if p.o.signal != nil {
		return p.o.signal(sig)
	}
	return p.Process.Signal(sig)
}

func (p oddProcess) Wait() (sandbar.Result, error) {
	r, err := p.Process.Wait()
	if p.o.result != nil {
		p.o.result(&r)
	}
	return r, err
}

func newOdd(t *testing.T, o *odd) *rig {
	t.Helper()
	o.Driver = faulty.New()
	return newRig(t, o.Driver, func(c *engine.Config) { c.Driver = o })
}

func TestAbilitiesAreFoundThroughDecorators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newOdd(t, &odd{})
		got, err := r.Run(t.Context(), script("exit 2"), nil) // needs files
		answer{got, err}.want(t, sandbar.Exited)
		s := r.create()
		if _, err := s.FS().Stat(t.Context(), "/tmp"); err != nil {
			t.Error(err)
		}
		r.driver.Die(s.ID())
		<-s.Done()
	})
}

// If Signal fails, panics or never returns, the sandbox is destroyed in time.
func TestSignalsThatDoNotWork(t *testing.T) {
	stuck := make(chan struct{})
	for name, signal := range map[string]func(int) error{
		"fail":  func(int) error { return errors.New("no such process") },
		"panic": func(int) error { panic("signal") },
		"stuck": func(int) error { <-stuck; return nil },
	} {
		inBubble(t, name, func(t *testing.T) {
			if name == "stuck" {
				stuck = make(chan struct{})
				defer close(stuck)
			}
			r := newOdd(t, &odd{signal: signal})
			began := time.Now()
			got, err := r.Run(t.Context(), limited(time.Second, "sleep 1h"), nil)
			answer{got, err}.want(t, sandbar.TimedOut)
			if took := time.Since(began); took != time.Second+500*time.Millisecond+50*time.Millisecond {
				t.Errorf("took %v, want timeout, grace and 50 ms", took)
			}
		})
	}
}

func TestDriversThatTalkNonsense(t *testing.T) {
	inBubble(t, "no sandbox and no error", func(t *testing.T) {
		r := newOdd(t, &odd{nothing: true})
		_, err := r.Run(t.Context(), script(""), nil)
		wantCode(t, err, sandbar.Internal)
		_, err = r.Create(t.Context(), sandbar.Spec{})
		wantCode(t, err, sandbar.Internal)
	})
	for _, outcome := range []sandbar.Outcome{0, -1, sandbar.Lost + 1} {
		inBubble(t, "outcome", func(t *testing.T) {
			r := newOdd(t, &odd{result: func(x *sandbar.Result) { x.Outcome = outcome }})
			_, err := r.Run(t.Context(), script(""), nil)
			wantCode(t, err, sandbar.Internal)
		})
	}
	inBubble(t, "what it leaves out", func(t *testing.T) {
		r := newOdd(t, &odd{result: func(x *sandbar.Result) { *x = sandbar.Result{Outcome: sandbar.Exited} }})
		got, err := r.Run(t.Context(), script("write stdout abc\nsleep 2s"), nil)
		if err != nil || got.Duration != 2*time.Second || got.StdoutBytes != 3 || got.Enforced != faulty.FullCaps().Enforced {
			t.Errorf("%+v, %v", got, err)
		}
	})
	inBubble(t, "counts and codes that are not its own", func(t *testing.T) {
		r := newOdd(t, &odd{result: func(x *sandbar.Result) { x.StdoutBytes, x.DroppedBytes, x.ExitCode = 99, 99, 99 }})
		got, err := r.Run(t.Context(), script("signal 11"), nil)
		if err != nil || got.StdoutBytes != 0 || got.DroppedBytes != 0 || got.ExitCode != 0 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// A driver that writes after the result gets an error. The sink is not called.
func TestNothingIsDeliveredAfterTheResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &odd{afterEnd: make(chan struct{})}
		r := newOdd(t, o)
		sink := newRecorder()
		if _, err := r.Run(t.Context(), script("print stdout x"), sink); err != nil {
			t.Fatal(err)
		}
		close(o.afterEnd)
		synctest.Wait()
		if sink.text(sandbar.Stdout) != "x\n" {
			t.Errorf("output %q", sink.text(sandbar.Stdout))
		}
	})
}

func TestFailingCloseOfTheDriver(t *testing.T) {
	for name, f := range map[string]func() error{
		"error": func() error { return errors.New("cannot close") },
		"panic": func() error { panic("close") },
	} {
		inBubble(t, name, func(t *testing.T) {
			e := newEngine(t, faulty.New(), func(c *engine.Config) { c.Driver = &odd{Driver: faulty.New(), close: f} })
			if err := e.Shutdown(t.Context()); err == nil {
				t.Error("Shutdown did not tell")
			}
		})
	}
}

// A program that starts after its caller has stopped waiting is killed.
func TestLateStartInALivingSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &odd{holdUp: make(chan struct{})}
		r := newOdd(t, o)
		s := r.create()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		sink := newRecorder()
		_, err := s.Exec(ctx, cmd("print", "stdout", "x", ";", "sleep", "1h"), nil, none, sink)
		wantCode(t, err, sandbar.Canceled)
		if n := s.Info().Running; n != 0 {
			t.Errorf("%d run", n)
		}
		close(o.holdUp)
		synctest.Wait()
		if c := r.driver.Counts(); c.Started != 1 || c.Processes != 0 || c.Sandboxes != 1 {
			t.Errorf("%+v", c)
		}
		if sink.text(sandbar.Stdout) != "" {
			t.Error("its output was delivered")
		}
	})
}

func TestCallsWithAContextThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		d.OnDestroy = faulty.Slow(time.Second)
		r := newRig(t, d, nil)
		s := r.create()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.Exec(ctx, cmd("exit", "0"), nil, none, nil)
		wantCode(t, err, sandbar.Canceled)
		_, err = s.Start(ctx, cmd("exit", "0"), nil, none)
		wantCode(t, err, sandbar.Canceled)
		_, err = r.Create(ctx, sandbar.Spec{})
		wantCode(t, err, sandbar.Canceled)
		if n := d.Counts(); n.Started != 0 || n.Created != 1 {
			t.Errorf("%+v", n)
		}
		p := start(t, s, "exit", "0")
		<-p.Done()
		if _, err := p.Wait(ctx); err != nil { // it has ended, so Wait returns at once
			t.Error(err)
		}
		wantCode(t, r.Stop(ctx, s.ID()), sandbar.Canceled)
		if err := r.Stop(t.Context(), s.ID()); err != nil {
			t.Error(err)
		}
	})
}

// Copies through heldFile and heldWriter use the optional interfaces of the driver's file.
func TestCopyIntoASandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, faulty.New(), nil)
		fs := r.create().FS()
		w, err := fs.Create(t.Context(), "f", sandbar.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(w, io.LimitReader(strings.NewReader("0123456789"), 4)); n != 4 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if err := w.Commit(); err != nil {
			t.Error(err)
		}
		if i, err := fs.Stat(t.Context(), "f"); err != nil || i.Size != 4 {
			t.Errorf("%+v, %v", i, err)
		}
		_, err = fs.Open(t.Context(), "missing")
		wantCode(t, err, sandbar.NotFound)
		_, err = fs.Create(t.Context(), "f/g", sandbar.CreateOptions{})
		wantCode(t, err, sandbar.Conflict)
	})
}

func TestLimitMessageWithoutAMaximum(t *testing.T) {
	r := newRig(t, faulty.New(), func(c *engine.Config) { c.Max.Memory = sandbar.Unlimited })
	job := script("")
	job.Spec.Limits.Memory = 1
	_, err := r.Admit(job)
	wantCode(t, err, sandbar.Invalid)
	if err == nil || !strings.Contains(err.Error(), "16 MiB or more, or -1 for no limit") {
		t.Error(err)
	}
}
