package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// typed is a command with a terminal of its own, at which somebody types.
type typed struct {
	t      *testing.T
	cmd    *exec.Cmd
	master *os.File
	before unix.Termios // the terminal's modes before the command
	shown  transcript
	seen   int // bytes of shown up to the end of the last step
}

// atTerminal starts a command in a terminal of 30 rows and 100 columns, of a type for TERM.
func atTerminal(t *testing.T, cmd *exec.Cmd, kind string) *typed {
	t.Helper()
	master, slave := terminal(t)
	x := &typed{t: t, cmd: cmd, master: master, shown: transcript{changed: make(chan struct{})}}
	x.resize(30, 100)
	x.before = x.modes()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.Env = append(cmd.Env, "TERM="+kind)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go io.Copy(&x.shown, master)
	return x
}

func (x *typed) resize(rows, cols uint16) {
	if err := unix.IoctlSetWinsize(int(x.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols}); err != nil {
		x.t.Fatal(err)
	}
}

// modes returns the terminal's modes.
func (x *typed) modes() unix.Termios {
	x.t.Helper()
	m, err := unix.IoctlGetTermios(int(x.master.Fd()), unix.TCGETS)
	if err != nil {
		x.t.Fatal(err)
	}
	return *m
}

// step types keys and waits for what they show after the last step.
func (x *typed) step(keys, want string) {
	x.t.Helper()
	if _, err := x.master.WriteString(keys); err != nil {
		x.t.Fatal(err)
	}
	_, x.seen = x.shown.awaitAfter(x.t, x.seen, want)
}

// ends waits until the command ends with an exit code, and leaves the terminal as it was.
func (x *typed) ends(code int) {
	x.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- x.cmd.Wait() }()
	select {
	case err := <-ended:
		if got := x.cmd.ProcessState.ExitCode(); got != code {
			x.t.Errorf("the command ended with %v, want %d", err, code)
		}
	case <-time.After(patience):
		x.cmd.Process.Kill()
		text, _ := x.shown.look()
		x.t.Fatalf("the command does not end; it showed\n%s", text)
	}
	if after := x.modes(); after != x.before {
		x.t.Errorf("the terminal is not as before: %+v, %+v", x.before, after)
	}
}

// A terminal of a sandbox behaves as one of this machine, and leaves this machine's as it was.
func TestTerminal(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS)
	p, id := served(t, []string{"SANDBAR_DRIVER=native", "SANDBAR_ALLOW_DEGRADED=true"})
	direct := exec.Command("sandbar", "run", "--allow-degraded", "host", "-it", "--", "sh")
	direct.Env = isolatedEnv(t, p.dir)
	for name, cmd := range map[string]*exec.Cmd{"exec": p.command("exec", id, "-it", "--", "sh"), "run": direct} {
		t.Run(name, func(t *testing.T) {
			x := atTerminal(t, cmd, "vt220")
			x.step("", `[$#] `)
			x.step("stty size; echo term=$TERM\r", `30 100\r\nterm=vt220`)
			// The kernel signals the foreground process group only, which is not that of an
			// interactive shell while a command runs.
			x.step("sh -c 'trap \"stty size; exit\" WINCH; echo trap\"\"ped; while :; do sleep 0.1; done'\r", `trapped\r\n`)
			x.resize(50, 132)
			x.step("", `50 132\r\n`)
			x.step("sh -c 'echo wai\"\"ting; exec cat'\r", `waiting\r\n`)
			// A program that an interrupt ends may still read what is typed before the prompt.
			x.step("\x03", `\^C\r\n[$#] `)
			x.step("echo $? is''rc; stty -a | grep -o ' echo '\r", `130 isrc\r\n echo `)
			x.step("exit 7\r", `exit 7`)
			x.ends(7)
		})
	}
	p.expectWith("stty size; tty; exit 3\n", 3, `.*24 80\r\n/dev/pts/\d+\r\n.*`, "", "exec", id, "-t", "--", "sh")
	p.expect(2, "", ".*--detach excludes --tty.*", "exec", id, "-td", "--", "sh")
	if text := p.expect(0, ".*", "", "list"); !strings.Contains(text, id) {
		t.Errorf("the sandbox is gone: %s", text)
	}
}

// A shell in a sandbox has colours, jobs and the end of its input, as at a terminal of the host.
func TestTerminalShell(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS)
	p, id := served(t, []string{"SANDBAR_DRIVER=native", "SANDBAR_ALLOW_DEGRADED=true"})
	x := atTerminal(t, p.command("exec", id, "-it", "-e", "PS1=at \\w> ", "--", "bash", "--norc"), "xterm-256color")
	const prompt = `at ~> `
	x.step("", prompt)
	x.step("mkdir sub; ls --color=auto; tput colors; tput setaf 1; echo re''d\r", `\x1b\[01;34msub\x1b\[0m\r\n256\r\n\x1b\[31mred\r\n(?s:.*)`+prompt)
	x.step("eco lines\x01\x06\x06h\x05-edited\r", `\x1b\[\?2004l\r?lines-edited\r\n(?s:.*)`+prompt)
	// The kernel signals a new size to the program in front.
	x.step("bash -c 'trap \"stty size\" WINCH; echo trap\"\"ped; until read -t 1 line; do :; done; echo $line'\r", `trapped\r\n`)
	x.resize(40, 120)
	x.step("", `40 120\r\n`)
	x.step("go on\r", `go on\r\ngo on\r\n(?s:.*)`+prompt)
	x.step("echo rea''dy; cat\r", `ready\r\n`) // the terminal has the modes of programs
	x.step("once\r", `once\r\nonce\r\n`)
	x.step("\x1a", `\[1\]\+  Stopped +cat\r\n(?s:.*)`+prompt)
	x.step("jobs\r", `\[1\]\+  Stopped +cat\r\n(?s:.*)`+prompt)
	x.step("fg\r", `fg\r\n(?s:.*)cat\r\n`)
	x.step("twice\r", `twice\r\ntwice\r\n`)
	x.step("\x04", prompt)
	x.step("sh -c 'echo wai\"\"ting; exec sleep 1000'\r", `waiting\r\n`) // it is certainly in front
	x.step("\x03", `\^C(?s:.*)`+prompt)
	x.step("echo $? is''rc\r", `130 isrc\r\n(?s:.*)`+prompt)
	x.step("(exit 7)\r", `\r\n(?s:.*)`+prompt)
	x.step("\x04", `exit`)
	x.ends(7)
	p.expect(0, "", "", "exec", id, "--", "sh", "-c", "grep -lx -e cat -e sleep /proc/[0-9]*/comm 2>&1; true")
}

// An editor in a sandbox draws its whole screen, follows a new size, and saves.
func TestTerminalEditor(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.Vim)
	p, id := served(t, []string{"SANDBAR_DRIVER=native", "SANDBAR_ALLOW_DEGRADED=true"})
	x := atTerminal(t, p.command("exec", id, "-it", "--", "vim", "--clean", "note"), "xterm-256color")
	x.step("", `"note" \[New\]`)
	x.step(":echo 'rea' .. 'dy'\r", `ready`) // it has started
	x.resize(50, 132)
	x.step("", `\x1b\[50;\d+H`) // the last line, drawn again
	x.step(":echo 'size' &lines &columns\r", `size 50 132`)
	x.step("ifirst line\rsecond line\x1b", `second line`)
	x.step(":w\r", `"note" \[New\] 2L, 23B written`)
	x.step("ggdd:wq\r", `"note" 1L, 12B written`)
	x.ends(0)
	p.expect(0, "second line\n", "", "exec", id, "--", "cat", "note")
}

// The same in tmux, which is a terminal of its own and shows what a user would see.
func TestTerminalInTmux(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.Vim, testenv.Tmux)
	p, id := served(t, []string{"SANDBAR_DRIVER=native", "SANDBAR_ALLOW_DEGRADED=true"})
	socket := filepath.Join(t.TempDir(), "tmux")
	command := p.command("exec", id, "-it", "-e", "PS1=at> ", "--", "bash", "--norc")
	tmux := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("tmux", append([]string{"-f", "/dev/null", "-S", socket}, args...)...)
		cmd.Env = append(command.Env, "TERM=xterm-256color", "LANG=C.UTF-8")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("tmux %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	tmux(append([]string{"start-server", ";", "set-option", "-g", "remain-on-exit", "on", ";", "new-session", "-d", "-x", "100", "-y", "30", command.Path}, command.Args[1:]...)...)
	t.Cleanup(func() { tmux("kill-server") })
	// shows types keys and waits until the screen matches.
	shows := func(pattern string, keys ...string) {
		t.Helper()
		if len(keys) > 0 {
			tmux(append([]string{"send-keys"}, keys...)...)
		}
		re := regexp.MustCompile(`(?s)\A` + pattern + `\s*\z`)
		for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
			screen := tmux("capture-pane", "-p")
			if re.MatchString(screen) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("no %q on the screen:\n%s", pattern, screen)
			}
		}
	}
	shows(`at>`)
	shows(`.*\nsub\nat>`, "mkdir sub; ls --color", "Enter")
	if screen := tmux("capture-pane", "-p", "-e"); !strings.Contains(screen, "\x1b[1m\x1b[34msub\n\x1b[0m") {
		t.Errorf("no colours: %q", screen)
	}
	tmux("resize-window", "-x", "120", "-y", "40")
	// tmux changes the size later than it types
	shows(`.*\n40 120\nat>`, `until stty size | grep "40 120"; do sleep 0.1; done`, "Enter")
	shows(`\s*\n~.*"note" \[New\].*`, "vim --clean note", "Enter")
	tmux("resize-window", "-x", "100", "-y", "20")
	shows(`\s*(\n~\s*){18}\n[^~]*`)
	shows(`written in tmux\s*(\n~\s*){18}\n[^~]*`, "i", "written in tmux", "Escape")
	shows(`.*vim --clean note\nat>`, ":wq", "Enter") // the screen from before is back
	shows(`.*cat note\nwritten in tmux\nat>`, "cat note", "Enter")
	shows(`.*\nwaiting`, "sh -c 'echo wai\"\"ting; exec sleep 1000'", "Enter")
	shows(`.*\^C\n.*at>`, "C-c")
	tmux("send-keys", "C-d")
	for end := time.Now().Add(patience); tmux("list-panes", "-F", "#{pane_dead}") != "1\n"; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the command has not ended:\n%s", tmux("capture-pane", "-p"))
		}
	}
}

// sandbar repl at a terminal: a line is a cell, Ctrl-C interrupts a cell and clears a line, and
// Ctrl-D ends.
func TestTerminalREPL(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.Python)
	p, id := served(t, []string{"SANDBAR_DRIVER=native", "SANDBAR_ALLOW_DEGRADED=true"})
	cmd := p.command("repl", "python", "--sandbox", id)
	cmd.Dir = t.TempDir()
	x := atTerminal(t, cmd, "xterm-256color")
	x.step("", `python in sandbox sb_\w+; (?s:.*)>>> `)
	x.step("x = 20\r", `>>> `)
	x.step("x + 1\r", `\r\n21\r\n>>> `)
	x.step("\x1b[A\r", `x \+ 1\r\n21\r\n>>> `) // the last line again
	x.step("for i in range(2):\r", `\.\.\. `)
	x.step("    print('n', i)\r\r", `n 0\r\nn 1\r\n>>> `)
	x.step("print('u' + 'p', flush=True); import time; time.sleep(1000)\r", `\nup\r\n`)
	x.step("\x03", `KeyboardInterrupt\r\n>>> `)
	x.step("\x03", `>>> `) // no cell runs
	x.step("not = python", `not = python`)
	x.step("\x03", `>>> `)
	x.step("def f():\r", `\.\.\. `)
	x.step("\x03", `>>> `)
	x.step("1 / 0\r", `ZeroDivisionError: division by zero\r\n>>> `)
	x.step("class P:\r    def _repr_png_(self): return b'picture'\r\r", `>>> `)
	x.step("P()\r", `saved result-1.png\r\n>>> `)
	x.step("x\r", `\r\n20\r\n>>> `)
	x.step("\x04", `\r\n`)
	x.ends(0)
	if b, err := os.ReadFile(filepath.Join(cmd.Dir, "result-1.png")); string(b) != "picture" {
		t.Errorf("the image is %q, %v", b, err)
	}
}

func TestTerminalRefused(t *testing.T) {
	p, id := served(t, []string{"SANDBAR_DRIVER=local", "SANDBAR_ALLOW_DEGRADED=true"})
	p.expect(125, "", `.*the driver "local" has no terminals.*`, "exec", id, "-t", "--", "sh")
}
