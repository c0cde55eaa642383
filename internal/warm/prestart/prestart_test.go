package prestart

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPrepareRefuses(t *testing.T) {
	node := driver.TemplateSpec{Language: "javascript", Argv: []string{"node"}, File: "main.js"}
	with := func(f func(*driver.TemplateSpec)) driver.TemplateSpec {
		s := node
		f(&s)
		return s
	}
	for _, c := range []struct {
		name string
		spec driver.TemplateSpec
		code sandbar.Code
	}{
		{"node", node, ""},
		{"another language", with(func(s *driver.TemplateSpec) { s.Language = "ruby" }), sandbar.Unsupported},
		{"another command", with(func(s *driver.TemplateSpec) { s.Argv = []string{"node", "--jitless"} }), sandbar.Unsupported},
		{"its variable", with(func(s *driver.TemplateSpec) { s.Env = map[string]string{"NODE_OPTIONS": ""} }), sandbar.Unsupported},
		{"imports", with(func(s *driver.TemplateSpec) { s.Imports = []string{"lodash"} }), sandbar.Invalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Prepare(faulty.New(), c.spec)
			if sandbar.CodeOf(err) != c.code {
				t.Errorf("got %v, want code %q", err, c.code)
			}
		})
	}
}

// A fork that fails leaves nothing.
func TestForkFails(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	for _, c := range []struct {
		name string
		set  func(*faulty.Driver)
		ctx  context.Context
		code sandbar.Code
	}{
		{"no sandbox", func(d *faulty.Driver) { d.OnCreate = faulty.FailFirst(1, errors.New("told to fail")) }, t.Context(), sandbar.Internal},
		{"no files", func(d *faulty.Driver) { d.NoFiles = true }, t.Context(), sandbar.Unsupported},
		{"no interpreter", func(d *faulty.Driver) { d.Missing = []string{"node"} }, t.Context(), sandbar.NotFound},
		{"it does not start", func(d *faulty.Driver) { d.OnStart = faulty.FailFirst(1, errors.New("told to fail")) }, t.Context(), sandbar.Internal},
		// There is no main.js.
		{"it ends", func(d *faulty.Driver) {}, t.Context(), sandbar.Unsupported},
		{"it was stopped", func(d *faulty.Driver) { d.OnStart = func(context.Context) error { cancel(); return nil } }, ctx, sandbar.Internal},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := faulty.New()
			c.set(d)
			tpl, err := Prepare(d, driver.TemplateSpec{Language: "javascript", Argv: []string{"node"}, File: "main.js"})
			if err != nil {
				t.Fatal(err)
			}
			_, err = tpl.Fork(c.ctx, sandbar.NewID())
			if err == nil || c.code != sandbar.CodeOf(err) {
				t.Errorf("got %v, want code %q", err, c.code)
			}
			if err := d.Leaks(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Streams that are connected after the start deliver all bytes in order, without the marker.
func TestDeferredStdio(t *testing.T) {
	for _, c := range []struct {
		name   string
		before []string // written before connect
		after  []string
		want   string
	}{
		{"only the marker", []string{"MARK"}, nil, ""},
		{"in pieces", []string{"M", "AR", "K"}, []string{"a", "b"}, "ab"},
		{"with what follows", []string{"MARKabc"}, []string{"d"}, "abcd"},
		{"and more", []string{"MA", "RKabc", "def"}, []string{"g", "", "h"}, "abcdefgh"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newDeferredStdio("MARK")
			std := l.stdio()
			write := func(all []string) {
				for _, s := range all {
					if n, err := io.WriteString(std.Stdout, s); err != nil || n != len(s) {
						t.Fatalf("writing %q: %d, %v", s, n, err)
					}
				}
			}
			write(c.before)
			select {
			case <-l.ready:
			default:
				t.Fatal("the marker was not seen")
			}
			if _, err := io.WriteString(std.Stderr, "warning"); err != nil {
				t.Fatal(err)
			}
			var out, errOut bytes.Buffer
			l.connect("header", driver.Stdio{Stdin: strings.NewReader("input"), Stdout: &out, Stderr: &errOut})
			write(c.after)
			l.out.flushing.Wait()
			l.err.flushing.Wait()
			in, err := io.ReadAll(std.Stdin)
			if out.String() != c.want || errOut.String() != "warning" || string(in) != "headerinput" || err != nil {
				t.Errorf("out %q, err %q, in %q (%v)", &out, &errOut, in, err)
			}
		})
	}
}

func TestDeferredStdioFails(t *testing.T) {
	l := newDeferredStdio("MARK")
	if _, err := io.WriteString(l.stdio().Stdout, "MAzda"); err == nil {
		t.Error("other bytes were taken for the marker")
	}
	if _, err := l.stdio().Stderr.Write(make([]byte, maxBuffer)); err != nil {
		t.Error(err)
	}
	if _, err := l.stdio().Stderr.Write([]byte{1}); err == nil {
		t.Error("the buffer exceeds its bound")
	}
	read := make(chan error, 1)
	go func() {
		_, err := l.stdio().Stdin.Read(make([]byte, 1))
		read <- err
	}()
	l.abandon()
	l.abandon()
	if err := <-read; err != io.EOF {
		t.Errorf("reading ended with %v", err)
	}
}

// Variables that an interpreter reads at its start cannot be set later.
func TestRefuse(t *testing.T) {
	spec := driver.TemplateSpec{Language: "elixir", Argv: []string{"elixir"}, File: "main.exs", Env: map[string]string{"LANG": "C.UTF-8"}}
	tpl, err := Prepare(faulty.New(), spec)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		e    driver.Evaluation
		ok   bool
	}{
		{"nothing", driver.Evaluation{}, true},
		{"all there is", driver.Evaluation{Args: []string{"ä", ""}, Env: map[string]string{"LANG": "C.UTF-8", "A": "b=c\n"}, Dir: "/tmp"}, true},
		{"another locale", driver.Evaluation{Env: map[string]string{"LANG": "C"}}, false},
		{"a locale", driver.Evaluation{Env: map[string]string{"LC_ALL": "C"}}, false},
		{"options", driver.Evaluation{Env: map[string]string{"ERL_FLAGS": ""}}, false},
		{"another file", driver.Evaluation{Path: "x.exs"}, false},
		{"a value that is no text", driver.Evaluation{Env: map[string]string{"A": "\xff"}}, false},
		{"an argument that is no text", driver.Evaluation{Args: []string{"\xff"}}, false},
		{"a NUL", driver.Evaluation{Args: []string{"a\x00b"}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.e.Path == "" {
				c.e.Path = "main.exs"
			}
			err := tpl.(*template).refuse(c.e)
			if (err == nil) != c.ok || err != nil && sandbar.CodeOf(err) != sandbar.Unsupported {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A result's Duration excludes the time before Eval.
func TestDurationExcludesTheWait(t *testing.T) {
	for _, c := range []struct{ told, waited, want time.Duration }{
		{10 * time.Second, 7 * time.Second, 3 * time.Second},
		{time.Second, 2 * time.Second, 1},
		{0, time.Second, 0}, // unknown stays unknown
	} {
		p := &process{Process: ended{r: sandbar.Result{Duration: c.told}}, std: newDeferredStdio(""), waited: c.waited}
		if r, err := p.Wait(); err != nil || r.Duration != c.want {
			t.Errorf("%v after %v of waiting: %v, %v; want %v", c.told, c.waited, r.Duration, err, c.want)
		}
	}
}

// That of an interpreter in a restored machine excludes the restore, of which the driver's clock of
// the process saw only the end.
func TestDurationAfterRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &clocked{end: make(chan struct{})}
		sb, err := Restore(driver.TemplateSpec{Language: "python", Argv: []string{"python3"}, File: "main.py"},
			func(std driver.Stdio) (driver.Sandbox, driver.Process, error) {
				time.Sleep(10 * time.Second)
				p.started = time.Now()
				time.Sleep(100 * time.Millisecond)
				go io.Copy(io.Discard, std.Stdin)
				sb, err := faulty.New().Create(t.Context(), sandbar.NewID(), sandbar.Spec{Limits: sandbar.Limits{Disk: 1 << 20, Inodes: 10}})
				return sb, p, err
			})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		run, err := sb.(driver.Evaluator).Eval(t.Context(), driver.Evaluation{Path: "main.py"}, driver.Stdio{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		close(p.end)
		if r, err := run.Wait(); err != nil || r.Duration < 2*time.Second || r.Duration > 2100*time.Millisecond {
			t.Errorf("%v, %v; want 2 s", r.Duration, err)
		}
		if err := sb.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// clocked is a process whose Duration is the time from started to end.
type clocked struct {
	driver.Process
	started time.Time
	end     chan struct{}
}

func (c *clocked) Wait() (sandbar.Result, error) {
	<-c.end
	return sandbar.Result{Duration: time.Since(c.started)}, nil
}

type ended struct {
	driver.Process
	r sandbar.Result
}

func (e ended) Wait() (sandbar.Result, error) { return e.r, nil }
