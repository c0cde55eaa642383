package engine_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// cmd is a command for the faulty driver.
func cmd(args ...string) sandbar.Cmd { return sandbar.Cmd{Args: args} }

var none sandbar.Limits

// exec calls Exec in its own goroutine.
func exec(s *engine.Sandbox, c sandbar.Cmd) <-chan answer {
	a := make(chan answer, 1)
	go func() {
		r, err := s.Exec(context.Background(), c, nil, none, nil)
		a <- answer{r, err}
	}()
	return a
}

func TestSandboxLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		r := newRig(t, d, nil)
		spec := sandbar.Spec{Env: map[string]string{"A": "1"}, Labels: map[string]string{"who": "me"}}
		s, err := r.Create(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		spec.Env["A"] = "changed"
		if got, err := r.Get(context.Background(), s.ID()); err != nil || got != s {
			t.Errorf("Get: %v, %v", got, err)
		}
		time.Sleep(time.Second)
		later := r.create()
		list := r.List(context.Background())
		if len(list) != 2 || list[0].ID != s.ID() || list[1].ID != later.ID() {
			t.Errorf("List: %+v", list)
		}
		info := s.Info()
		if info.Spec.Labels["who"] != "me" || info.Spec.Image != sandbar.ImageHost || info.Spec.Limits.Memory != 256<<20 ||
			info.Enforced.Memory != sandbar.EnforcedCgroup2 || info.Running != 0 {
			t.Errorf("Info: %+v", info)
		}
		info.Spec.Env["A"] = "changed too"
		sink := newRecorder()
		got, err := s.Exec(t.Context(), cmd("save", "f", "kept", ";", "env", "A", ";", "exit", "9"), nil, none, sink)
		answer{got, err}.want(t, sandbar.Exited)
		if got.ExitCode != 9 || sink.text(sandbar.Stdout) != "A=1\n" {
			t.Errorf("%+v, output %q", got, sink.text(sandbar.Stdout))
		}
		sink = newRecorder()
		if _, err = s.Exec(t.Context(), cmd("cat", "f", ";", "echo-stdin"), strings.NewReader(" in"), none, sink); err != nil || sink.text(sandbar.Stdout) != "kept in" {
			t.Errorf("output %q, %v", sink.text(sandbar.Stdout), err)
		}
		if err := r.Stop(t.Context(), s.ID()); err != nil {
			t.Error(err)
		}
		select {
		case <-s.Done():
		default:
			t.Error("Done is not closed")
		}
		_, err = r.Get(context.Background(), s.ID())
		wantCode(t, err, sandbar.NotFound)
		wantCode(t, r.Stop(t.Context(), s.ID()), sandbar.NotFound)
		_, err = s.Exec(t.Context(), cmd("exit", "0"), nil, none, nil)
		wantCode(t, err, sandbar.Gone)
		_, err = s.Start(t.Context(), cmd("exit", "0"), nil, none)
		wantCode(t, err, sandbar.Gone)
		if l := r.List(context.Background()); len(l) != 1 || l[0].ID != later.ID() {
			t.Errorf("List: %+v", l)
		}
	})
}

// Exec has its own time limit, output limit and cancellation. The sandbox survives all three.
func TestExecLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		r := newRig(t, d, nil)
		s := r.create()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		for _, c := range []struct {
			ctx  context.Context
			cmd  sandbar.Cmd
			lim  sandbar.Limits
			want sandbar.Outcome
			took time.Duration
		}{
			{t.Context(), cmd("ignore-term", ";", "sleep", "1h"), sandbar.Limits{Timeout: time.Second}, sandbar.TimedOut, 1500 * time.Millisecond},
			{t.Context(), cmd("sleep", "1h"), none, sandbar.TimedOut, 30 * time.Second},
			{t.Context(), cmd("flood", "stdout", "11"), sandbar.Limits{Output: 10}, sandbar.OutputLimit, 0},
			{t.Context(), cmd("flood", "stdout", "10"), sandbar.Limits{Output: 10}, sandbar.Exited, 0},
			{ctx, cmd("sleep", "1h"), none, sandbar.Cancelled, 0},
		} {
			began := time.Now()
			got, err := s.Exec(c.ctx, c.cmd, nil, c.lim, nil)
			if c.ctx == ctx && err != nil { // it has ended
				wantCode(t, err, sandbar.Canceled)
				continue
			}
			answer{got, err}.want(t, c.want)
			if took := time.Since(began); took != c.took {
				t.Errorf("%v took %v", c.cmd.Args, took)
			}
		}
		began := time.Now()
		ctx, cancel = context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		got, err := s.Exec(ctx, cmd("sleep", "1h"), nil, none, nil)
		answer{got, err}.want(t, sandbar.Cancelled)
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("took %v", took)
		}
		if d.Counts().Processes != 0 || s.Info().Running != 0 {
			t.Errorf("something still runs: %+v", d.Counts())
		}
	})
}

func TestExecRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, faulty.New(), nil)
		s := r.create()
		for _, c := range []struct {
			name string
			cmd  sandbar.Cmd
			lim  sandbar.Limits
			code sandbar.Code
		}{
			{"no program", sandbar.Cmd{}, none, sandbar.Invalid},
			{"unknown program", cmd("nonsense"), none, sandbar.NotFound},
			{"a limit of the sandbox", cmd("exit", "0"), sandbar.Limits{Memory: 1 << 20}, sandbar.Invalid},
			{"timeout too long", cmd("exit", "0"), sandbar.Limits{Timeout: time.Hour}, sandbar.Invalid},
			{"output too much", cmd("exit", "0"), sandbar.Limits{Output: 1 << 40}, sandbar.Invalid},
			{"bad variable", sandbar.Cmd{Args: []string{"exit", "0"}, Env: map[string]string{"A=": ""}}, none, sandbar.Invalid},
			{"NUL in dir", sandbar.Cmd{Args: []string{"exit", "0"}, Dir: "a\x00"}, none, sandbar.Invalid},
		} {
			_, err := s.Exec(t.Context(), c.cmd, nil, c.lim, nil)
			if sandbar.CodeOf(err) != c.code {
				t.Errorf("%s: Exec: %v", c.name, err)
			}
			_, err = s.Start(t.Context(), c.cmd, nil, c.lim)
			if sandbar.CodeOf(err) != c.code {
				t.Errorf("%s: Start: %v", c.name, err)
			}
		}
		if n := len(s.Processes()); n != 0 {
			t.Errorf("%d processes", n)
		}
	})
}

// Stop ends running programs at once, and Exec returns Cancelled.
func TestStopDuringExec(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		r := newRig(t, d, nil)
		s := r.create()
		a := exec(s, cmd("ignore-term", ";", "sleep", "1h"))
		p, err := s.Start(t.Context(), cmd("ignore-term", ";", "sleep", "1h"), nil, none)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		began := time.Now()
		if err := r.Stop(t.Context(), s.ID()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("took %v", took)
		}
		(<-a).want(t, sandbar.Cancelled)
		got, err := p.Wait(t.Context())
		answer{got, err}.want(t, sandbar.Cancelled)
		if err := d.Leaks(); err != nil {
			t.Error(err)
		}
	})
}

func TestStopIsIdempotentAndConcurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		d.OnDestroy = faulty.Slow(2 * time.Second)
		r := newRig(t, d, nil)
		s := r.create()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if err := r.Stop(context.Background(), s.ID()); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		// A sandbox that is being stopped is not live and refuses new work.
		_, err := r.Get(context.Background(), s.ID())
		wantCode(t, err, sandbar.NotFound)
		_, err = s.Exec(t.Context(), cmd("exit", "0"), nil, none, nil)
		wantCode(t, err, sandbar.Conflict)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantCode(t, r.Stop(ctx, s.ID()), sandbar.Timeout)
		all.Wait()
		if n := d.Counts().Destroyed; n != 1 {
			t.Errorf("destroyed %d times", n)
		}
	})
}

func TestStopWhileTheDriverFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		d.OnDestroy = faulty.FailFirst(4, errors.New("busy"))
		r := newRig(t, d, nil)
		s := r.create()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		wantCode(t, r.Stop(ctx, s.ID()), sandbar.Timeout)
		select {
		case <-s.Done():
		default:
			t.Error("Done waits for a driver that fails")
		}
		if st := r.Stats(); st.Sandboxes != 0 {
			t.Errorf("%+v", st)
		}
		if err := r.Stop(t.Context(), s.ID()); err != nil {
			t.Errorf("the second Stop did not wait for the end: %v", err)
		}
	})
}

// A sandbox that dies by itself is removed.
func TestDeathIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		d.Death = sandbar.Errorf(sandbar.Gone, "its node evicted it")
		r := newRig(t, d, nil)
		s := r.create()
		a := exec(s, cmd("sleep", "1h"))
		p, err := s.Start(t.Context(), cmd("print", "stdout", "x", ";", "sleep", "1h"), nil, none)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		d.Die(s.ID())
		<-s.Done()
		(<-a).want(t, sandbar.Lost)
		got, err := p.Wait(t.Context())
		answer{got, err}.want(t, sandbar.Lost)
		synctest.Wait()
		_, err = s.Start(t.Context(), cmd("print"), nil, none)
		if e := sandbar.AsError(err); err == nil || e.Code != sandbar.Gone || !strings.HasSuffix(e.Message, "has ended: it died: its node evicted it") {
			t.Errorf("another program: %v", err)
		}
		if len(r.List(context.Background())) != 0 {
			t.Error("it is still listed")
		}
		if err := d.Leaks(); err != nil {
			t.Error(err)
		}
		if text := follow(t, p, engine.Offsets{}); text[sandbar.Stdout] != "x\n" {
			t.Errorf("output %q", text)
		}
	})
}

func TestIdleSandboxIsReaped(t *testing.T) {
	idle := func(c *engine.Config) { c.IdleTimeout = time.Minute }
	alive := func(r *rig, s *engine.Sandbox) bool { _, err := r.Get(context.Background(), s.ID()); return err == nil }
	for _, c := range []struct {
		name string
		// use keeps the sandbox busy for an hour or does nothing.
		use  func(*testing.T, *engine.Sandbox)
		busy bool
	}{
		{"nothing", func(*testing.T, *engine.Sandbox) {}, false},
		{"exec", func(t *testing.T, s *engine.Sandbox) {
			go s.Exec(context.Background(), cmd("sleep", "1h"), nil, sandbar.Limits{Timeout: 2 * time.Hour}, nil)
		}, true},
		{"followed process", func(t *testing.T, s *engine.Sandbox) {
			if _, err := s.Start(t.Context(), cmd("sleep", "1h"), nil, none); err != nil {
				t.Error(err)
			}
		}, true},
		{"finished process", func(t *testing.T, s *engine.Sandbox) {
			if _, err := s.Start(t.Context(), cmd("exit", "0"), nil, none); err != nil {
				t.Error(err)
			}
		}, false},
		{"hold", func(t *testing.T, s *engine.Sandbox) { time.AfterFunc(time.Hour, s.Hold()) }, true},
		{"released hold", func(t *testing.T, s *engine.Sandbox) { r := s.Hold(); r(); r() }, false},
		{"open file", func(t *testing.T, s *engine.Sandbox) {
			fs := s.FS()
			w, err := fs.Create(t.Context(), "f", sandbar.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(time.Hour, func() { w.Commit() })
		}, true},
		{"closed file", func(t *testing.T, s *engine.Sandbox) {
			fs := s.FS()
			w, err := fs.Create(t.Context(), "f", sandbar.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			w.Abort()
			w.Abort()
		}, false},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			r := newRig(t, faulty.New(), func(cfg *engine.Config) { idle(cfg); cfg.Max.Timeout = 3 * time.Hour })
			s := r.create()
			time.Sleep(30 * time.Second)
			c.use(t, s)
			time.Sleep(59 * time.Second)
			synctest.Wait()
			if c.name != "nothing" && !alive(r, s) {
				t.Error("reaped too early")
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if alive(r, s) != c.busy {
				t.Errorf("alive is %v after a minute", !c.busy)
			}
			if !c.busy {
				return
			}
			time.Sleep(time.Hour - 61*time.Second + time.Minute - 1)
			synctest.Wait()
			if !alive(r, s) {
				t.Error("reaped before the work was over for a minute")
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if alive(r, s) {
				t.Error("never reaped")
			}
		})
	}
	inBubble(t, "as its Spec says", func(t *testing.T) {
		r := newRig(t, faulty.New(), idle)
		of := func(d time.Duration) *engine.Sandbox {
			s, err := r.Create(t.Context(), sandbar.Spec{IdleTimeout: d})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		short, long, never := of(time.Second), of(time.Hour), of(-1)
		for _, at := range []struct {
			after time.Duration
			alive []*engine.Sandbox
		}{
			{time.Second - 1, []*engine.Sandbox{short, long, never}},
			{2, []*engine.Sandbox{long, never}},
			{time.Hour, []*engine.Sandbox{never}},
		} {
			time.Sleep(at.after)
			synctest.Wait()
			for _, s := range []*engine.Sandbox{short, long, never} {
				if alive(r, s) != slices.Contains(at.alive, s) {
					t.Errorf("idle for %v: alive is %v", s.Info().Spec.IdleTimeout, alive(r, s))
				}
			}
		}
	})
	inBubble(t, "never", func(t *testing.T) {
		r := newRig(t, faulty.New(), func(c *engine.Config) { c.IdleTimeout, c.MaxLifetime = -1, -1 })
		s := r.create()
		time.Sleep(10000 * time.Hour)
		synctest.Wait()
		if !alive(r, s) {
			t.Error("reaped")
		}
	})
}

func TestLifetimeEndsEvenABusySandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, faulty.New(), func(c *engine.Config) { c.MaxLifetime = time.Hour })
		s := r.create()
		p, err := s.Start(t.Context(), cmd("sleep", "100h"), nil, none)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour - 1)
		if _, err := r.Get(context.Background(), s.ID()); err != nil {
			t.Error(err)
		}
		<-s.Done()
		got, err := p.Wait(t.Context())
		answer{got, err}.want(t, sandbar.Cancelled)
		_, err = s.Exec(t.Context(), cmd("exit", "0"), nil, none, nil)
		wantCode(t, err, sandbar.Gone)
		if !strings.Contains(err.Error(), "lifetime") {
			t.Errorf("%v does not tell why", err)
		}
	})
}

func TestSandboxFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		r := newRig(t, d, nil)
		s := r.create()
		fs := s.FS()
		ctx := t.Context()
		w, err := fs.Create(ctx, "dir/f", sandbar.CreateOptions{Parents: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(w, strings.NewReader("content")); err != nil {
			t.Fatal(err)
		}
		if _, err := fs.Stat(ctx, "dir/f"); sandbar.CodeOf(err) != sandbar.NotFound {
			t.Errorf("it is there before Commit: %v", err)
		}
		if err := w.Commit(); err != nil {
			t.Fatal(err)
		}
		f, err := fs.Open(ctx, "dir/f")
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if n, err := io.Copy(&b, f); n != 7 || err != nil || b.String() != "content" || f.Info().Size != 7 {
			t.Errorf("read %q, %v", b.String(), err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		for _, err := range []error{
			fs.Mkdir(ctx, "e", 0o700, false), fs.Rename(ctx, "dir/f", "e/g"), fs.Chmod(ctx, "e", 0o711, true), fs.Remove(ctx, "dir", true),
		} {
			if err != nil {
				t.Error(err)
			}
		}
		list, err := fs.ReadDir(ctx, "e", "", 10)
		if err != nil || len(list) != 1 || list[0].Name != "g" {
			t.Errorf("%+v, %v", list, err)
		}
		// What the driver's FS cannot do is Unsupported.
		_, err = fs.(sandbar.BatchReader).ReadFiles(ctx, []string{"e/g"}, 1)
		wantCode(t, err, sandbar.Unsupported)
		wantCode(t, fs.(sandbar.Owner).Chown(ctx, "e/g", 1, 1, false), sandbar.Unsupported)
		wantCode(t, fs.(sandbar.Mover).RenameNew(ctx, "e/g", "e/h"), sandbar.Unsupported)
		if i := s.Info(); !i.LastUsed.Equal(time.Now()) {
			t.Errorf("files do not count as use: %v", i.LastUsed)
		}
		if err := r.Stop(ctx, s.ID()); err != nil {
			t.Fatal(err)
		}
		_, err = fs.Open(ctx, "e/g")
		wantCode(t, err, sandbar.Gone)
		_, err = fs.Create(ctx, "x", sandbar.CreateOptions{})
		wantCode(t, err, sandbar.Gone)
		wantCode(t, fs.Mkdir(ctx, "x", 0o700, false), sandbar.Gone)
		s.Hold()() // has no effect
	})
}

func TestDialPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, faulty.New(), nil)
		s := r.create()
		_, err := s.DialPort(t.Context(), 80)
		wantCode(t, err, sandbar.Unavailable)
		_, err = s.DialPort(t.Context(), 0)
		wantCode(t, err, sandbar.Invalid)
		if _, err := s.Exec(t.Context(), cmd("serve", "80"), nil, none, nil); err != nil {
			t.Fatal(err)
		}
		c, err := s.DialPort(t.Context(), 80)
		if err != nil {
			t.Fatal(err)
		}
		go c.Write([]byte("ping"))
		b := make([]byte, 4)
		if _, err := io.ReadFull(c, b); err != nil || string(b) != "ping" {
			t.Errorf("%q, %v", b, err)
		}
		c.Close()
	})
}

func TestAbilitiesADriverLacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		d.Bare = true
		r := newRig(t, d, nil)
		s := r.create()
		_, err := s.DialPort(t.Context(), 80)
		wantCode(t, err, sandbar.Unsupported)
		got, err := s.Exec(t.Context(), cmd("exit", "1"), nil, none, nil)
		answer{got, err}.want(t, sandbar.Exited)
	})
}

// Real concurrent calls of Exec, Start, List and files race with Stop.
func TestUseRacesWithStop(t *testing.T) {
	d := faulty.New()
	r := newRig(t, d, small(4, 100))
	allowed := []sandbar.Code{"", sandbar.Conflict, sandbar.Gone, sandbar.NotFound, sandbar.Canceled}
	check := func(err error) {
		if !slices.Contains(allowed, sandbar.CodeOf(err)) {
			t.Error(err)
		}
	}
	for range 50 {
		s := r.create()
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				_, err := s.Exec(context.Background(), cmd("print", "stdout", "x", ";", "sleep", "1ms"), nil, none, newRecorder())
				check(err)
			})
			all.Go(func() {
				p, err := s.Start(context.Background(), cmd("print", "stdout", "x", ";", "sleep", "1ms"), nil, none)
				check(err)
				if err == nil {
					check(p.Follow(context.Background(), engine.Offsets{}, func(sandbar.Chunk) error { return nil }))
				}
			})
			all.Go(func() { r.List(context.Background()); s.Info(); r.Stats() })
			all.Go(func() {
				check(s.FS().Mkdir(context.Background(), "d", 0o700, true))
			})
			all.Go(func() {
				time.Sleep(500 * time.Microsecond)
				check(r.Stop(context.Background(), s.ID()))
			})
		}
		all.Wait()
		<-s.Done()
	}
	if err := d.Leaks(); err != nil {
		t.Error(err)
	}
}
