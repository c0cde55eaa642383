package drivertest

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/warm/kernel"
)

// contextCases test interpreters that stay in a sandbox (package kernel): their input and output
// stay open, and a signal interrupts a cell.
func contextCases() []testCase {
	python := []need{needPython()}
	return []testCase{
		{name: "state", needs: python, run: func(c *C) {
			k := c.kernel(c.box())
			k.shows("x = 20\nprint('set')", "set\n")
			k.shows("x + 1", "[21]")
			k.shows("1 / 0", "!ZeroDivisionError: division by zero")
			k.shows("x", "[20]")
		}},
		{name: "outputs", needs: python, run: func(c *C) {
			k := c.kernel(c.box())
			k.shows("import os, sys\nos.write(1, b'raw '); os.system('echo child'); print('text'); 3", "raw child\ntext\n[3]")
			k.shows("os.system('echo error >&2');", "2:error\n")
			k.shows("import subprocess; subprocess.run(['sh', '-c', 'ls /proc/self/fd | sort -n | tail -1'], stdin=0).returncode", "3\n[0]")
		}},
		{name: "environment", needs: python, run: func(c *C) {
			k := c.kernel(c.box())
			k.cell.Env = map[string]string{"CELL": "one"}
			k.shows("import os; os.environ['CELL'], os.popen('echo $CELL').read()", "[('one', 'one\\n')]")
			k.cell.Env = nil
			k.shows("os.environ.get('CELL', 'none')", "['none']")
			k.shows("os.chdir('/tmp'); os.getcwd()", "['/tmp']")
			k.shows("os.getcwd()", "['/tmp']")
		}},
		{name: "interrupt", needs: python, run: func(c *C) {
			b := c.box()
			k := c.kernel(b)
			k.shows("x = 1", "")
			for _, code := range []string{"print('up', flush=True)\nwhile True: pass", "import time, subprocess\nprint('up', flush=True)\ntime.sleep(1000)",
				"print('up', flush=True)\nsubprocess.call(['sleep', '1000'])", "import asyncio\nprint('up', flush=True)\nawait asyncio.sleep(1000)"} {
				ended := k.begin(code)
				c.until(k.seen("up\n"), "the cell has begun")
				c.ok(k.p.Signal(2), "Signal")
				k.end(ended)
				if got := k.take(); !strings.Contains(got, "!KeyboardInterrupt") {
					c.Errorf("%q, interrupted: %q", code, got)
				}
			}
			c.ok(k.p.Signal(2), "Signal") // no cell runs
			_, err := b.FS().Stat(c.ctx, ".")
			c.ok(err, "a file operation, which is answered after the signal was sent")
			k.shows("x", "[1]")
		}},
		{name: "killed", needs: python, run: func(c *C) {
			b := c.box()
			for code, want := range map[string]sandbar.Outcome{"import os\nos._exit(7)": sandbar.Exited, "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)": sandbar.Signaled} {
				k := c.kernel(b)
				k.begin(code)
				if r := c.wait(k.p); r.Outcome != want || want == sandbar.Exited && r.ExitCode != 7 {
					c.Errorf("%q: %+v", code, r)
				}
			}
			c.kernel(b).shows("1", "[1]")
		}},
		{name: "forged", needs: python, run: func(c *C) {
			b := c.box()
			for _, frame := range []string{`b"z\0\0\0\0"`, `b"r\xff\xff\xff\xff"`, `b"r\0\0\0\2[]"`, `b"k\0\0\0\0"`, `b"f\0\0\0\1{"`, `b"d\0\0\0\1x"`} {
				k := c.kernel(b)
				k.begin("import os\nfor fd in range(3, 300):\n  try: os.write(fd, " + frame + ")\n  except OSError: pass\nimport time; time.sleep(1000)")
				c.until(func() bool { return k.conn.Broken() != nil }, "the frame %s is refused", frame)
				c.ok(k.p.KillTree(), "KillTree")
				c.wait(k.p)
			}
		}},
		{name: "flood", needs: python, run: func(c *C) {
			k := c.kernel(c.box())
			const n = 20 << 20
			k.count = true
			k.end(k.begin(fmt.Sprintf("import os, sys\nfor _ in range(%d): os.write(1, b'x' * %d)\nsys.stderr.write('y' * %d)", n>>16, 1<<16, n)))
			k.mu.Lock()
			defer k.mu.Unlock()
			if k.bytes != [3]int{0, n, n} {
				c.Errorf("a cell wrote 2 times %d bytes, and %v arrived", n, k.bytes)
			}
		}},
		{name: "several", needs: python, run: func(c *C) {
			b := c.box()
			var all []*contextKernel
			for i := range 4 {
				k := c.kernel(b)
				k.shows(fmt.Sprintf("x = %d", i), "")
				all = append(all, k)
			}
			for i, k := range all {
				k.shows("x", fmt.Sprintf("[%d]", i))
			}
		}},
	}
}

// contextKernel is a kernel that runs in a sandbox, and what its cells have sent.
type contextKernel struct {
	c    *C
	p    driver.Process
	conn *kernel.Conn
	cell kernel.Cell // of the next cell

	mu    sync.Mutex
	text  strings.Builder
	count bool // count bytes only
	bytes [3]int
}

// kernel starts a Python kernel.
func (c *C) kernel(b driver.Sandbox) *contextKernel {
	l, err := kernel.Find("python")
	c.ok(err, "Find")
	k := &contextKernel{c: c, conn: l.NewConn()}
	k.p = c.start(b, l.Command(c.s.python), driver.Stdio{Stdin: k.conn.Stdin(), Stdout: k.conn.Stdout(), Stderr: k.conn.Stderr()})
	c.Cleanup(func() {
		k.p.KillTree()
		c.wait(k.p)
		k.conn.Close()
	})
	select {
	case <-k.conn.Ready():
	case <-time.After(c.waitBound()):
		c.Fatalf("the kernel is not ready: %s", k.conn.Early())
	}
	return k
}

func (k *contextKernel) begin(code string) <-chan struct{} {
	k.cell.Count++
	k.cell.Code = code
	ended, err := k.conn.Run(k.cell, k)
	k.c.ok(err, "Run")
	return ended
}

func (k *contextKernel) end(ended <-chan struct{}) {
	select {
	case <-ended:
	case <-time.After(3 * k.c.waitBound()):
		k.c.Fatalf("the cell does not end: %q", k.cell.Code)
	}
}

// shows runs a cell and compares what it sends: its standard output, "2:" and its standard error,
// "[text]" of results, and "!name: value" of an error.
func (k *contextKernel) shows(code, want string) {
	k.end(k.begin(code))
	if got := k.take(); got != want {
		k.c.Errorf("%q: got %q, want %q", code, got, want)
	}
}

func (k *contextKernel) take() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.text.Reset()
	return k.text.String()
}

func (k *contextKernel) seen(text string) func() bool {
	return func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return strings.Contains(k.text.String(), text)
	}
}

// Output implements kernel.Handler.
func (k *contextKernel) Output(s sandbar.Stream, p []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.bytes[s] += len(p)
	if k.count {
		return
	}
	if s == sandbar.Stderr && k.bytes[s] == len(p) { // once
		k.text.WriteString("2:")
	}
	k.text.Write(p)
}

// Display implements kernel.Handler.
func (k *contextKernel) Display(d sandbar.Display, _ int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.text.WriteString("[" + d.Text + "]")
}

// Error implements kernel.Handler.
func (k *contextKernel) Error(e sandbar.CellError) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.text.WriteString("!" + e.Name + ": " + e.Value)
}
