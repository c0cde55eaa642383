package native

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/pycorpus"
)

// program is one program of the corpus.
type program pycorpus.Program

// said is the visible result of a program.
type said struct {
	out, err string
	exit     string
}

// stdio connects a program's streams as a protocol does.
func (p program) stdio(out, errOut *bytes.Buffer) driver.Stdio {
	std := driver.Stdio{Stdout: out, Stderr: errOut}
	if p.Stdin != nil {
		std.Stdin = strings.NewReader(*p.Stdin)
	}
	return std
}

// play runs the program in a sandbox with start, and destroys the sandbox.
func (p program) play(b driver.Sandbox, start func(driver.Stdio) (driver.Process, error)) (s said, err error) {
	defer func() {
		if derr := b.Destroy(context.Background()); err == nil {
			err = derr
		}
	}()
	var out, errOut bytes.Buffer
	proc, err := start(p.stdio(&out, &errOut))
	if err != nil {
		return s, err
	}
	r, err := proc.Wait()
	return said{anonymous(out.String()), anonymous(errOut.String()), fmt.Sprintf("%v, exit code %d, signal %d", r.Outcome, r.ExitCode, r.Signal)}, err
}

// anonymous replaces what differs from run to run: the addresses of objects, and RLIMIT_NPROC,
// which includes the agent's threads, whose number is up to the Go runtime.
func anonymous(text string) string {
	text = regexp.MustCompile("0x[0-9a-f]{8,}").ReplaceAllString(text, "0x…")
	return regexp.MustCompile(`(?m)^(Max processes) .*`).ReplaceAllString(text, "$1 …")
}

// cold runs the program in a new interpreter.
func (p program) cold(ctx context.Context, d *Driver, s driver.TemplateSpec) (said, error) {
	b, err := d.Create(ctx, sandbar.NewID(), s.Spec)
	if err != nil {
		return said{}, err
	}
	env := map[string]string{}
	for _, m := range []map[string]string{s.Env, p.Env} {
		for k, v := range m {
			env[k] = v
		}
	}
	return p.play(b, func(std driver.Stdio) (driver.Process, error) {
		if err := put(b, p.Code); err != nil {
			return nil, err
		}
		return b.Start(ctx, sandbar.Cmd{Args: append([]string{s.Argv[0], "main.py"}, p.Args...), Env: env, Dir: sandbar.DefaultDir}, std)
	})
}

// warm runs the program in a copy of the template.
func (p program) warm(ctx context.Context, tmpl driver.Template) (said, error) {
	b, err := tmpl.Fork(ctx, sandbar.NewID())
	if err != nil {
		return said{}, err
	}
	e, _ := driver.As[driver.Evaluator](b)
	return p.play(b, func(std driver.Stdio) (driver.Process, error) {
		return e.Eval(ctx, driver.Evaluation{Path: "main.py", Code: p.Code, Args: p.Args, Env: p.Env, Dir: sandbar.DefaultDir}, std)
	})
}

// A program has the same outputs and the same ending in a fork and in a new interpreter.
func TestCorpus(t *testing.T) {
	testenv.Need(t, testenv.Python)
	d := newDriver(t)
	s := pythonTemplate(d)
	ways := map[string]driver.Template{"warm": newTemplate(t, d, s)}
	if d.hasSlots() {
		d.reuse = true
		ways["warm, in a slot"] = onceTemplate(t, d)
	}
	programs := pycorpus.Programs(t)
	if len(programs) < fewestPrograms {
		t.Errorf("the corpus has %d programs; it is to have %d at least", len(programs), fewestPrograms)
	}
	work := make(chan program)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for p := range work {
				compare(t, d, s, ways, p)
			}
		})
	}
	for i, p := range programs {
		if testenv.Long() || i%4 == min(os.Geteuid(), 1) { // root and an ordinary user run different ones
			work <- program(p)
		}
	}
	close(work)
	all.Wait()
}

// fewestPrograms is the least number of programs in the corpus.
const fewestPrograms = 200

func compare(t *testing.T, d *Driver, s driver.TemplateSpec, ways map[string]driver.Template, p program) {
	want, err := p.cold(t.Context(), d, s)
	if err != nil {
		t.Errorf("%s: cold: %v", p.Name, err)
		return
	}
	for way, tmpl := range ways {
		got, err := p.warm(t.Context(), tmpl)
		if sandbar.CodeOf(err) == sandbar.Unsupported && len(p.Env) > 0 {
			return // the engine starts it cold
		}
		if err != nil {
			t.Errorf("%s: %s: %v", p.Name, way, err)
			continue
		}
		if got != want {
			t.Errorf("%s: %s it says\n%s\n%s(%s)\nand cold\n%s\n%s(%s)", p.Name, way, got.out, got.err, got.exit, want.out, want.err, want.exit)
		}
	}
	if want.out+want.err == "" && strings.HasSuffix(want.exit, "exit code 0, signal 0") {
		t.Errorf("%s: shows nothing that could differ", p.Name)
	}
}
