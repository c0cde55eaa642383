package faulty_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// box creates a sandbox, which is destroyed at the test's end.
func box(t *testing.T, d *faulty.Driver) driver.Sandbox {
	t.Helper()
	b, err := d.Create(t.Context(), sandbar.NewID(), sandbar.Spec{Limits: sandbar.Limits{Memory: 64, Disk: 100}, Env: map[string]string{"A": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
		if err := d.Leaks(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// play runs a script and waits for its end.
func play(t *testing.T, b driver.Sandbox, script string) (r sandbar.Result, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	p, err := b.Start(t.Context(), sandbar.Cmd{Args: []string{"sh", "-c", script, "x y"}, Dir: "/d"},
		driver.Stdio{Stdin: strings.NewReader("typed"), Stdout: &out, Stderr: &errs})
	if err != nil {
		t.Fatal(err)
	}
	if r, err = p.Wait(); err != nil {
		t.Fatal(err)
	}
	return r, out.String(), errs.String()
}

// The language, one row for each verb.
func TestScripts(t *testing.T) {
	exited := func(code int) sandbar.Result { return sandbar.Result{Outcome: sandbar.Exited, ExitCode: code} }
	for _, c := range []struct {
		script   string
		want     sandbar.Result
		out, err string
	}{
		{"", exited(0), "", ""},
		{"# a comment\n\n  exit 7  ", exited(7), "", ""},
		{"print stdout a  b\nprint stderr", exited(0), "a b\n", "\n"},
		{`write stdout "a  b\n" c`, exited(0), "a  b\n c", ""},
		{"flood stdout 30", exited(0), "abcdefghijklmnopqrstuvwxyzabcd", ""},
		{"dribble stderr äb 1s", exited(0), "", "äb"},
		{"echo-stdin", exited(0), "typed", ""},
		{"count-stdin", exited(0), "5\n", ""},
		{"args\ndir", exited(0), "x y\n/d\n", ""},
		{"env A\nenv B", exited(0), "A=1\nB is unset\n", ""},
		{"save f kept here\ncat f", exited(0), "kept here", ""},
		{"cat nowhere", exited(1), "", "faulty: \"/home/user/nowhere\": no such file or directory\n"},
		{"save f " + strings.Repeat("x", 101), exited(1), "", "faulty: \"/home/user/f\": the disk is full\n"},
		{"repeat 3 write stdout x", exited(0), "xxx", ""},
		{"repeat 3 exit 4", exited(4), "", ""},
		{"signal 6", sandbar.Result{Outcome: sandbar.Signaled, Signal: 6}, "", ""},
		{"oom", sandbar.Result{Outcome: sandbar.OutOfMemory, Signal: 9, OOMKills: 1, PeakMemory: 64}, "", ""},
		{"usage 2s 77", sandbar.Result{Outcome: sandbar.Exited, CPUTime: 2 * time.Second, PeakMemory: 77}, "", ""},
		{"lost", sandbar.Result{Outcome: sandbar.Lost}, "", ""},
		{"nonsense", exited(2), "", "faulty: cannot understand \"nonsense\"\n"},
		{"exit", exited(2), "", "faulty: cannot understand \"exit\"\n"},
		{"exit 256", exited(2), "", "faulty: cannot understand \"256\"\n"},
		{"sleep long", exited(2), "", "faulty: cannot understand \"long\"\n"},
		{"write nowhere x", exited(2), "", "faulty: cannot understand \"nowhere\"\n"},
		{"flood stdout many", exited(2), "", "faulty: cannot understand \"many\"\n"},
		{"repeat some exit 1", exited(2), "", "faulty: cannot understand \"some\"\n"},
		{"usage 1s much", exited(2), "", "faulty: cannot understand \"much\"\n"},
		{"serve 0", exited(2), "", "faulty: cannot understand \"0\"\n"},
	} {
		t.Run(c.script, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got, out, errs := play(t, box(t, faulty.New()), c.script)
				if got.Duration <= 0 || got.Enforced != faulty.FullCaps().Enforced {
					t.Errorf("%+v", got)
				}
				got.Duration, got.Enforced = 0, sandbar.Enforcements{}
				if got != c.want || out != c.out || errs != c.err {
					t.Errorf("got %+v, %q, %q", got, out, errs)
				}
			})
		})
	}
}

func TestClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, began := box(t, faulty.New()), time.Now()
		got, _, _ := play(t, b, "sleep 2s\ndrain 3s\ndribble stdout abc 1s")
		if got.Duration != 5*time.Second || time.Since(began) != 8*time.Second {
			t.Errorf("duration %v, Wait took %v", got.Duration, time.Since(began))
		}
	})
}

func TestPrograms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		d.Missing = []string{"node"}
		b := box(t, d)
		start := func(args ...string) (sandbar.Result, error) {
			p, err := b.Start(t.Context(), sandbar.Cmd{Args: args}, driver.Stdio{})
			if err != nil {
				return sandbar.Result{}, err
			}
			return p.Wait()
		}
		if got, err := start("save", "main.py", "exit 3", ";", "exit", "1"); err != nil || got.ExitCode != 1 {
			t.Errorf("%+v, %v", got, err)
		}
		if got, err := start("python3", "main.py"); err != nil || got.ExitCode != 3 {
			t.Errorf("%+v, %v", got, err)
		}
		for _, args := range [][]string{{"node", "main.py"}, {"perl", "main.py"}, {"python3"}} {
			if _, err := start(args...); sandbar.CodeOf(err) != sandbar.NotFound {
				t.Errorf("%q: %v", args, err)
			}
		}
		if got, err := start("python3", "other.py"); err != nil || got.ExitCode != 2 {
			t.Errorf("without its file: %+v, %v", got, err)
		}
	})
}

func TestSignals(t *testing.T) {
	for _, c := range []struct {
		script string
		send   []int
		want   sandbar.Outcome
		signal int
		code   int
	}{
		{"sleep 1h", []int{15}, sandbar.Signaled, 15, 0},
		{"sleep 1h", []int{2}, sandbar.Signaled, 2, 0},
		{"sleep 1h", []int{9, 15}, sandbar.Signaled, 9, 0},
		{"sleep 1s\nexit 3", []int{17, 18, 28}, sandbar.Exited, 0, 3},
		{"ignore-term\nsleep 1s\nexit 3", []int{15, 15}, sandbar.Exited, 0, 3},
		{"ignore-term\nsleep 1h", []int{15, 9}, sandbar.Signaled, 9, 0},
		{"on-term exit 4\nsleep 1h", []int{15}, sandbar.Exited, 0, 4},
		{"on-term exit 4\necho-stdin", []int{15}, sandbar.Exited, 0, 4},
		{"on-term sleep 1s\nsleep 2s\nexit 3", []int{15}, sandbar.Exited, 0, 3},
		{"on-term exit 4\nblock-until never", []int{9}, sandbar.Signaled, 9, 0},
	} {
		t.Run(c.script, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := box(t, faulty.New())
				in, keep := io.Pipe() // an input that does not come
				defer keep.Close()
				p, err := b.Start(t.Context(), sandbar.Cmd{Args: []string{"sh", "-c", c.script}}, driver.Stdio{Stdin: in})
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				for _, s := range c.send {
					if err := p.Signal(s); err != nil {
						t.Error(err)
					}
				}
				got, err := p.Wait()
				if err != nil || got.Outcome != c.want || got.Signal != c.signal || got.ExitCode != c.code {
					t.Errorf("%+v, %v", got, err)
				}
				if err := p.Signal(9); err != nil {
					t.Errorf("after the end: %v", err)
				}
			})
		})
	}
}

// A blocked receiver blocks the program. A failed receiver ends it with SIGPIPE.
func TestPipes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		b := box(t, d)
		r, w := io.Pipe()
		p, err := b.Start(t.Context(), sandbar.Cmd{Args: []string{"flood", "stdout", "1000000"}}, driver.Stdio{Stdout: w})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := d.Written(); n != 3*32<<10 {
			t.Errorf("%d bytes were taken, want a pipe and a chunk", n)
		}
		go io.CopyN(io.Discard, r, 500_000)
		synctest.Wait()
		r.Close()
		got, err := p.Wait()
		if err != nil || got.Outcome != sandbar.Signaled || got.Signal != 13 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func TestDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		id := sandbar.NewID()
		b, err := d.Create(t.Context(), id, sandbar.Spec{})
		if err != nil {
			t.Fatal(err)
		}
		p, err := b.Start(t.Context(), sandbar.Cmd{Args: []string{"sleep", "1h"}}, driver.Stdio{})
		if err != nil {
			t.Fatal(err)
		}
		w, ok := driver.As[driver.Watcher](b)
		if !ok || !d.Die(id) || d.Die(sandbar.NewID()) {
			t.Fatal("it cannot die")
		}
		<-w.Dead()
		if got, err := p.Wait(); err != nil || got.Outcome != sandbar.Lost {
			t.Errorf("%+v, %v", got, err)
		}
		if _, err := b.Start(t.Context(), sandbar.Cmd{Args: []string{"exit", "0"}}, driver.Stdio{}); sandbar.CodeOf(err) != sandbar.Gone {
			t.Error(err)
		}
		if d.Leaks() == nil {
			t.Error("a dead sandbox is still there until it is destroyed")
		}
		for range 2 {
			if err := b.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if err := d.Leaks(); err != nil {
			t.Error(err)
		}
		if e := d.Events(); !slices.Equal(e, []string{"create", "start", "end", "destroy"}) {
			t.Errorf("%q", e)
		}
	})
}

// Nothing ends a program that hangs, and no operation waits for it.
func TestHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		b := box(t, d)
		p, err := b.Start(t.Context(), sandbar.Cmd{Args: []string{"hang", "h"}}, driver.Stdio{})
		if err != nil {
			t.Fatal(err)
		}
		<-d.Reached("h")
		if err := p.Signal(9); err != nil {
			t.Error(err)
		}
		if err := b.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
		if d.Counts().Processes != 1 {
			t.Error("it is gone")
		}
		d.Open("h")
		d.Open("h")
		if _, err := p.Wait(); err != nil {
			t.Error(err)
		}
	})
}

func TestHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		release := make(chan struct{})
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for name, h := range map[string]struct {
			hook faulty.Hook
			want []error
		}{
			"FailFirst":        {faulty.FailFirst(2, broken), []error{broken, broken, nil}},
			"FailFirst of all": {faulty.FailFirst(-1, broken), []error{broken, broken, broken}},
			"Stall":            {faulty.Stall(release), []error{context.Canceled}},
			"Slow":             {faulty.Slow(time.Second), []error{nil}},
		} {
			for i, want := range h.want {
				if got := h.hook(ended); !errors.Is(got, want) {
					t.Errorf("%s, call %d: %v", name, i, got)
				}
			}
		}
		time.AfterFunc(time.Second, func() { close(release) })
		if err := faulty.Block(release)(ended); err != nil {
			t.Error(err)
		}
		d := faulty.New()
		d.AfterCreate = faulty.FailFirst(1, broken)
		if _, err := d.Create(t.Context(), sandbar.NewID(), sandbar.Spec{}); !errors.Is(err, broken) {
			t.Error(err)
		}
		if err := d.Leaks(); err != nil {
			t.Error(err)
		}
		d.Bare, d.NoFiles = true, true
		b, err := d.Create(t.Context(), sandbar.NewID(), sandbar.Spec{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.FS().Stat(t.Context(), "/"); sandbar.CodeOf(err) != sandbar.Unsupported {
			t.Errorf("a sandbox without files: %v", err)
		}
		if _, ok := driver.As[driver.Dialer](b); ok {
			t.Error("a bare sandbox has ports")
		}
		if !d.DieAll() || b.Destroy(t.Context()) != nil || d.DieAll() {
			t.Error("DieAll")
		}
	})
}

func TestRefusesWhatItCannotEnforce(t *testing.T) {
	d := faulty.New()
	d.Capabilities.Enforced.Memory = sandbar.EnforcedNone
	s := sandbar.Spec{Limits: sandbar.Limits{Memory: 1}}
	if _, err := d.Create(t.Context(), sandbar.NewID(), s); sandbar.CodeOf(err) != sandbar.Unsupported {
		t.Error(err)
	}
	s.AllowDegraded = true
	b, err := d.Create(t.Context(), sandbar.NewID(), s)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestPorts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := box(t, faulty.New())
		dial, _ := driver.As[driver.Dialer](b)
		play(t, b, "serve 80")
		for port, code := range map[int]sandbar.Code{-1: sandbar.Invalid, 0: sandbar.Invalid, 65536: sandbar.Invalid, 81: sandbar.Unavailable} {
			if _, err := dial.DialPort(t.Context(), port); sandbar.CodeOf(err) != code {
				t.Errorf("%d: %v", port, err)
			}
		}
		c, err := dial.DialPort(t.Context(), 80)
		if err != nil {
			t.Fatal(err)
		}
		go io.WriteString(c, "hello")
		got := make([]byte, 5)
		if _, err := io.ReadFull(c, got); err != nil || string(got) != "hello" {
			t.Errorf("%q, %v", got, err)
		}
		if err := b.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := c.Read(got); err == nil {
			t.Error("the connection outlived its sandbox")
		}
		if _, err := dial.DialPort(t.Context(), 80); sandbar.CodeOf(err) != sandbar.Gone {
			t.Error(err)
		}
	})
}

func TestFiles(t *testing.T) {
	m, ctx := box(t, faulty.New()).FS(), t.Context()
	put := func(path, text string, opt sandbar.CreateOptions) error {
		w, err := m.Create(ctx, path, opt)
		if err != nil {
			return err
		}
		if _, err := io.WriteString(w, text); err != nil {
			w.Abort()
			return err
		}
		return w.Commit()
	}
	get := func(path string) string {
		r, err := m.Open(ctx, path)
		if err != nil {
			return string(sandbar.CodeOf(err))
		}
		b, _ := io.ReadAll(r)
		return string(b)
	}
	type opt = sandbar.CreateOptions
	for i, c := range []struct {
		err  error
		want sandbar.Code
	}{
		{put("f", "one", opt{}), ""},
		{put("f", "two", opt{Mode: 0o600}), ""},
		{put("f", "+", opt{Append: true}), ""},
		{put("a/b/c", "deep", opt{Parents: true}), ""},
		{put("x/y", "", opt{}), sandbar.NotFound},
		{put("f/y", "", opt{Parents: true}), sandbar.Conflict},
		{put("a", "", opt{}), sandbar.Conflict},
		{put("", "", opt{}), sandbar.Invalid},
		{put("\x00", "", opt{}), sandbar.Invalid},
		{put("big", strings.Repeat("x", 93), opt{}), sandbar.NoSpace}, // 4 and 4 are used of 100
		{put("big", strings.Repeat("x", 92), opt{}), ""},
		{put("big", "y", opt{Append: true}), sandbar.NoSpace},
		{m.Remove(ctx, "big", false), ""},
		{m.Mkdir(ctx, "d", 0o700, false), ""},
		{m.Mkdir(ctx, "d", 0o700, false), sandbar.Exists},
		{m.Mkdir(ctx, "d", 0o700, true), ""},
		{m.Mkdir(ctx, "f", 0o700, true), sandbar.Exists},
		{m.Mkdir(ctx, "p/q", 0o700, false), sandbar.NotFound},
		{m.Mkdir(ctx, "p/q", 0o700, true), ""},
		{m.Rename(ctx, "f", "d/g"), ""},
		{m.Rename(ctx, "f", "h"), sandbar.NotFound},
		{m.Rename(ctx, "a", "d"), sandbar.Conflict},
		{m.Rename(ctx, "a", "a/b/z"), sandbar.Invalid},
		{m.Rename(ctx, "a", "moved"), ""},
		{m.Chmod(ctx, "moved", 0o500, true), ""},
		{m.Remove(ctx, "p", false), sandbar.Conflict},
		{m.Remove(ctx, "p", true), ""},
		{m.Remove(ctx, "p", true), sandbar.NotFound},
	} {
		if sandbar.CodeOf(c.err) != c.want {
			t.Errorf("step %d: %v, want %q", i, c.err, c.want)
		}
	}
	if get("d/g") != "two+" || get("/home/user/moved/b/c") != "deep" || get("d") != "conflict" || get("f") != "not_found" {
		t.Errorf("%q %q %q %q", get("d/g"), get("moved/b/c"), get("d"), get("f"))
	}
	if i, err := m.Stat(ctx, "moved/b/c"); err != nil || i.Mode != 0o500 || i.Size != 4 || i.Name != "c" {
		t.Errorf("%+v, %v", i, err)
	}
	var names []string
	list, err := m.ReadDir(ctx, ".", "d", 1)
	for _, i := range list {
		names = append(names, i.Name)
	}
	if err != nil || !slices.Equal(names, []string{"moved"}) {
		t.Errorf("%q, %v", names, err)
	}
	if _, err := m.ReadDir(ctx, "d/g", "", 1); sandbar.CodeOf(err) != sandbar.Conflict {
		t.Error(err)
	}
}
