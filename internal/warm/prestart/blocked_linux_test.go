package prestart_test

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
	"github.com/sandbar-dev/sandbar/internal/warm/prestart"
)

func shell(t *testing.T, d driver.Driver) func(change ...func(*sandbar.Spec)) driver.Sandbox {
	return func(change ...func(*sandbar.Spec)) driver.Sandbox {
		s := spec()
		for _, f := range change {
			f(&s)
		}
		tpl, err := prestart.Prepare(d, driver.TemplateSpec{Spec: s, Language: "shell", Argv: []string{"sh"}, File: "main.sh"})
		if err != nil {
			t.Fatal(err)
		}
		sb, err := tpl.Fork(t.Context(), sandbar.NewID())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := sb.Destroy(context.Background()); err != nil {
				t.Error(err)
			}
		})
		return sb
	}
}

// with is an evaluation of code.
func with(e driver.Evaluation, code string) driver.Evaluation {
	e.Code = code
	return e
}

func TestBlockedShell(t *testing.T) {
	fork := shell(t, nativeDriver(t))
	job := driver.Evaluation{Path: "main.sh"}
	run := func(t *testing.T, sb driver.Sandbox, code string) (sandbar.Result, string) {
		t.Helper()
		var out bytes.Buffer
		p, err := sb.(driver.Evaluator).Eval(t.Context(), with(job, code), driver.Stdio{Stdout: &out, Stderr: &out})
		if err != nil {
			t.Fatal(err)
		}
		r, err := p.Wait()
		if err != nil {
			t.Fatal(err)
		}
		return r, out.String()
	}
	beside := func(t *testing.T, sb driver.Sandbox, command string) string {
		t.Helper()
		var out bytes.Buffer
		p, err := sb.Start(t.Context(), sandbar.Cmd{Args: []string{"sh", "-c", command}}, driver.Stdio{Stdout: &out, Stderr: &out})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := p.Wait(); err != nil || r.ExitCode != 0 {
			t.Fatalf("%+v, %v: %s", r, err, &out)
		}
		return out.String()
	}

	t.Run("is used once, and numbered", func(t *testing.T) {
		sb := fork()
		p, err := sb.(driver.Evaluator).Eval(t.Context(), with(job, "exit 3"), driver.Stdio{})
		if err != nil {
			t.Fatal(err)
		}
		if n := p.PID(); n < 2 {
			t.Errorf("its number is not known")
		}
		if _, err := sb.(driver.Evaluator).Eval(t.Context(), job, driver.Stdio{}); sandbar.CodeOf(err) != sandbar.Conflict {
			t.Errorf("a second program: %v", err)
		}
		if r, err := p.Wait(); err != nil || r.ExitCode != 3 {
			t.Errorf("%+v, %v", r, err)
		}
	})
	t.Run("its time begins when it goes on", func(t *testing.T) {
		sb := fork()
		time.Sleep(300 * time.Millisecond)
		goesOn := time.Now()
		if r, _ := run(t, sb, "true"); r.Duration <= 0 || r.Duration > time.Since(goesOn) {
			t.Errorf("it took %v, and went on %v ago", r.Duration, time.Since(goesOn))
		}
	})
	t.Run("other programs go beside it", func(t *testing.T) {
		sb := fork()
		if got := beside(t, sb, "echo beside"); got != "beside\n" {
			t.Errorf("got %q", got)
		}
		if _, got := run(t, sb, "echo released; ls -A"); got != "released\nmain.sh\n" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("stopped before, it still runs", func(t *testing.T) {
		sb := fork()
		beside(t, sb, "kill -STOP $(grep -l '[m]ain.sh' /proc/[0-9]*/cmdline | cut -d/ -f3)")
		if _, got := run(t, sb, "echo released"); got != "released\n" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("interrupted, it waits on", func(t *testing.T) {
		sb := fork()
		beside(t, sb, "for i in 1 2 3; do kill -CONT $(grep -l '[m]ain.sh' /proc/[0-9]*/cmdline | cut -d/ -f3); done")
		if _, got := run(t, sb, "echo released"); got != "released\n" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("dies while it waits", func(t *testing.T) {
		sb := fork()
		beside(t, sb, "kill -9 $(grep -l '[m]ain.sh' /proc/[0-9]*/cmdline | cut -d/ -f3)")
		select {
		case <-prestart.Ended(sb):
		case <-time.After(time.Minute):
			t.Fatal("it does not end")
		}
		if _, err := sb.(driver.Evaluator).Eval(t.Context(), job, driver.Stdio{}); sandbar.CodeOf(err) != sandbar.Gone {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a program without room does not run", func(t *testing.T) {
		sb := fork(func(s *sandbar.Spec) { s.Limits.Disk = 16 << 10 })
		var out bytes.Buffer
		code := "echo began\n" + strings.Repeat("# x\n", 10<<10)
		_, err := sb.(driver.Evaluator).Eval(t.Context(), with(job, code), driver.Stdio{Stdout: &out})
		if sandbar.CodeOf(err) != sandbar.NoSpace || out.Len() > 0 {
			t.Errorf("got %v, output %q", err, &out)
		}
	})
	t.Run("another start leaves nothing of the first", func(t *testing.T) {
		sb := fork()
		var out bytes.Buffer
		e := job
		e.Args = []string{"a"}
		p, err := sb.(driver.Evaluator).Eval(t.Context(), with(e, `echo "$1"; ls -A; set -- /proc/[0-9]*; echo $#`), driver.Stdio{Stdout: &out})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := p.Wait(); err != nil || r.ExitCode != 0 || out.String() != "a\nmain.sh\n2\n" {
			t.Errorf("%+v, %v: %q", r, err, &out)
		}
	})
	t.Run("a large program is whole", func(t *testing.T) {
		sb := fork()
		code := strings.Repeat("# x\n", sandbar.MaxPut) + "wc -c <main.sh"
		if _, got := run(t, sb, code); got != strconv.Itoa(len(code))+"\n" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("input is refused", func(t *testing.T) {
		h, _ := driver.As[prestart.Blocker](fork())
		if _, err := h.StartBlocked(t.Context(), sandbar.Cmd{Args: []string{"sh", "x"}}, "x", driver.Stdio{Stdin: strings.NewReader("")}); sandbar.CodeOf(err) != sandbar.Invalid {
			t.Errorf("got %v", err)
		}
	})
	t.Run("what has ended is not released", func(t *testing.T) {
		h, _ := driver.As[prestart.Blocker](fork())
		p, err := h.StartBlocked(t.Context(), sandbar.Cmd{Args: []string{"true"}}, "x", driver.Stdio{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Wait(); err != nil {
			t.Error(err)
		}
		b, _ := driver.As[prestart.Blocked](p)
		if err := b.Release(t.Context(), "true"); sandbar.CodeOf(err) != sandbar.Gone {
			t.Errorf("got %v", err)
		}
	})
	t.Run("released as it starts, it runs", func(t *testing.T) {
		for range 100 {
			if _, got := run(t, fork(), "echo early"); got != "early\n" {
				t.Fatalf("got %q", got)
			}
		}
	})
}

// Fork of a shell needs a driver with Blocker.
func TestShellWithoutBlocker(t *testing.T) {
	d := faulty.New()
	tpl, err := prestart.Prepare(d, driver.TemplateSpec{Language: "shell", Argv: []string{"sh"}, File: "main.sh"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tpl.Fork(t.Context(), sandbar.NewID()); sandbar.CodeOf(err) != sandbar.Unsupported {
		t.Errorf("got %v", err)
	}
	if err := d.Leaks(); err != nil {
		t.Error(err)
	}
}
