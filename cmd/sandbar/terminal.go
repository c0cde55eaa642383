package main

import (
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/cli"
)

// defaultSize is the size of a terminal if this command has none itself.
var defaultSize = sandbar.TerminalSize{Rows: 24, Cols: 80}

// terminalFlags adds the flags for a terminal. --interactive changes nothing: the input is always
// passed on. It exists because people type -it.
func terminalFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolP("tty", "t", false, "give the program a terminal; Ctrl-C goes to the program")
	f.BoolP("interactive", "i", false, "pass on standard input (always so)")
}

// localTerminal is this command's own terminal, which shows that of a program.
type localTerminal struct {
	in    *os.File // nil: standard input is no terminal
	state *term.State
	size  sandbar.TerminalSize
	sizes chan sandbar.TerminalSize // room for one
	stop  func()
}

// openTerminal returns nil without the flag --tty. It passes on every key from now on, until close.
func (a *app) openTerminal(cmd *cobra.Command) (*localTerminal, error) {
	if wanted, _ := cmd.Flags().GetBool("tty"); !wanted {
		return nil, nil
	}
	t := &localTerminal{size: defaultSize, sizes: make(chan sandbar.TerminalSize, 1), stop: func() {}}
	if term.IsTerminal(int(a.stdin.Fd())) {
		t.in = a.stdin
	}
	if t.in == nil {
		return t, nil
	}
	if size, ok := t.read(); ok {
		t.size = size
	}
	state, err := term.MakeRaw(int(t.in.Fd()))
	if err != nil {
		return nil, cli.Fail(cli.ExitPlatform, sandbar.Errorf(sandbar.Internal, "this terminal cannot pass on every key: %w", err))
	}
	t.state = state
	t.stop = onResize(t.update)
	return t, nil
}

// openTerminal gives the job a terminal if --tty was given. An interactive program has no limits of
// time and output unless a flag sets them.
func (x *execution) openTerminal() (*localTerminal, error) {
	t, err := x.app.openTerminal(x.cmd)
	if t == nil || err != nil {
		return nil, err
	}
	if x.json {
		t.close()
		return nil, usagef(x.cmd, "--tty excludes --json")
	}
	x.job.Cmd.Terminal = &sandbar.Terminal{Size: t.size, Sizes: t.sizes}
	if name := x.app.term(t); name != "" && x.job.Spec.Env["TERM"] == "" {
		x.job.Cmd.Env = map[string]string{"TERM": name}
	}
	l := &x.job.Spec.Limits
	if !x.cmd.Flags().Changed("timeout") && x.cfg.Origin("limits.default.timeout") == "" && x.cfg.Origin("limits.max.timeout") == "" {
		l.Timeout = sandbar.Unlimited
	}
	return t, nil
}

func (t *localTerminal) read() (sandbar.TerminalSize, bool) {
	cols, rows, err := term.GetSize(int(t.in.Fd()))
	size := sandbar.TerminalSize{Rows: rows, Cols: cols}
	return size, err == nil && size.Check() == nil
}

// update delivers the present size.
func (t *localTerminal) update() {
	size, ok := t.read()
	if !ok {
		return
	}
	select {
	case <-t.sizes: // an older one
	default:
	}
	t.sizes <- size
}

// close gives the terminal back as it was. It accepts nil.
func (t *localTerminal) close() {
	if t == nil {
		return
	}
	t.stop()
	if t.state != nil {
		_ = term.Restore(int(t.in.Fd()), t.state) // nothing is left to do about a failure
	}
}

// term returns the value of TERM for the program, "" if it is not known.
func (a *app) term(t *localTerminal) string {
	if t.in == nil {
		return ""
	}
	value, _ := lookupEnv(a.environ, "TERM")
	return value
}
