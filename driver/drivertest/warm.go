package drivertest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/warm/prestart"
)

// warmKind is one way to prestart an interpreter.
type warmKind struct {
	name                        string // in the names of cases
	language, interpreter, file string
	forked                      bool // by the driver's Templater
	single                      bool // with TemplateSpec.Once; not forked: in a driver.OneShotter
	prepare                     func(context.Context, driver.Driver, driver.TemplateSpec) (driver.Template, error)
	// Programs. show prints its arguments, the variable WARM, its directory, the directory's files
	// and its input, and exits with 3. fail ends with an error of the interpreter, die with a
	// signal.
	show, fail, die string
	// wait prints "up" and its process id, and ends when the file go exists.
	wait string
	// strange prints on its first line values that must differ between two sandboxes, and on the
	// second line traces of another program. It leaves such traces itself.
	strange, stranger string
	tree              string // starts "sleep %d", prints "up" and waits
	start             string // a variable that the interpreter reads as it starts; "" for none
}

const (
	showPython = `import os, sys
print(sys.argv, os.environ.get("WARM"), os.getcwd(), oct(os.stat(sys.argv[0]).st_mode), sorted(os.listdir(".")), __name__, __file__)
print(sorted(sys.modules), sys.path, sys.flags)
print(sys.stdin.read())
print("error", file=sys.stderr)
sys.exit(3)
`
	waitPython = `import os, time
print("up", os.getpid(), flush=True)
while not os.path.exists("go"): time.sleep(0.005)
`
	strangePython = `import os, random, secrets, sys, uuid
print(random.random(), random.Random().random(), secrets.token_hex(8), uuid.uuid4(), os.urandom(8))
print(sorted(os.listdir(".")), os.environ.get("TRACE"), "trace" in sys.modules, hasattr(random, "trace"))
open("trace", "w").close(); os.environ["TRACE"] = "1"; sys.modules["trace"] = sys; random.trace = 1
`
)

// warmKinds are the kinds. Forked ones need driver.Templater, the others only package prestart.
func warmKinds() []warmKind {
	python := warmKind{name: "prestarted-python", language: "python", interpreter: "python3", file: "main.py", prepare: prestarted,
		show: showPython, fail: "def f(): return 1 / 0\nf()", die: "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)",
		wait: waitPython, strange: strangePython, stranger: "['main.py'] None False False", start: "PYTHONHASHSEED",
		tree: `import subprocess
p = subprocess.Popen(["sleep", "%d"], start_new_session=True)
print("up", flush=True)
p.wait()`}
	forked := python
	forked.name, forked.forked = "forked-python", true
	forked.prepare = func(ctx context.Context, d driver.Driver, t driver.TemplateSpec) (driver.Template, error) {
		if f, ok := driver.As[driver.Templater](d); ok {
			return f.Prepare(ctx, t)
		}
		return nil, sandbar.Errorf(sandbar.Unsupported, "the driver has no Templater")
	}
	single := forked
	single.name, single.single = "single-python", true
	shell := warmKind{name: "blocked-shell", language: "shell", interpreter: "sh", file: "main.sh", prepare: prestarted,
		show: `printf '%s\n' "$0" "$@" "$WARM" "$(pwd)"; ls -A; ls -l main.sh | cut -c 1-10; cat; echo error >&2; exit 3`,
		fail: "if true; then", die: "kill -9 $$", wait: "echo up $$; until [ -e go ]; do sleep 0.01; done",
		strange:  `tr -d '\n' </proc/sys/kernel/random/uuid; echo; echo $(ls -A) ${TRACE-none}; : >trace; TRACE=1`,
		stranger: "main.sh none", tree: "sleep %d & echo up; exec sleep 1000"}
	alone := python
	alone.name, alone.single = "single-prestarted-python", true
	return []warmKind{forked, single, python, alone, shell}
}

func prestarted(_ context.Context, d driver.Driver, t driver.TemplateSpec) (driver.Template, error) {
	return prestart.Prepare(d, t)
}

// warmCases test that a program runs in a prestarted sandbox as in a new one.
func warmCases() (all []testCase) {
	for _, k := range warmKinds() {
		needs := []need{needWarm(k)}
		if k.forked {
			needs = append([]need{needFactoryAbility[driver.Templater]("Templater")}, needs...)
		}
		if k.single && !k.forked {
			needs = append([]need{needFactoryAbility[driver.OneShotter]("OneShotter")}, needs...)
		}
		if k.language == "python" {
			needs = append([]need{needPython()}, needs...)
		}
		once := k.once
		if k.single {
			once = k.only
		}
		for _, t := range []testCase{
			{name: "same", run: k.same}, {name: "once", run: once}, {name: "gone", run: k.gone}, {name: "refuses", run: k.refuses},
			{name: "fails", run: k.fails}, {name: "strangers", run: k.strangers}, {name: "killed", run: k.killed},
		} {
			all = append(all, testCase{t.name + "-" + k.name, needs, t.run})
		}
		if k.forked {
			all = append(all, testCase{"dies-" + k.name, needs, k.dies})
		}
	}
	return all
}

// needWarm requires that the driver can warm the kind, which one fork shows. What a Templater
// refuses depends on the host and on the Harness.
func needWarm(k warmKind) need {
	return need{ofDriver: !k.forked, unmet: func(s *suite) string { return s.warm[k.name] }}
}

// probeTimeout bounds one fork of tryTemplate.
const probeTimeout = time.Minute

// tryTemplate forks t once and closes it.
func (c *C) tryTemplate(t driver.Template) error {
	ctx, cancel := context.WithTimeout(c.ctx, probeTimeout)
	defer cancel()
	b, err := t.Fork(ctx, c.newID())
	if err == nil {
		c.destroy(b)
	}
	c.ok(t.Close(), "Template.Close")
	return err
}

// probeWarm forks one sandbox of every kind and records why a kind is not possible.
func probeWarm(c *C) {
	for _, k := range warmKinds() {
		t, err := k.prepare(c.ctx, c.d, k.spec(c))
		if err == nil {
			err = c.tryTemplate(t)
		}
		switch sandbar.CodeOf(err) {
		case "":
		case sandbar.Unsupported, sandbar.NotFound:
			c.s.warm[k.name] = "the driver has no " + k.name
		default:
			c.ok(err, "a fork of %s", k.name)
		}
	}
}

// spec returns the TemplateSpec. Its Env has the suite's token, so that a blocked shell has the
// environment of its program.
func (k warmKind) spec(c *C) driver.TemplateSpec {
	s := c.spec()
	env := s.Env
	s.Env = nil
	return driver.TemplateSpec{Spec: s, Language: k.language, Argv: []string{k.interpreter}, File: k.file, Env: env, Once: k.single}
}

// template prepares a template that is closed after the case.
func (k warmKind) template(c *C, change ...func(*driver.TemplateSpec)) driver.Template {
	s := k.spec(c)
	for _, f := range change {
		f(&s)
	}
	t, err := k.prepare(c.ctx, c.d, s)
	c.ok(err, "Prepare")
	c.Cleanup(func() { c.ok(t.Close(), "Template.Close") })
	return t
}

// fork forks a sandbox that is destroyed after the case.
func (c *C) fork(t driver.Template) driver.Sandbox {
	b, err := t.Fork(c.ctx, c.newID())
	c.ok(err, "Fork")
	c.Cleanup(func() { c.destroy(b) })
	return b
}

// eval runs a program in a fork.
func (k warmKind) eval(c *C, b driver.Sandbox, e driver.Evaluation, std driver.Stdio) (driver.Process, error) {
	v, ok := driver.As[driver.Evaluator](b)
	if !ok {
		c.Fatalf("a fork has no Evaluator")
	}
	env := maps.Clone(k.spec(c).Env)
	maps.Copy(env, e.Env)
	e.Env = env
	if e.Path == "" {
		e.Path = k.file
	}
	return v.Eval(c.ctx, e, std)
}

// begin runs a program in a fork with its output in a buffer.
func (k warmKind) begin(c *C, b driver.Sandbox, code string, env map[string]string) (driver.Process, *buffer) {
	out := &buffer{}
	p, err := k.eval(c, b, driver.Evaluation{Code: code, Env: env}, driver.Stdio{Stdout: both{out}, Stderr: both{out}})
	c.ok(err, "Eval")
	return p, out
}

// same compares the results of programs after a cold and after a warm start.
func (k warmKind) same(c *C) {
	t := k.template(c)
	for name, p := range map[string]struct {
		code, in string
		args     []string
		env      map[string]string
	}{
		"nothing":   {code: ""},
		"show":      {code: k.show},
		"arguments": {code: k.show, args: []string{"a b", "", "ü", "-c"}, env: map[string]string{"WARM": "some thing"}, in: "a line\nmore"},
		"large":     {code: k.show + strings.Repeat("# A comment.\n", sandbar.MaxPut/8)},
		"error":     {code: k.fail},
		"signal":    {code: k.die},
	} {
		stdin := func() io.Reader {
			if p.in == "" {
				return nil
			}
			return strings.NewReader(p.in)
		}
		cold := c.box()
		c.ok(driver.WriteFile(c.ctx, cold.FS(), k.file, []byte(p.code)), "writing the program")
		want := c.exec(cold, sandbar.Cmd{Args: append([]string{k.interpreter, k.file}, p.args...), Env: p.env, Dir: sandbar.DefaultDir}, stdin())

		b := c.fork(t)
		e := driver.Evaluation{Args: p.args, Env: p.env, Code: p.code}
		var out, errOut buffer
		run, err := k.eval(c, b, e, driver.Stdio{Stdin: stdin(), Stdout: &out, Stderr: &errOut})
		c.ok(err, "Eval of %s", name)
		got := ran{c.wait(run), out.String(), errOut.String()}
		c.counted(got.Result, int64(len(got.out)), int64(len(got.errOut)))
		if diff := cmp.Diff(shown(want), shown(got)); diff != "" {
			c.Errorf("%s: cold (-) and warm (+) differ:\n%.2000s", name, diff)
		}
		if got.Duration <= 0 {
			c.Errorf("%s: the result has no Duration", name)
		}
		c.destroy(cold)
		c.destroy(b)
	}
}

// shown returns a program's result without ids of sandboxes. Without its own root file system a
// sandbox has its id in paths.
func shown(r ran) []string {
	id := regexp.MustCompile(`sb_[a-z2-7]{26}`)
	return []string{fmt.Sprint(r.Outcome, r.ExitCode, r.Signal), id.ReplaceAllString(r.out, "ID"), id.ReplaceAllString(r.errOut, "ID")}
}

// once tests that an interpreter runs one program, and that the sandbox otherwise is a normal one.
func (k warmKind) once(c *C) {
	b := c.fork(k.template(c))
	c.exited(c.sh(b, "exit 4"), 4, "a program before the interpreter's")
	p, out := k.begin(c, b, k.wait, nil)
	c.until(out.has("\n"), "the program is up")
	if pid := p.PID(); pid != 0 && out.String() != fmt.Sprintf("up %d\n", pid) {
		c.Errorf("PID says %d; the program prints %s", pid, sandbar.Quote(out.String(), 100))
	}
	_, err := k.eval(c, b, driver.Evaluation{Code: k.wait}, driver.Stdio{})
	c.code(err, "a second Eval", sandbar.Conflict)
	c.exited(c.sh(b, "exit 5"), 5, "a program beside the interpreter's")
	c.ok(driver.WriteFile(c.ctx, b.FS(), "go", nil), "writing a file")
	if r := c.wait(p); r.Outcome != sandbar.Exited || r.ExitCode != 0 {
		c.Errorf("the program: %+v, %s", r, out)
	}
	_, err = k.eval(c, b, driver.Evaluation{Code: k.wait}, driver.Stdio{})
	c.code(err, "an Eval after the program's end", sandbar.Conflict)
	c.exited(c.sh(b, "exit 6"), 6, "a program after the interpreter's")
}

// only tests that an interpreter of a fork for one Evaluation runs one program, and that the fork
// does all else as others or refuses it.
func (k warmKind) only(c *C) {
	b := c.fork(k.template(c))
	code := strings.ReplaceAll(k.wait, "go", k.file) // exists
	p, out := k.begin(c, b, code, nil)
	if r := c.wait(p); r.Outcome != sandbar.Exited || r.ExitCode != 0 || out.String() != fmt.Sprintf("up %d\n", p.PID()) {
		c.Errorf("the program %d: %+v, %s", p.PID(), r, out)
	}
	_, err := k.eval(c, b, driver.Evaluation{Code: code}, driver.Stdio{})
	c.code(err, "a second Eval", sandbar.Conflict)
	if _, err := b.FS().Stat(c.ctx, k.file); err != nil {
		c.code(err, "Stat", sandbar.Unsupported)
	}
	if q, err := b.Start(c.ctx, sandbar.Cmd{Args: []string{"true"}}, driver.Stdio{}); err != nil {
		c.code(err, "Start", sandbar.Unsupported)
	} else if r := c.wait(q); r.ExitCode != 0 {
		c.Errorf("true: %+v", r)
	}
}

// gone tests that Eval fails after the end of the sandbox or of the interpreter.
func (k warmKind) gone(c *C) {
	t := k.template(c)
	b := c.fork(t)
	c.destroy(b)
	_, err := k.eval(c, b, driver.Evaluation{Code: k.show}, driver.Stdio{})
	c.code(err, "Eval after Destroy", sandbar.Gone)
	before := c.processes()
	b = c.fork(t)
	if killNew(before, c.processes(), k.interpreter) == 0 {
		c.Logf("the interpreter is no process of the host")
		return
	}
	out := &buffer{}
	p, err := k.eval(c, b, driver.Evaluation{Code: k.show}, driver.Stdio{Stdout: out})
	if err != nil {
		c.code(err, "Eval after the interpreter's death", sandbar.Gone)
	} else if r := c.wait(p); r.Outcome != sandbar.Signaled && r.Outcome != sandbar.Lost || out.String() != "" {
		c.Errorf("a program whose interpreter had been killed: %+v, output %s", r, sandbar.Quote(out.String(), 100))
	}
}

// refuses tests that Eval refuses a program that would not run as after a cold start, and that no
// part of it runs.
func (k warmKind) refuses(c *C) {
	t := k.template(c)
	jobs := map[string]driver.Evaluation{"another file": {Path: "other"}}
	if k.start != "" {
		jobs["a variable of the start"] = driver.Evaluation{Env: map[string]string{k.start: "7"}}
	}
	for what, e := range jobs {
		e.Code = k.show
		in, out := &touched{}, &buffer{}
		b := c.fork(t)
		_, err := k.eval(c, b, e, driver.Stdio{Stdin: in, Stdout: out})
		c.code(err, "Eval with "+what, sandbar.Unsupported)
		c.destroy(b)
		if in.yes || out.String() != "" {
			c.Errorf("with %s the program was read from, or ran: %s", what, sandbar.Quote(out.String(), 100))
		}
	}
}

// touched is an input that records whether it was read.
type touched struct{ yes bool }

func (t *touched) Read([]byte) (int, error) { t.yes = true; return 0, io.EOF }

// fails tests that a failure to prepare or to fork is an error with a code, and does not affect the
// template.
func (k warmKind) fails(c *C) {
	for what, change := range map[string]func(*driver.TemplateSpec){
		"an interpreter that does not exist": func(s *driver.TemplateSpec) { s.Argv = []string{"no-such-interpreter"} },
		"a module that does not exist":       func(s *driver.TemplateSpec) { s.Imports = []string{"no_such_module"} },
		"a language that does not exist":     func(s *driver.TemplateSpec) { s.Language = "no-such-language" },
	} {
		s := k.spec(c)
		change(&s)
		t, err := k.prepare(c.ctx, c.d, s)
		if err == nil {
			err = c.tryTemplate(t)
		}
		c.code(err, "a template with "+what, sandbar.Unsupported, sandbar.NotFound, sandbar.Invalid)
	}
	small := c.s.caps.Enforced.Disk != sandbar.EnforcedNone
	t := k.template(c, func(s *driver.TemplateSpec) {
		if small {
			s.Spec.Limits.Disk = 1 << 20
		}
	})
	over, cancel := context.WithCancel(c.ctx)
	cancel()
	b, err := t.Fork(over, c.newID())
	c.code(err, "Fork with a context that has ended", sandbar.Canceled)
	if err == nil {
		c.destroy(b)
	}
	id := c.newID()
	b, err = t.Fork(c.ctx, id)
	c.ok(err, "Fork")
	c.Cleanup(func() { c.destroy(b) })
	_, err = t.Fork(c.ctx, id)
	c.code(err, "Fork with the id of another", sandbar.Exists)
	if small {
		code, out := k.show+strings.Repeat("# A comment.\n", 1<<18), &buffer{}
		_, err = k.eval(c, c.fork(t), driver.Evaluation{Code: code}, driver.Stdio{Stdout: out})
		refused := []sandbar.Code{sandbar.NoSpace}
		if k.single {
			refused = append(refused, sandbar.Unsupported)
		}
		c.code(err, "Eval of more than the disk holds", refused...)
		if out.String() != "" {
			c.Errorf("a program ran without its code: %s", sandbar.Quote(out.String(), 100))
		}
	}
	p, out := k.begin(c, b, k.show, nil)
	if r := c.wait(p); r.ExitCode != 3 {
		c.Errorf("a program of the template after its failures: %+v, %s", r, out)
	}
}

// strangers tests that two forks of one template share no traces and have different random numbers.
func (k warmKind) strangers(c *C) {
	t := k.template(c)
	boxes := []driver.Sandbox{c.fork(t), c.fork(t), c.fork(t)}
	random := map[string]bool{}
	for i, b := range boxes {
		p, out := k.begin(c, b, k.strange, nil)
		c.wait(p)
		own, found, _ := strings.Cut(out.String(), "\n")
		for _, word := range strings.Fields(own) {
			if random[word] {
				c.Errorf("fork %d has the random number %s of another", i, word)
			}
			random[word] = true
		}
		if found != k.stranger+"\n" {
			c.Errorf("fork %d finds %s; want %q", i, sandbar.Quote(found, 200), k.stranger)
		}
	}
}

// killed tests that KillTree kills a program of a prestarted interpreter and the processes that it
// started.
func (k warmKind) killed(c *C) {
	b := c.fork(k.template(c))
	seconds := 1_000_000 + rand.IntN(1<<30)
	p, out := k.begin(c, b, fmt.Sprintf(k.tree, seconds), nil)
	c.until(out.has("up\n"), "the program is up")
	c.killTree(p)
	if r := c.wait(p); r.Outcome != sandbar.Signaled || r.Signal != 9 {
		c.Errorf("a program that was killed: %+v, %s", r, out)
	}
	if pids := withArgument(strconv.Itoa(seconds)); len(pids) > 0 {
		c.Errorf("after KillTree these processes live: %v", pids)
	}
	if !k.single {
		c.exited(c.sh(b, "exit 5"), 5, "a program after KillTree")
	}
}

// withArgument lists the host's processes with an argument. Processes in a virtual machine are not
// among them.
func withArgument(arg string) (pids []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte("\x00"+arg+"\x00")) {
			pids = append(pids, path)
		}
	}
	return pids
}

// processes returns the driver's processes on the host by name.
func (c *C) processes() map[int]string {
	t, all := traces{}, map[int]string{}
	c.s.lookAtHost(t, c.dir)
	for trace := range t {
		var pid int
		if n, _ := fmt.Sscanf(trace, "process: %d ", &pid); n == 1 {
			all[pid] = trace[strings.IndexByte(trace, '(')+1 : len(trace)-1]
		}
	}
	return all
}

// killNew kills the processes that started between two looks: those of one name or, if that is
// empty, all. It returns their number.
func killNew(before, after map[int]string, name string) (n int) {
	for pid, its := range after {
		if before[pid] == "" && (name == "" || name == its) {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill() // it may have ended with another process
			}
			n++
		}
	}
	return n
}

// dies tests that a template whose processes are killed reports its death, and that its forks stay
// alive.
func (k warmKind) dies(c *C) {
	c.destroy(c.box()) // starts the driver's own processes
	before := c.processes()
	t := k.template(c)
	during := c.processes()
	if t.Dead() == nil { // it can always fork, so it must not depend on a process
		if diff := cmp.Diff(before, during); diff != "" {
			c.Errorf("a template that cannot die has processes: %s", diff)
		}
		return
	}
	b := c.fork(t)
	killNew(before, during, "")
	c.until(func() bool {
		select {
		case <-t.Dead():
			return true
		default:
			return false
		}
	}, "the template is reported dead")
	_, err := t.Fork(c.ctx, c.newID())
	c.code(err, "Fork of a dead template", sandbar.Gone)
	p, out := k.begin(c, b, k.show, nil)
	if r := c.wait(p); r.ExitCode != 3 {
		c.Errorf("a fork of a template that died: %+v, %s", r, out)
	}
}
