package main

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// typed is a command with a terminal of its own, at which somebody types.
type typed struct {
	t      *testing.T
	cmd    *exec.Cmd
	master *os.File
	shown  transcript
}

// atTerminal starts a command in a terminal of 30 rows and 100 columns.
func atTerminal(t *testing.T, cmd *exec.Cmd) *typed {
	t.Helper()
	master, slave := terminal(t)
	x := &typed{t: t, cmd: cmd, master: master, shown: transcript{changed: make(chan struct{})}}
	x.resize(30, 100)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.Env = append(cmd.Env, "TERM=vt220")
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

// step types keys and waits for what they show.
func (x *typed) step(keys, want string) {
	x.t.Helper()
	if _, err := x.master.WriteString(keys); err != nil {
		x.t.Fatal(err)
	}
	x.shown.await(x.t, want)
}

// A terminal of a sandbox behaves as one of this machine, and leaves this machine's as it was.
func TestTerminal(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS)
	p, id := served(t, []string{"SANDBAR_DRIVER=native", "SANDBAR_ALLOW_DEGRADED=true"})
	direct := exec.Command("sandbar", "run", "--allow-degraded", "host", "-it", "--", "sh")
	direct.Env = isolatedEnv(t, p.dir)
	for name, cmd := range map[string]*exec.Cmd{"exec": p.command("exec", id, "-it", "--", "sh"), "run": direct} {
		t.Run(name, func(t *testing.T) {
			x := atTerminal(t, cmd)
			before, err := unix.IoctlGetTermios(int(x.master.Fd()), unix.TCGETS)
			if err != nil {
				t.Fatal(err)
			}
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
			if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 7 {
				t.Errorf("the command ended with %v", err)
			}
			after, err := unix.IoctlGetTermios(int(x.master.Fd()), unix.TCGETS)
			if err != nil || *after != *before {
				t.Errorf("the terminal is not as before: %+v, %+v, %v", before, after, err)
			}
		})
	}
	p.expectWith("stty size; tty; exit 3\n", 3, `.*24 80\r\n/dev/pts/\d+\r\n.*`, "", "exec", id, "-t", "--", "sh")
	p.expect(2, "", ".*--detach excludes --tty.*", "exec", id, "-td", "--", "sh")
	if text := p.expect(0, ".*", "", "list"); !strings.Contains(text, id) {
		t.Errorf("the sandbox is gone: %s", text)
	}
}

func TestTerminalRefused(t *testing.T) {
	p, id := served(t, []string{"SANDBAR_DRIVER=local", "SANDBAR_ALLOW_DEGRADED=true"})
	p.expect(125, "", `.*the driver "local" has no terminals.*`, "exec", id, "-t", "--", "sh")
}
