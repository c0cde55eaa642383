package drivertest

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// terminalCases test sandbar.Cmd.Terminal.
func terminalCases() []testCase {
	has := []need{needClaim("terminals", func(c driver.Caps) bool { return c.Terminals })}
	return []testCase{
		{name: "refused", run: func(c *C) {
			if c.d.Caps().Terminals {
				return
			}
			_, err := c.box().Start(c.ctx, sandbar.Cmd{Args: []string{"sh"}, Terminal: &sandbar.Terminal{Size: sandbar.TerminalSize{Rows: 24, Cols: 80}}}, driver.Stdio{})
			c.code(err, "a terminal of a driver without them", sandbar.Unsupported)
		}},
		{name: "size", needs: has, run: func(c *C) {
			t := c.terminal(c.box(), "test -t 2 && echo terminal >&2; while :; do stty size; sleep 0.1; done")
			t.reads("terminal\r\n24 80\r\n")
			for _, s := range []sandbar.TerminalSize{{Rows: 0, Cols: 7}, {Rows: 50, Cols: sandbar.MaxTerminalSize + 1}, {Rows: 50, Cols: 132}} {
				t.sizes <- s // the invalid ones are ignored
			}
			t.reads("50 132\r\n")
			c.ok(t.p.KillTree(), "KillTree")
			c.wait(t.p)
			t = c.terminal(c.box(), "stty -echo; echo ready; while read line; do stty size; done")
			t.reads("ready\r\n")
			for i := range c.s.few(50, 10) { // a size comes before the input that is written after it
				t.sizes <- sandbar.TerminalSize{Rows: 30 + i, Cols: 90}
				t.types("\n")
				t.reads(fmt.Sprintf("%d 90\r\n", 30+i))
			}
			c.ok(t.p.KillTree(), "KillTree")
			c.wait(t.p)
		}},
		{name: "keys", needs: has, run: func(c *C) {
			t := c.terminal(c.box(), `trap 'echo interrupted' INT; stty -echo; sh -c 'echo ready; exec cat'; echo "cat $?"; read line; echo "got <$line>"; cat; echo end; exit 7`)
			t.reads("ready\r\n")
			t.types("\x03") // ends cat and is caught by the shell
			t.reads("cat 130\r\n")
			t.types("a line\r")
			t.reads("got <a line>\r\n")
			t.types("more\n")
			t.reads("more\r\n")
			t.in.Close() // typed as Ctrl-D
			t.reads("end\r\n")
			if r := c.wait(t.p); r.ExitCode != 7 || !strings.Contains(t.out.String(), "interrupted") {
				c.Errorf("%+v, output %q", r, t.out.String())
			}
		}},
		{name: "own", needs: has, run: func(c *C) {
			t := c.terminal(c.box(), `echo one >/dev/tty; sh -c 'echo two' <>/dev/tty >&0; case $(tty) in /dev/pts/*) echo three;; *) tty;; esac`)
			t.reads("one\r\ntwo\r\nthree\r\n")
			c.wait(t.p)
		}},
		{name: "all-output", needs: has, run: func(c *C) {
			n := c.s.amount(100_000)
			t := c.terminal(c.box(), "seq 1 "+strconv.Itoa(n))
			if r := c.wait(t.p); r.ExitCode != 0 {
				c.Errorf("%+v", r)
			}
			if out := t.out.String(); strings.Count(out, "\r\n") != n || !strings.HasSuffix(out, "\n"+strconv.Itoa(n)+"\r\n") {
				c.Errorf("%d lines through a terminal: got %d, the last %q", n, strings.Count(out, "\r\n"), tail(out, 30))
			}
		}},
		{name: "killed", needs: has, run: func(c *C) {
			t := c.terminal(c.box(), "trap '' HUP TERM INT; sleep 1000 & echo ready; wait; sleep 1000")
			t.reads("ready\r\n")
			c.ok(t.p.KillTree(), "KillTree")
			if r := c.wait(t.p); r.Outcome != sandbar.Signaled {
				c.Errorf("%+v", r)
			}
		}},
		{name: "bad-size", needs: has, run: func(c *C) {
			b := c.box()
			for _, s := range []sandbar.TerminalSize{{}, {Rows: -1, Cols: 80}, {Rows: 24, Cols: 1_000_000}} {
				_, err := b.Start(c.ctx, sandbar.Cmd{Args: []string{"sh"}, Terminal: &sandbar.Terminal{Size: s}}, driver.Stdio{})
				c.code(err, "a terminal of an impossible size", sandbar.Invalid)
			}
		}},
	}
}

// terminalProgram is a shell with a terminal.
type terminalProgram struct {
	c     *C
	p     driver.Process
	in    *io.PipeWriter
	out   *buffer
	sizes chan sandbar.TerminalSize
}

// terminal starts a script in a terminal of 24 rows and 80 columns.
func (c *C) terminal(b driver.Sandbox, script string) *terminalProgram {
	r, w := io.Pipe()
	c.Cleanup(func() { w.Close() })
	t := &terminalProgram{c: c, in: w, out: &buffer{}, sizes: make(chan sandbar.TerminalSize, 1)}
	t.p = c.start(b, sandbar.Cmd{Args: []string{"sh", "-c", script}, Env: map[string]string{"TERM": "dumb"},
		Terminal: &sandbar.Terminal{Size: sandbar.TerminalSize{Rows: 24, Cols: 80}, Sizes: t.sizes}}, driver.Stdio{Stdin: r, Stdout: t.out})
	return t
}

func (t *terminalProgram) types(keys string) {
	_, err := t.in.Write([]byte(keys))
	t.c.ok(err, "typing")
}

// reads waits for output.
func (t *terminalProgram) reads(want string) {
	t.c.until(func() bool { return strings.Contains(t.out.String(), want) }, "the terminal shows %q", want)
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }
