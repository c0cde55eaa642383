package prestart_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/driver/native"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/pycorpus"
	"github.com/sandbar-dev/sandbar/internal/warm/prestart"
)

// program is one of a corpus: a file of testdata. Lines at its beginning of the form "// args: …",
// "// env: A=b", "// stdin: …" say what it is given ("# …" for Elixir).
type program struct {
	name, text string
	args       []string
	env        map[string]string
	stdin      *string
}

func corpus(t *testing.T, dir string) (all []program) {
	t.Helper()
	files, err := fs.Glob(os.DirFS("testdata"), dir+"/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no programs in testdata/%s: %v", dir, err)
	}
	for _, f := range files {
		text, err := os.ReadFile("testdata/" + f)
		if err != nil {
			t.Fatal(err)
		}
		p := program{name: path.Base(f), text: string(text), env: map[string]string{}}
		for line := range strings.Lines(p.text) {
			key, value, ok := strings.Cut(strings.TrimSpace(strings.TrimLeft(line, "/# ")), ": ")
			if !ok {
				break
			}
			switch key {
			case "args":
				p.args = strings.Split(value, " ")
			case "env":
				name, v, _ := strings.Cut(value, "=")
				p.env[name] = v
			case "stdin":
				in := strings.ReplaceAll(value, `\n`, "\n")
				p.stdin = &in
			}
		}
		all = append(all, p)
	}
	return all
}

// outcome is what a program did, as its caller sees it.
type outcome struct {
	Stdout, Stderr string
	Outcome        sandbar.Outcome
	ExitCode       int
	Signal         int
}

func spec() sandbar.Spec {
	return sandbar.Spec{Image: sandbar.ImageHost, Network: sandbar.NetworkNone, AllowDegraded: true, Limits: sandbar.Limits{
		Memory: 512 << 20, CPUs: sandbar.Unlimited, CPUShares: 512, PIDs: 128, Disk: 64 << 20, Inodes: 4096, Files: 1024,
		Timeout: time.Minute, Output: 1 << 20}}
}

func nativeDriver(t *testing.T) driver.Driver {
	t.Helper()
	testenv.Need(t, testenv.UserNS)
	agent, err := os.ReadFile(testenv.Build(t, "cmd/sandbar-agent"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := native.New(driver.Host{}, agent)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func write(t *testing.T, sb driver.Sandbox, name, text string) {
	t.Helper()
	w, err := sb.FS().Create(t.Context(), name, sandbar.CreateOptions{})
	if err == nil {
		_, err = io.WriteString(w, text)
	}
	if err == nil {
		err = w.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (p program) stdio(out, err *bytes.Buffer) driver.Stdio {
	std := driver.Stdio{Stdout: out, Stderr: err}
	if p.stdin != nil {
		std.Stdin = strings.NewReader(*p.stdin)
	}
	return std
}

// finish waits for a program and destroys its sandbox.
func finish(t *testing.T, sb driver.Sandbox, p driver.Process, out, errOut *bytes.Buffer) outcome {
	t.Helper()
	type answer struct {
		r   sandbar.Result
		err error
	}
	done := make(chan answer, 1)
	go func() {
		r, err := p.Wait()
		done <- answer{r, err}
	}()
	select {
	case a := <-done:
		if a.err != nil {
			t.Fatal(a.err)
		}
		if err := sb.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
		// Numbers of processes, node's and those within a BEAM, and addresses are others every time.
		varies := regexp.MustCompile(`\(node:\d+\)|#PID<[\d.]+>|0x[0-9a-f]{8,}`)
		return outcome{varies.ReplaceAllString(out.String(), "NUMBER"), varies.ReplaceAllString(errOut.String(), "NUMBER"), a.r.Outcome, a.r.ExitCode, a.r.Signal}
	case <-time.After(2 * time.Minute):
		t.Fatalf("the program hangs; so far %q and %q", out, errOut)
	}
	return outcome{}
}

// compare runs every program of a corpus cold and warm and compares the outcomes.
func compare(t *testing.T, programs []program, language, interpreter, file string, env map[string]string) {
	d := nativeDriver(t)
	templates := map[string]driver.Template{}
	for way, once := range map[string]bool{"in a sandbox with files": false, "in a sandbox for one program": true} {
		if o, ok := d.(driver.OneShotter); once && (!ok || !o.TakesOneShots(spec()) || prestart.StartsFast(language)) {
			continue // both are the same
		}
		tpl, err := prestart.Prepare(d, driver.TemplateSpec{Spec: spec(), Language: language, Argv: []string{interpreter}, File: file, Env: env, Once: once})
		if err != nil {
			t.Fatal(err)
		}
		templates[way] = tpl
	}
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			all := maps.Clone(p.env)
			maps.Copy(all, env)
			cold := func() outcome {
				sb, err := d.Create(t.Context(), sandbar.NewID(), spec())
				if err != nil {
					t.Fatal(err)
				}
				defer sb.Destroy(context.Background())
				write(t, sb, file, p.text)
				var out, errOut bytes.Buffer
				run, err := sb.Start(t.Context(), sandbar.Cmd{Args: append([]string{interpreter, file}, p.args...), Env: all, Dir: sandbar.DefaultDir}, p.stdio(&out, &errOut))
				if err != nil {
					t.Fatal(err)
				}
				return finish(t, sb, run, &out, &errOut)
			}()
			if strings.Contains(p.text, "wants output") && cold.Stdout == "" {
				t.Errorf("the program wrote nothing: %s", cold.Stderr)
			}
			job := driver.Evaluation{Path: file, Args: p.args, Env: all, Dir: sandbar.DefaultDir}
			for way, tpl := range templates {
				warm := func() outcome {
					sb, err := tpl.Fork(t.Context(), sandbar.NewID())
					if err != nil {
						t.Fatal(err)
					}
					defer sb.Destroy(context.Background())
					_, err = sb.FS().Stat(t.Context(), ".")
					if alone := sandbar.CodeOf(err) == sandbar.Unsupported; alone != (way == "in a sandbox for one program") {
						t.Errorf("%s: looking at its files: %v", way, err)
					}
					var out, errOut bytes.Buffer
					run, err := sb.(driver.Evaluator).Eval(t.Context(), with(job, p.text), p.stdio(&out, &errOut))
					if sandbar.CodeOf(err) == sandbar.Unsupported && len(p.env) > 0 {
						return cold // the engine starts it cold
					}
					if err != nil {
						t.Fatal(err)
					}
					return finish(t, sb, run, &out, &errOut)
				}()
				if diff := cmp.Diff(cold, warm); diff != "" {
					t.Errorf("cold (-) and warm (+, %s) differ:\n%.2000s", way, diff)
				}
			}
		})
	}
}

func TestNodeCannotTell(t *testing.T) {
	testenv.Need(t, testenv.Node)
	compare(t, corpus(t, "javascript"), "javascript", "node", "main.js", nil)
}

// A prestarted Python runs the corpus that forked Pythons run too.
func TestPythonCannotTell(t *testing.T) {
	testenv.Need(t, testenv.Python)
	// /proc shows how the process was started: without the job's arguments and environment.
	tells := []string{"start/cmdline", "start/environ-proc", "start/environ-proc-set"}
	var programs []program
	for i, p := range pycorpus.Programs(t) {
		// make test-all takes all, make test every third.
		if !slices.Contains(tells, p.Name) && (testenv.Long() || i%3 == 0) {
			programs = append(programs, program{p.Name, p.Code, p.Args, p.Env, p.Stdin})
		}
	}
	compare(t, programs, "python", "python3", "main.py", nil)
}

func TestElixirCannotTell(t *testing.T) {
	testenv.Need(t, testenv.Elixir)
	compare(t, corpus(t, "elixir"), "elixir", "elixir", "main.exs", map[string]string{"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"})
}

func TestShellCannotTell(t *testing.T) {
	compare(t, corpus(t, "shell"), "shell", "sh", "main.sh", nil)
}

// The process of a fork has a process id, can be signalled and killed with its tree, and is used
// once. If it dies before Eval, Eval returns Gone.
func TestPausedInterpreter(t *testing.T) {
	testenv.Need(t, testenv.Node)
	d := nativeDriver(t)
	tpl, err := prestart.Prepare(d, driver.TemplateSpec{Spec: spec(), Language: "javascript", Argv: []string{"node"}, File: "main.js"})
	if err != nil {
		t.Fatal(err)
	}
	fork := func() driver.Sandbox {
		sb, err := tpl.Fork(t.Context(), sandbar.NewID())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sb.Destroy(context.Background()) })
		return sb
	}
	eval := func(sb driver.Sandbox, text string, std driver.Stdio) driver.Process {
		p, err := sb.(driver.Evaluator).Eval(t.Context(), driver.Evaluation{Path: "main.js", Code: text}, std)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}

	t.Run("is numbered, signalled, and used once", func(t *testing.T) {
		sb := fork()
		r, w := io.Pipe()
		defer w.Close()
		p := eval(sb, `process.on('SIGTERM', () => process.exit(7)); setInterval(() => {}, 1000); console.log(process.pid)`, driver.Stdio{Stdout: w})
		pid := 0
		if _, err := fmt.Fscan(r, &pid); err != nil {
			t.Fatal(err)
		}
		if n := p.PID(); n != pid {
			t.Errorf("number %d, the program says %d", n, pid)
		}
		if _, err := sb.(driver.Evaluator).Eval(t.Context(), driver.Evaluation{Path: "main.js"}, driver.Stdio{}); sandbar.CodeOf(err) != sandbar.Conflict {
			t.Errorf("a second program: %v", err)
		}
		go io.Copy(io.Discard, r)
		if err := p.Signal(15); err != nil {
			t.Fatal(err)
		}
		if res, err := p.Wait(); err != nil || res.ExitCode != 7 {
			t.Errorf("%+v, %v; want exit code 7", res, err)
		}
	})
	t.Run("is killed with its tree", func(t *testing.T) {
		sb := fork()
		r, w := io.Pipe()
		defer w.Close()
		p := eval(sb, `require('child_process').spawn('sleep', ['1000'], {detached: true}); console.log('up'); setInterval(() => {}, 1000)`, driver.Stdio{Stdout: w})
		word := ""
		if _, err := fmt.Fscan(r, &word); err != nil {
			t.Fatal(err)
		}
		go io.Copy(io.Discard, r)
		if err := p.KillTree(); err != nil {
			t.Fatal(err)
		}
		if res, err := p.Wait(); err != nil || res.Signal != 9 {
			t.Errorf("%+v, %v; want signal 9", res, err)
		}
	})
	t.Run("dies while it waits", func(t *testing.T) {
		sb := fork()
		kill, err := sb.Start(t.Context(), sandbar.Cmd{Args: []string{"sh", "-c", "kill -9 $(cat /proc/[0-9]*/stat | grep '(node)' | cut -d' ' -f1)"}, Dir: "/"}, driver.Stdio{})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := kill.Wait(); err != nil || r.ExitCode != 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		select {
		case <-prestart.Ended(sb):
		case <-time.After(time.Minute):
			t.Fatal("the interpreter does not end")
		}
		if _, err := sb.(driver.Evaluator).Eval(t.Context(), driver.Evaluation{Path: "main.js"}, driver.Stdio{}); sandbar.CodeOf(err) != sandbar.Gone {
			t.Errorf("got %v", err)
		}
	})
}

// slowEnd is an input whose end of file is delayed.
type slowEnd struct{ *strings.Reader }

func (s slowEnd) Read(p []byte) (int, error) {
	if s.Len() == 0 {
		time.Sleep(300 * time.Millisecond)
	}
	return s.Reader.Read(p)
}

// A program whose input is known as a whole starts after the end of the input: the BEAM would lose
// a last line without a newline.
func TestElixirHasItsWholeInput(t *testing.T) {
	testenv.Need(t, testenv.Elixir)
	tpl, err := prestart.Prepare(nativeDriver(t), driver.TemplateSpec{Spec: spec(), Language: "elixir", Argv: []string{"elixir"}, File: "main.exs"})
	if err != nil {
		t.Fatal(err)
	}
	sb, err := tpl.Fork(t.Context(), sandbar.NewID())
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Destroy(context.Background())
	var out, errOut bytes.Buffer
	p, err := sb.(driver.Evaluator).Eval(t.Context(), driver.Evaluation{Path: "main.exs", Code: `IO.write(String.trim(IO.gets("")))`},
		driver.Stdio{Stdin: slowEnd{strings.NewReader("world")}, Stdout: &out, Stderr: &errOut})
	if err != nil {
		t.Fatal(err)
	}
	if got := finish(t, sb, p, &out, &errOut); got.Stdout != "world" {
		t.Errorf("%+v", got)
	}
}
