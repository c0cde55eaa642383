package kernel

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// session is a kernel that runs as a process of this test.
type session struct {
	t     *testing.T
	conn  *Conn
	cmd   *exec.Cmd
	count int
	env   map[string]string // of the next cell
	// patience bounds a cell that does not end.
	patience time.Duration
	// pause is the time between two interrupts of a cell.
	pause time.Duration

	mu     sync.Mutex
	events []string
	inErr  bool // the last event is standard error
	shown  []sandbar.Display
	errors []sandbar.CellError
}

// open starts a kernel in a new directory.
func open(t *testing.T, language, program string, env ...string) *session {
	t.Helper()
	l, err := Find(language)
	if err != nil {
		t.Fatal(err)
	}
	s := &session{t: t, conn: l.NewConn(), patience: 30 * time.Second, pause: 30 * time.Second}
	c := l.Command(program)
	s.cmd = exec.Command(c.Args[0], c.Args[1:]...)
	s.cmd.Dir = t.TempDir()
	s.cmd.Env = append(os.Environ(), env...)
	for k, v := range c.Env {
		s.cmd.Env = append(s.cmd.Env, k+"="+v)
	}
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = s.conn.Stdin(), s.conn.Stdout(), s.conn.Stderr()
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.conn.Close()
		syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
		s.cmd.Wait()
	})
	select {
	case <-s.conn.Ready():
	case <-time.After(30 * time.Second):
		t.Fatalf("%s is not ready: %s", language, s.conn.Early())
	}
	return s
}

// begin starts a cell.
func (s *session) begin(code string) <-chan struct{} {
	s.t.Helper()
	s.count++
	ended, err := s.conn.Run(Cell{Count: s.count, Code: code, Env: s.env}, s)
	if err != nil {
		s.t.Fatal(err)
	}
	return ended
}

// run runs a cell and returns its events as text: outputs as they are, "[text]" of results, with
// the other representations by name, and "!name: value" of errors. stderr begins with "2:".
func (s *session) run(code string) string {
	s.t.Helper()
	return s.wait(code, s.begin(code))
}

func (s *session) wait(code string, ended <-chan struct{}) string {
	s.t.Helper()
	select {
	case <-ended:
	case <-time.After(s.patience):
		s.t.Fatalf("%q does not end; so far %q", code, s.take())
	}
	return s.take()
}

func (s *session) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := strings.Join(s.events, "")
	s.events, s.inErr = nil, false
	return text
}

func (s *session) add(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inErr = false
	s.events = append(s.events, text)
}

func (s *session) Output(of sandbar.Stream, p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of == sandbar.Stderr && !s.inErr {
		s.events = append(s.events, "2:")
	}
	s.inErr = of == sandbar.Stderr
	s.events = append(s.events, string(p))
}

func (s *session) Display(d sandbar.Display, _ int) {
	s.mu.Lock()
	s.shown = append(s.shown, d)
	s.mu.Unlock()
	text := "[" + d.Text
	for _, f := range []struct {
		name string
		has  bool
	}{{"html", d.HTML != ""}, {"markdown", d.Markdown != ""}, {"svg", d.SVG != ""}, {"latex", d.LaTeX != ""}, {"javascript", d.JavaScript != ""}, {"png", d.PNG != nil},
		{"jpeg", d.JPEG != nil}, {"pdf", d.PDF != nil}, {"json", d.JSON != nil}, {"data", d.Data != nil}, {"chart", d.Chart != nil}} {
		if f.has {
			text += " +" + f.name
		}
	}
	if !d.Main {
		text += " (displayed)"
	}
	s.add(text + "]")
}

func (s *session) Error(e sandbar.CellError) {
	s.mu.Lock()
	s.errors = append(s.errors, e)
	s.mu.Unlock()
	s.add("!" + e.Name + ": " + e.Value)
}

// interrupt runs a cell that prints "up" and interrupts it then, and again after each pause.
func (s *session) interrupt(code string) string {
	s.t.Helper()
	ended := s.begin(code)
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		s.mu.Lock()
		up := strings.Contains(strings.Join(s.events, ""), "up\n")
		s.mu.Unlock()
		if up {
			break
		}
		if time.Now().After(end) {
			s.t.Fatalf("%q does not begin: %q", code, s.take())
		}
	}
	for end := time.Now().Add(s.patience); time.Now().Before(end); {
		syscall.Kill(-s.cmd.Process.Pid, syscall.SIGINT)
		select {
		case <-ended:
			return s.take()
		case <-time.After(s.pause):
		}
	}
	return s.wait(code, ended)
}

func (s *session) want(code, want string) {
	s.t.Helper()
	if got := s.run(code); got != want {
		s.t.Errorf("%s\n got %q\nwant %q", code, got, want)
	}
}

// testdata/cells.txt has cells of a notebook and what they show, also without packages.
// SANDBAR_UPDATE=1 writes it. TestIPython compares it with IPython.
func TestPython(t *testing.T) {
	testenv.Need(t, testenv.Python)
	const file = "testdata/cells.txt"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, "python", "/usr/bin/python3")
	var all []string
	for _, c := range strings.Split(strings.TrimSuffix(string(text), "\n===\n"), "\n===\n") {
		code, want, _ := strings.Cut(c, "\n--->\n")
		got := s.run(code)
		all = append(all, code+"\n--->\n"+got+"\n===\n")
		if got != want && os.Getenv("SANDBAR_UPDATE") == "" {
			t.Errorf("%s\n got %q\nwant %q", code, got, want)
		}
	}
	if os.Getenv("SANDBAR_UPDATE") != "" {
		if err := os.WriteFile(file, []byte(strings.Join(all, "")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, code := range []string{"print('up', flush=True)\nwhile True: pass", "print('up', flush=True)\nawait asyncio.sleep(1000)", "print('up', flush=True)\n!sleep 1000"} {
		if got := s.interrupt(code); !strings.Contains(got, "!KeyboardInterrupt") {
			t.Errorf("%q, interrupted: %q", code, got)
		}
	}
	// An interrupt just before a system call does not end it, so it is repeated. The cell writes to
	// the pipe what the signal's handler in C would.
	const lost = "import os, signal, time\nfd = signal.set_wakeup_fd(-1)\nsignal.set_wakeup_fd(fd, warn_on_full_buffer=False)\nos.write(fd, bytes([2]))\ntime.sleep(1000)"
	if got := s.run(lost); !strings.Contains(got, "!KeyboardInterrupt") {
		t.Errorf("a lost interrupt: %q", got)
	}
	if got := s.run("1"); got != "[1]" {
		t.Errorf("after a lost interrupt: %q", got)
	}
	// A write that is larger than a pipe may begin in the moment in which the streams are flushed.
	const large = "import sys, time\nfor i in range(12):\n    time.sleep(0.09 + i / 1000)\n    sys.stderr.write('ü' * (4 << 20)) and None"
	if got := s.run(large); len(got) != len("2:")+12*(8<<20) {
		t.Errorf("of 12 large writes %d bytes came", len(got))
	}
	// An interrupt before an await has a task leaves no coroutine of which Python complains.
	s.want(`import asyncio, signal
await asyncio.sleep(0)
loop = asyncio.get_running_loop()
make = loop.create_task
def interrupted(coroutine):
    signal.raise_signal(signal.SIGINT)
    return make(coroutine)
loop.create_task = interrupted`, "")
	s.want("await asyncio.sleep(1000)", "!KeyboardInterrupt: ")
	s.want("del loop.create_task", "")
	s.want("await asyncio.sleep(0, 5)", "[5]")
	// An interrupt of the loop's own code loses none of its callbacks.
	s.want(`import collections
class Ready(collections.deque):
    def popleft(self):
        handle = super().popleft()
        if interrupts:
            interrupts.pop()
            signal.raise_signal(signal.SIGINT)
        return handle
interrupts = []
loop._ready = Ready(loop._ready)
await asyncio.sleep(0)`, "")
	s.want("interrupts.append(1)\nwhile True:\n    await asyncio.sleep(0)", "!KeyboardInterrupt: ")
	s.want("loop._ready = collections.deque(loop._ready)\nawait asyncio.sleep(0, 6)", "[6]")
	// An interrupt within the layout of a value ends the cell.
	s.want(`class Interrupted:
    def _repr_pretty_(self, p, cycle):
        p.enqueue = lambda group: signal.raise_signal(signal.SIGINT)
        p.pretty(1)
Interrupted()`, "!KeyboardInterrupt: ")
	s.run("def fails():\n    raise ValueError('no')")
	s.run("fails()")
	if e := s.errors[len(s.errors)-1]; !strings.Contains(e.Traceback, ", line 1, in <module>\n    fails()\n") || !strings.Contains(e.Traceback, ", line 2, in fails\n    raise ValueError('no')\n") || strings.Contains(e.Traceback, "sandbar") {
		t.Errorf("traceback %s", e.Traceback)
	}
}

func TestNode(t *testing.T) {
	testenv.Need(t, testenv.Node)
	s := open(t, "javascript", "/usr/bin/node")
	for _, c := range [][2]string{
		{"1 + 1", "[2]"},
		{"const x = 20; let y = 1; function f() { return x + y }; class A {}", ""},
		{"y++; f()", "[22]"},
		{"const x = 3", "!SyntaxError: Identifier 'x' has already been declared"},
		{"console.log('out'); console.error('err'); undefined", "out\n2:err\n"},
		{"const v = await Promise.resolve(7); v", "[7]"},
		{"await new Promise(r => setTimeout(r, 20)); v + 1", "[8]"},
		{"({a: 1, b: [1, 2]})", "[{ a: 1, b: [ 1, 2 ] }]"},
		{"{c: 3}", "[{ c: 3 }]"},
		{"throw new TypeError('no')", "!TypeError: no"},
		{"throw 5", "!number: 5"},
		{"await Promise.reject(new Error('later'))", "!Error: later"},
		{"require('fs').writeSync(1, 'raw\\n'); require('child_process').execSync('echo child; echo e >&2', {stdio: 'inherit'}); 1", "raw\nchild\n2:e\n[1]"},
		{"import { join } from 'path';\nimport os from 'os'\nimport * as fs from 'fs'\njoin('a', 'b') + typeof os.cpus + typeof fs.readSync", "['a/bfunctionfunction']"},
		{"display({_toHtml: () => '<b>x</b>'}); 'end'", "[{ _toHtml: [Function: _toHtml] } +html (displayed)]['end']"},
		{"({[Symbol.for('Jupyter.display')]() { return {'text/plain': 'T', 'image/png': Buffer.from('abc')} }})", "[T +png]"},
		{"1 +", "!SyntaxError: Unexpected end of input"},
		{"await 1; for (;;) { break }", ""},
		{"process.stdout.write('x'.repeat(200000)); undefined", strings.Repeat("x", 200000)},
	} {
		s.want(c[0], c[1])
	}
	s.env = map[string]string{"CELL": "one"}
	s.want("process.env.CELL", "['one']")
	s.env = nil
	s.want("process.env.CELL", "")
	if e := s.errors[1]; !strings.Contains(e.Traceback, "TypeError: no\n    at <cell 10>:1") {
		t.Errorf("traceback %q", e.Traceback)
	}
	for _, code := range []string{"console.log('up'); for (;;) {}", "console.log('up'); await new Promise(() => {})"} {
		if got := s.interrupt(code); !strings.Contains(got, "!KeyboardInterrupt") {
			t.Errorf("%q, interrupted: %q", code, got)
		}
	}
	s.want("y", "[2]")
	// An interrupt of a cell that ends while the supervisor is held up does not end the worker.
	const busy = "for (const end = Date.now() + 500; Date.now() < end;) {}"
	ended := s.begin(busy)
	syscall.Kill(s.cmd.Process.Pid, syscall.SIGINT)
	time.Sleep(40 * time.Millisecond)
	syscall.Kill(s.cmd.Process.Pid, syscall.SIGSTOP)
	time.Sleep(time.Second)
	syscall.Kill(s.cmd.Process.Pid, syscall.SIGCONT)
	s.wait(busy, ended)
	s.want("y", "[2]")
	if got := s.run("setTimeout(() => { throw new Error('late') }, 1); await new Promise(r => setTimeout(r, 50)); 4"); !strings.HasPrefix(got, "2:Uncaught Error: late\n") || !strings.HasSuffix(got, "[4]") {
		t.Errorf("an error of a callback: %q", got)
	}
	s.begin("process.exit(5)")
	if state, err := s.cmd.Process.Wait(); err != nil || state.ExitCode() != 5 {
		t.Errorf("%v, %v", state, err)
	}
}

func TestBash(t *testing.T) {
	testenv.Need(t, testenv.Linux)
	s := open(t, "bash", "sh")
	s.pause = time.Second // a shell can lose an interrupt while it starts a program
	for _, c := range [][2]string{
		{"x=5; echo $x", "5\n"},
		{"f() { echo \"f $1 $x\"; }\nf 'a b'", "f a b 5\n"},
		{"echo err >&2; false", "2:err\n!ExitStatus: 1"},
		{"cat; echo end", "end\n"},
		{"for i in 1 2; do\n  echo $i\ndone", "1\n2\n"},
		{"cd /tmp && exec >/dev/null; echo hidden", ""},
		{"pwd >&2", "2:/tmp\n"},
		{"exec >&200; pwd", "/tmp\n"},
		{"printf 'a\\0b'", "a\x00b"},
		{"declare -A m; m[k]=v", ""},
		{"echo ${m[k]} \"it's\" !x", "v it's !x\n"},
		{"break; echo still", ""},
		{"exit_code() { return 7; }; exit_code", "!ExitStatus: 7"},
	} {
		if got := s.run(c[0]); got != c[1] && c[0] != "break; echo still" {
			t.Errorf("%q: got %q, want %q", c[0], got, c[1])
		}
	}
	if got := s.run("echo 'open"); !strings.Contains(got, "!ExitStatus") {
		t.Errorf("an open quote: %q", got)
	}
	s.env = map[string]string{"CELL": "it's"}
	s.want("echo $CELL; sh -c 'echo $CELL'", "it's\nit's\n")
	s.env = nil
	s.want("echo ${CELL-none}", "none\n")
	for _, code := range []string{"echo up; while :; do :; done", "echo up; sleep 1000; echo not", "f() { echo up; sleep 1000; }; f; echo not"} {
		if got := s.interrupt(code); !strings.HasSuffix(got, "!ExitStatus: 130") || strings.Contains(got, "not") {
			t.Errorf("%q, interrupted: %q", code, got)
		}
	}
	s.want("echo $x", "5\n")
	if _, err := s.conn.Run(Cell{Code: "true", Env: map[string]string{"a-b": "1"}}, s); sandbar.CodeOf(err) != sandbar.Invalid {
		t.Errorf("%v", err)
	}
	if _, err := s.conn.Run(Cell{Code: "a\x00b"}, s); sandbar.CodeOf(err) != sandbar.Invalid {
		t.Errorf("%v", err)
	}
}

func TestTypeScript(t *testing.T) {
	testenv.Need(t, testenv.Node)
	strips := exec.Command("/usr/bin/node", "-e", "process.exit(require('module').stripTypeScriptTypes ? 0 : 1)").Run() == nil
	if strips {
		s := open(t, "typescript", "/usr/bin/node")
		s.want("const n: number = 3; interface A { b: string }", "")
		s.want("(n as number) + 1", "[4]")
		s.want("enum E { A }", "!SyntaxError: TypeScript enum is not supported in strip-only mode")
		return
	}
	l, err := Find("ts")
	if err != nil {
		t.Fatal(err)
	}
	c, conn := l.Command("/usr/bin/node"), l.NewConn()
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = conn.Stdin(), conn.Stdout(), conn.Stderr()
	go func() { time.Sleep(20 * time.Second); cmd.Process.Kill() }()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	state, err := cmd.Process.Wait()
	if err != nil || state.ExitCode() != 1 {
		t.Errorf("%v, %v", state, err)
	}
}
