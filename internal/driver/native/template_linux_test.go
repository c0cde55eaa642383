package native

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/driver/drivertest/escape"
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/linux/slot"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// pythonTemplate is a template as the engine requests it.
func pythonTemplate(d *Driver) driver.TemplateSpec {
	s := spec(d)
	s.AllowDegraded = true
	return driver.TemplateSpec{Spec: s, Language: "python", Argv: []string{"python3"}, File: "main.py",
		Env: map[string]string{"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}}
}

// newTemplate prepares a template that is closed at the test's end.
func newTemplate(t *testing.T, d *Driver, s driver.TemplateSpec) driver.Template {
	t.Helper()
	testenv.Need(t, testenv.Python)
	tmpl, err := d.Prepare(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tmpl.Close(); err != nil {
			t.Error(err)
		}
	})
	return tmpl
}

// newFork makes a fork that is destroyed at the test's end.
func newFork(t *testing.T, tmpl driver.Template) driver.Sandbox {
	t.Helper()
	b, err := tmpl.Fork(t.Context(), sandbar.NewID())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// put writes a program to where the language has it.
func put(b driver.Sandbox, program string) error {
	return driver.WriteFile(context.Background(), b.FS(), sandbar.DefaultDir+"/main.py", []byte(program))
}

// eval runs a program in a fork and returns what it printed.
func eval(t *testing.T, b driver.Sandbox, program string) string {
	t.Helper()
	e, ok := driver.As[driver.Evaluator](b)
	if !ok {
		t.Fatal("a fork cannot evaluate")
	}
	var out, errOut bytes.Buffer
	p, err := e.Eval(t.Context(), driver.Evaluation{Path: "main.py", Code: program}, driver.Stdio{Stdout: &out, Stderr: &errOut})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	return out.String() + errOut.String()
}

// descendants are the processes below this one, apart from what starts agents.
func descendants(t testing.TB, d *Driver) (pids []int) {
	t.Helper()
	parents := map[int]int{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		parents[pid], _ = strconv.Atoi(f[1])
	}
	spawners := spawnersOf(d.Owner)
	for pid := range parents {
		for up := parents[pid]; up > 1; up = parents[up] {
			if up == os.Getpid() && !slices.Contains(spawners, pid) {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// descriptors is how many this process has.
func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// Close and Destroy leave nothing of a template and its forks. Forks outlive their template, and
// the template outlives its forks.
func TestTemplateLeavesNothing(t *testing.T) {
	d := newDriver(t)
	newBox(t, d).Destroy(t.Context()) // the first sandbox starts processes that remain
	fds, groups := descriptors(t), len(groupsOf(d.Owner))
	tmpl := newTemplate(t, d, pythonTemplate(d))
	first, second := newFork(t, tmpl), newFork(t, tmpl)
	if err := first.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := tmpl.Close(); err != nil {
		t.Fatal(err)
	}
	if err := tmpl.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
	if _, err := tmpl.Fork(t.Context(), sandbar.NewID()); err == nil {
		t.Error("a closed template forks")
	}
	if got := eval(t, second, "print(6 * 7)"); got != "42\n" {
		t.Errorf("a fork without its template says %q", got)
	}
	if err := second.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "nothing is left", func() bool {
		return len(descendants(t, d)) == 0 && descriptors(t) == fds && len(groupsOf(d.Owner)) == groups
	})
}

// A fork evaluates one program. It refuses, before anything of it runs, a program that would differ
// from a cold start.
func TestEvalRefuses(t *testing.T) {
	d := newDriver(t)
	tmpl := newTemplate(t, d, pythonTemplate(d))
	for name, c := range map[string]struct {
		e    driver.Evaluation
		want sandbar.Code
	}{
		"another file":        {driver.Evaluation{Path: "other.py"}, sandbar.Unsupported},
		"another directory":   {driver.Evaluation{Path: "main.py", Dir: "/tmp"}, sandbar.Unsupported},
		"a start-up variable": {driver.Evaluation{Path: "main.py", Env: map[string]string{"PYTHONHASHSEED": "1"}}, sandbar.Unsupported},
		"a variable of libc":  {driver.Evaluation{Path: "main.py", Env: map[string]string{"LC_ALL": "C"}}, sandbar.Unsupported},
		"a NUL":               {driver.Evaluation{Path: "main.py", Args: []string{"a\x00b"}}, sandbar.Invalid},
		"a bad variable":      {driver.Evaluation{Path: "main.py", Env: map[string]string{"A=B": ""}}, sandbar.Invalid},
		"large arguments":     {driver.Evaluation{Path: "main.py", Args: []string{strings.Repeat("x", maxJob+1)}}, sandbar.Unsupported},
	} {
		b := newFork(t, tmpl)
		e, _ := driver.As[driver.Evaluator](b)
		if _, err := e.Eval(t.Context(), c.e, driver.Stdio{}); sandbar.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if _, err := e.Eval(t.Context(), driver.Evaluation{Path: "main.py"}, driver.Stdio{}); sandbar.CodeOf(err) != sandbar.Conflict {
			t.Errorf("%s: a second time: %v", name, err)
		}
	}
	b := newFork(t, tmpl)
	eval(t, b, "")
	e, _ := driver.As[driver.Evaluator](b)
	if _, err := e.Eval(t.Context(), driver.Evaluation{Path: "main.py"}, driver.Stdio{}); sandbar.CodeOf(err) != sandbar.Conflict {
		t.Errorf("a second program: %v", err)
	}
}

func TestPrepareRefuses(t *testing.T) {
	d := newDriver(t)
	good := pythonTemplate(d)
	newTemplate(t, d, good)
	for name, change := range map[string]func(*driver.TemplateSpec){
		"another language":      func(s *driver.TemplateSpec) { s.Language = "elixir" },
		"no module":             func(s *driver.TemplateSpec) { s.Imports = []string{"json", "no_such_module"} },
		"a statement":           func(s *driver.TemplateSpec) { s.Imports = []string{"json; import os"} },
		"an image":              func(s *driver.TemplateSpec) { s.Spec.Image = "debian" },
		"options":               func(s *driver.TemplateSpec) { s.Argv = []string{"python3", "-I"} },
		"no such interpreter":   func(s *driver.TemplateSpec) { s.Argv = []string{"python-of-nowhere"} },
		"what is no Python":     func(s *driver.TemplateSpec) { s.Argv = []string{"true"} },
		"an absolute file name": func(s *driver.TemplateSpec) { s.File = "/main.py" },
	} {
		s := good
		change(&s)
		if tmpl, err := d.Prepare(t.Context(), s); sandbar.CodeOf(err) != sandbar.Unsupported {
			t.Errorf("%s: %v", name, err)
			if err == nil {
				tmpl.Close()
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Prepare(ctx, good); sandbar.CodeOf(err) != sandbar.Canceled {
		t.Errorf("canceled: %v", err)
	}
}

// unique is a program that prints values which must differ between any two interpreters.
const unique = `
import random, uuid, os, ssl, tempfile, secrets, multiprocessing.process, hashlib, socket
for v in (random.random(), random.SystemRandom().random(), uuid.uuid4(), uuid.uuid1(), os.urandom(8), ssl.RAND_bytes(8), tempfile.mktemp(),
        secrets.token_hex(), bytes(multiprocessing.process.current_process().authkey), tempfile._RandomNameSequence().rng.random(),
        open('/etc/machine-id').read(), open('/proc/sys/kernel/random/uuid').read()):
    print(v)
`

// Forks share no random state with each other or with the template.
func TestStrangers(t *testing.T) {
	d := newDriver(t)
	tmpl := newTemplate(t, d, pythonTemplate(d))
	seen := map[string]int{}
	const forks = 5
	for range forks {
		lines := strings.Split(strings.TrimSpace(eval(t, newFork(t, tmpl), unique)), "\n")
		for _, line := range slices.Compact(lines) {
			seen[line]++
		}
		if len(lines) < 12 {
			t.Fatalf("the program says %q", lines)
		}
	}
	for line, n := range seen {
		if n > 1 && line != "" {
			t.Errorf("%d forks have %s", n, line)
		}
	}
}

// Programs without visible finalization take the fast exit, and others do not. TestCorpus proves
// that a program cannot tell; this test proves that the fast exit is taken at all, by CPython 3.9
// to 3.13.
func TestFastExit(t *testing.T) {
	d := newDriver(t)
	tmpl := newTemplate(t, d, pythonTemplate(d))
	if eval(t, newFork(t, tmpl), "import sys; print(sys.version_info < (3, 14))") == "False\n" {
		return
	}
	for _, c := range []struct {
		program string
		fast    bool
	}{
		{"print()", true},
		{"import json, re, collections, dataclasses, enum, typing, asyncio, logging, random, datetime, decimal", true},
		{"import abc\nclass A(abc.ABC): pass\nclass B(A): x = [lambda: B]\nb = B(); b.b = b; isinstance(b, A); isinstance(1, A)", true},
		{"try: 1 / 0\nexcept ZeroDivisionError as e: kept = e", true},
		{"import os, glob; list(os.walk('.')), glob.glob('*'), os.listdir('/')", true},
		{"import subprocess; subprocess.run(['true'])", true},
		{"with open('f', 'w') as f: f.write('x')", true},
		{"f = open('/dev/null')", false},
		{"class A:\n def __del__(self): pass", false},
		{"x = (x for x in [1])", false},
		{"import sys\ntry: sys.exit(3)\nexcept SystemExit: pass", true},
		{"try: raise SystemExit(3)\nexcept SystemExit: pass", true},
		{"import sys; sys.argv = []", true},
		{"import sys; sys.stdout = open('/dev/stdout', 'w')", false},
		{"import sys; sys.settrace(None)", false},
		{"import sys; sys.setprofile(None)", false},
		{"import sys; sys.addaudithook(print)", false},
		{"import gc; gc.freeze()", false},
		{"import gc; gc.unfreeze()", false},
		{"import gc; gc.set_debug(gc.DEBUG_UNCOLLECTABLE)", false},
		{"import atexit; atexit.register(print)", false},
		{"import threading, time; threading.Thread(target=time.sleep, args=(9,), daemon=True).start()", false},
		{"import sqlite3", false},
		{"import ctypes", false},
		{"import os; s = os.scandir('.')", false},
	} {
		got := eval(t, newFork(t, tmpl), `
import atexit
fast = atexit._ncallbacks.__closure__[0].cell_contents
`+c.program+"\nprint(len(fast.pending) == len(fast.EVENTS) and fast.unchanged() and fast.tidy())\n")
		if want := map[bool]string{true: "True", false: "False"}[c.fast]; !strings.HasSuffix(strings.TrimSpace(got), want) {
			t.Errorf("%s: %s; want %s", c.program, got, want)
		}
	}
}

// A waiting fork is in the namespaces of its sandbox. It has the standard descriptors and its
// socket, and none of the template's.
func TestForkIsInside(t *testing.T) {
	d := newDriver(t)
	tmpl := newTemplate(t, d, pythonTemplate(d)).(*template)
	before := descendants(t, d)
	f := newFork(t, tmpl).(*fork)
	var inside, outside []int
	// The process that made the fork may take a moment to end.
	waitUntil(t, "one interpreter is in the sandbox, and none outside", func() bool {
		inside, outside = split(t, interpreters(t, d, before))
		return len(inside) == 1 && len(outside) == 0
	})
	proc := "/proc/" + strconv.Itoa(inside[0])
	links, err := os.ReadDir(proc + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	if len(links) != 4 {
		t.Errorf("it has %d descriptors", len(links))
	}
	for _, kind := range slot.Namespaces() {
		var own, agents unix.Stat_t
		fd, err := f.resources.Init.Open("ns/" + kind)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(unix.Stat(proc+"/ns/"+kind, &own), unix.Fstat(fd, &agents)); err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
		if own.Ino != agents.Ino {
			t.Errorf("it is not in the sandbox's namespace %s", kind)
		}
	}
	if out := eval(t, f, "import os\nprint(os.getpid() != 1, [p for p in os.listdir('/proc') if p.isdigit() and int(p) not in (1, os.getpid())])"); out != "True []\n" {
		t.Errorf("in the sandbox there is %s", out)
	}
}

// interpreters returns the descendants that run Python, except those in before.
func interpreters(t *testing.T, d *Driver, before []int) (pids []int) {
	t.Helper()
	for _, pid := range descendants(t, d) {
		if comm, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm"); !slices.Contains(before, pid) && string(comm) == "python3\n" {
			pids = append(pids, pid)
		}
	}
	return pids
}

// split returns the processes in other PID namespaces than this process, and those in the same.
func split(t *testing.T, pids []int) (inside, outside []int) {
	t.Helper()
	var own, its unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &own); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		switch err := unix.Stat("/proc/"+strconv.Itoa(pid)+"/ns/pid", &its); err {
		case nil:
		case unix.ENOENT, unix.ESRCH:
			continue // it has ended
		default:
			t.Fatal(err)
		}
		if own.Ino == its.Ino {
			outside = append(outside, pid)
		} else {
			inside = append(inside, pid)
		}
	}
	return inside, outside
}

// countProcesses prints how many processes it can have. The process that made the copy counts
// until it has ended, so a fork that fails is tried again for a while.
const countProcesses = `
import os, time
n, failures = 1, 0
while n < 100 and failures < 20:
    try:
        if os.fork() == 0:
            time.sleep(100)
        n += 1
    except OSError:
        failures += 1
        time.sleep(0.05)
print(n, flush=True)
`

// A copy is one process of its sandbox.
func TestForkIsOneProcess(t *testing.T) {
	if !testenv.CgroupV2.Met() {
		testenv.Need(t, testenv.CgroupV1)
	}
	d := newDriver(t)
	s := pythonTemplate(d)
	s.Spec.Limits.PIDs = 12
	if got := eval(t, newFork(t, newTemplate(t, d, s)), countProcesses); got != "12\n" {
		t.Errorf("a copy has %q processes", got)
	}
}

// When a template is killed, forks under way fail or succeed, existing forks go on, and nothing is
// left.
func TestTemplateDies(t *testing.T) {
	d := newDriver(t)
	for range 3 {
		tmpl := newTemplate(t, d, pythonTemplate(d))
		there := newFork(t, tmpl)
		made := make(chan driver.Sandbox)
		go func() {
			defer close(made)
			for {
				b, err := tmpl.Fork(context.Background(), sandbar.NewID())
				if err != nil {
					return
				}
				made <- b
			}
		}()
		b := <-made
		for _, pid := range descendants(t, d) {
			if args, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline"); bytes.Contains(args, []byte(agent.ModeTemplate)) {
				unix.Kill(pid, unix.SIGKILL)
			}
		}
		<-tmpl.Dead()
		boxes := []driver.Sandbox{there, b}
		for b := range made {
			boxes = append(boxes, b)
		}
		for i, b := range boxes {
			if got := eval(t, b, "print('alive')"); got != "alive\n" {
				t.Errorf("fork %d of a dead template says %q", i, got)
			}
			if err := b.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if err := tmpl.Close(); err != nil {
			t.Error(err)
		}
		waitUntil(t, "nothing is left", func() bool { return len(descendants(t, d)) == 0 })
	}
}

// warm is a driver whose sandboxes are forks. The first Python program of each runs in the forked
// interpreter.
type warm struct {
	*Driver
	t         *testing.T
	once      bool // see TemplateSpec.Once
	mu        sync.Mutex
	templates map[string]driver.Template
}

func (w *warm) Create(ctx context.Context, id sandbar.ID, s sandbar.Spec) (driver.Sandbox, error) {
	env := s.Env
	s.Env = nil
	tmpl, err := w.template(ctx, s)
	if err != nil {
		return nil, err
	}
	b, err := tmpl.Fork(ctx, id)
	if err != nil {
		return nil, err
	}
	return &warmBox{fork: b.(*fork), env: env}, nil
}

// template returns the template of a Spec.
func (w *warm) template(ctx context.Context, s sandbar.Spec) (driver.Template, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := fmt.Sprint(s)
	if w.templates[key] == nil {
		spec := pythonTemplate(w.Driver)
		spec.Spec, spec.Env, spec.Once = s, nil, w.once
		tmpl, err := w.Prepare(ctx, spec)
		if err != nil {
			return nil, err
		}
		w.templates[key] = tmpl
	}
	return w.templates[key], nil
}

// close closes the templates.
func (w *warm) close() {
	for _, tmpl := range w.templates {
		if err := tmpl.Close(); err != nil {
			w.t.Error(err)
		}
	}
}

// isEvaluation reports whether a command is a Python program that a fork can evaluate.
func isEvaluation(c sandbar.Cmd) bool {
	return len(c.Args) >= 3 && strings.HasSuffix(c.Args[0], "python3") && c.Args[1] == "-c" && c.Dir == ""
}

func evaluation(c sandbar.Cmd, env map[string]string) driver.Evaluation {
	return driver.Evaluation{Path: "main.py", Code: c.Args[2], Args: c.Args[3:], Env: env}
}

// warmBox is a fork that turns the first start of Python into an evaluation.
type warmBox struct {
	*fork
	env  map[string]string
	once atomic.Bool
}

func (b *warmBox) Start(ctx context.Context, c sandbar.Cmd, std driver.Stdio) (driver.Process, error) {
	env := maps.Clone(b.env)
	maps.Copy(env, c.Env)
	c.Env = env
	if !isEvaluation(c) || !b.once.CompareAndSwap(false, true) {
		return b.fork.Start(ctx, c, std)
	}
	return b.Eval(ctx, evaluation(c, env), std)
}

// The attacks are contained when they run in a copy of a warm interpreter as well.
func TestEscapeWarm(t *testing.T) {
	testenv.Need(t, testenv.Python)
	d := newDriver(t)
	w := &warm{Driver: d, t: t, templates: map[string]driver.Template{}}
	defer w.close()
	s := pythonTemplate(d).Spec
	s.AllowDegraded, s.Limits.Inodes = false, 1<<16
	s.Limits.Memory = 1 << 30 // the watchdog counts what copies share for each of them
	for _, c := range escape.Cases() {
		if c.Python == "" && !c.NeedsPython || c.NeedsOutbound {
			continue // it runs no Python, or needs a network that this driver was not given
		}
		if slices.Contains([]string{"03-swap-race", "12-big-trees", "22-orphans", "34-cpu"}, c.ID) {
			continue // slow, and about the agent and the control group, which are those of all sandboxes
		}
		r := escape.Run(t.Context(), escape.Target{Driver: w, Spec: held(d, s), Python: "/usr/bin/python3"}, c)
		if !r.OK() && r.Verdict != escape.NotRun {
			t.Errorf("%s: %s: %s", c.ID, r.Verdict, r.Evidence)
		}
	}
}

// held is a Spec without the limits that this host cannot hold.
func held(d *Driver, s sandbar.Spec) sandbar.Spec {
	e := d.Caps().Enforced
	for _, l := range []struct {
		by sandbar.Enforcement
		to *int64
	}{{e.Memory, &s.Limits.Memory}, {e.PIDs, &s.Limits.PIDs}, {e.CPUShares, &s.Limits.CPUShares}} {
		if l.by == sandbar.EnforcedNone {
			*l.to = sandbar.Unlimited
		}
	}
	return s
}
