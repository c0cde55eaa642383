package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/internal/cli"
)

// maxCells bounds the cells that are read from an input that is no terminal, in bytes.
const maxCells = 16 << 20

func (a *app) replCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "repl LANGUAGE [flags]",
		Short: "Run cells of code in an interpreter that stays in a sandbox",
		Long: `Run cells of code in an interpreter that stays in a sandbox of a daemon and keeps
its variables. LANGUAGE is python, javascript, typescript or bash.

The value of a cell's last expression is printed as text. Images, and other results
without text, are saved as files whose names are printed.

At a terminal a line is a cell. A line that ends with a colon or with an open
bracket begins a longer cell, which an empty line ends. Ctrl-C interrupts a cell, or
clears what is typed at the prompt; Ctrl-D at the prompt ends the command. If the input is no terminal, lines "%%"
separate its cells, and the first cell that fails ends the command.

Without --sandbox a new sandbox is created, and removed at the end.
` + remoteHelp + `

Exit code: 0, or
  1    a cell failed (if the input is no terminal)
  2    a mistake on the command line or in the configuration
  125  the daemon could not run a cell`,
		Example: `  sandbar repl python
  sandbar repl python --sandbox $id --dir /tmp
  echo 'sum(range(10))' | sandbar repl python`,
		ValidArgs: []string{"python", "javascript", "typescript", "bash"},
	}
	f := cmd.Flags()
	f.String("sandbox", "", "`ID` or name of the sandbox (default a new one)")
	f.String("image", "", "`image` of the new sandbox (default host)")
	f.StringArrayP("env", "e", nil, "environment variable, `NAME=VALUE`, or NAME to pass on your own; may be repeated")
	f.StringP("dir", "w", "", "working `directory` in the sandbox (default "+sandbar.DefaultDir+")")
	f.String("timeout", "", "`duration` that one cell may take, or unlimited (default the sandbox's)")
	f.String("save", ".", "`directory` in which images are saved")
	a.settings(cmd, remoteSettings...)
	cmd.RunE = a.repl
	return cmd
}

// repl is a session with one context.
type repl struct {
	app     *app
	cmd     *cobra.Command
	client  *client.Client
	signals chan os.Signal
	sandbox string
	context string
	timeout wire.Amount
	saved   int // files
	failed  bool
}

func (a *app) repl(cmd *cobra.Command, args []string) (err error) {
	if err := needArgs(cmd, args, 1, "LANGUAGE"); err != nil {
		return err
	}
	c, err := a.client(cmd)
	if err != nil {
		return err
	}
	defer c.Close()
	s := &repl{app: a, cmd: cmd, client: c, signals: a.terminationSignals()}
	r := &remote{Client: c, app: a, cmd: cmd}
	env, err := r.env()
	if err != nil {
		return err
	}
	timeout, _ := cmd.Flags().GetString("timeout")
	if s.timeout, err = r.seconds("timeout", timeout); err != nil {
		return err
	}
	dir, _ := cmd.Flags().GetString("dir")
	image, _ := cmd.Flags().GetString("image")
	s.sandbox, _ = cmd.Flags().GetString("sandbox")
	if s.sandbox != "" && image != "" {
		return usagef(cmd, "--sandbox excludes --image")
	}
	ctx, stop := s.untilSignal()
	defer stop()
	if s.sandbox == "" {
		made, err := c.Create(ctx, wire.Create{Image: image})
		if err != nil {
			return cli.Fail(cli.ExitPlatform, err)
		}
		s.sandbox = string(made.ID)
		defer func() {
			err = errors.Join(err, s.remove(func(ctx context.Context) error { return c.Stop(ctx, s.sandbox) }))
		}()
	}
	made, err := c.CreateContext(ctx, s.sandbox, wire.CreateContext{Language: args[0], Dir: dir, Env: env})
	stop()
	if err != nil {
		return cli.Fail(cli.ExitPlatform, err)
	}
	s.context = made.ID
	defer func() {
		err = errors.Join(err, s.remove(func(ctx context.Context) error { return c.RemoveContext(ctx, s.sandbox, s.context) }))
	}()
	if term.IsTerminal(int(a.stdin.Fd())) {
		return s.interact(args[0])
	}
	return s.runAll()
}

// untilSignal returns a context that the next signal ends.
func (s *repl) untilSignal() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-s.signals:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// remove removes what the session has created. A sandbox or a context that has ended by itself is
// no error.
func (s *repl) remove(f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	switch err := f(ctx); sandbar.CodeOf(err) {
	case "", sandbar.NotFound, sandbar.Gone, sandbar.Conflict:
		return nil
	default:
		return cli.Fail(cli.ExitPlatform, err)
	}
}

// runAll runs the cells of the standard input.
func (s *repl) runAll() error {
	b, err := io.ReadAll(io.LimitReader(s.app.stdin, maxCells+1))
	if err != nil {
		return cli.Fail(cli.ExitPlatform, sandbar.Errorf(sandbar.Invalid, "the standard input cannot be read: %w", err))
	}
	if len(b) > maxCells {
		return usagef(s.cmd, "the standard input has more than %d bytes", maxCells)
	}
	if err := checkUTF8(s.cmd, []string{string(b)}); err != nil {
		return err
	}
	for _, code := range cellsOf(string(b)) {
		if err := s.run(code); err != nil {
			return err
		}
		if s.failed {
			return cli.Exit(1)
		}
	}
	return nil
}

// cellsOf splits text at lines "%%". Empty cells are left out.
func cellsOf(text string) (cells []string) {
	var cell strings.Builder
	add := func() {
		if strings.TrimSpace(cell.String()) != "" {
			cells = append(cells, cell.String())
		}
		cell.Reset()
	}
	for line := range strings.Lines(text) {
		if strings.TrimRight(line, "\r\n") == "%%" {
			add()
		} else {
			cell.WriteString(line)
		}
	}
	add()
	return cells
}

// interact reads cells from the terminal.
func (s *repl) interact(language string) error {
	fmt.Fprintf(s.app.stdout, "%s in sandbox %s; Ctrl-C interrupts a cell, Ctrl-D ends\n", language, s.sandbox)
	keys := &promptKeys{from: s.app.stdin}
	screen := struct {
		io.Reader
		io.Writer
	}{keys, s.app.stdout}
	t := term.NewTerminal(screen, "")
	for {
		code, err := s.read(t, keys)
		if err == io.EOF {
			fmt.Fprintln(s.app.stdout)
			return nil
		}
		if err != nil {
			return cli.Fail(cli.ExitPlatform, sandbar.Errorf(sandbar.Internal, "the terminal cannot be read: %w", err))
		}
		if strings.TrimSpace(code) == "" {
			continue
		}
		if err := s.run(code); err != nil {
			return err
		}
	}
}

// promptKeys reads the keys that are typed at a prompt. Ctrl-C, which would end the terminal like
// Ctrl-D, arrives as the keys that clear the line and end it.
type promptKeys struct {
	from    io.Reader
	waiting []byte // has been read, and not returned yet
	dropped bool   // Ctrl-C was typed: the cell is dropped
}

const ctrlC = 3

// clearLine is Ctrl-E, Ctrl-U and Enter.
const clearLine = "\x05\x15\r"

// Read implements io.Reader. Keys after a Ctrl-C are returned by the next call, when the terminal
// has consumed those before it.
func (k *promptKeys) Read(p []byte) (int, error) {
	if len(k.waiting) == 0 {
		n, err := k.from.Read(p)
		if n == 0 {
			return 0, err
		}
		k.waiting = append(k.waiting, p[:n]...)
	}
	if k.waiting[0] == ctrlC && len(p) >= len(clearLine) {
		k.waiting, k.dropped = k.waiting[1:], true
		return copy(p, clearLine), nil
	}
	end := bytes.IndexByte(k.waiting, ctrlC)
	if end < 1 {
		end = len(k.waiting)
	}
	n := copy(p, k.waiting[:end])
	k.waiting = k.waiting[n:]
	return n, nil
}

// read reads one cell, with the terminal in raw mode. It returns "" after a Ctrl-C.
func (s *repl) read(t *term.Terminal, keys *promptKeys) (string, error) {
	fd := int(s.app.stdin.Fd())
	state, err := term.MakeRaw(fd)
	if err != nil {
		return "", err
	}
	defer term.Restore(fd, state)
	if cols, rows, err := term.GetSize(fd); err == nil {
		t.SetSize(cols, rows)
	}
	var code strings.Builder
	for t.SetPrompt(">>> "); ; t.SetPrompt("... ") {
		line, err := t.ReadLine()
		if err != nil && err != term.ErrPasteIndicator {
			return "", err
		}
		if keys.dropped {
			keys.dropped = false
			return "", nil
		}
		first := code.Len() == 0
		code.WriteString(line + "\n")
		if first && !continues(line) || !first && strings.TrimSpace(line) == "" {
			return code.String(), nil
		}
	}
}

// continues reports whether a first line begins a longer cell.
func continues(line string) bool {
	line = strings.TrimSpace(line)
	return line != "" && strings.ContainsRune(":({[,\\", rune(line[len(line)-1])) || strings.HasPrefix(line, "@") || strings.Count(line, `"""`)%2 == 1
}

// run runs one cell and prints its events.
func (s *repl) run(code string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.failed = false
	go func() { // the first signal interrupts the cell, the second one leaves it
		for interrupted := false; ; interrupted = true {
			select {
			case number := <-s.signals:
				if interrupted || number != os.Interrupt {
					cancel()
					return
				}
				go s.client.InterruptContext(ctx, s.sandbox, s.context)
			case <-ctx.Done():
				return
			}
		}
	}()
	end, err := s.client.RunCell(ctx, s.sandbox, s.context, wire.Cell{Code: code, Timeout: s.timeout}, s.event)
	if _, ok := errors.AsType[*client.OutputError](err); ok {
		return cli.OutputError(errors.Unwrap(err))
	}
	if err != nil && ctx.Err() != nil {
		return cli.Exit(cli.ExitSignal + int(syscall.SIGINT))
	}
	if err != nil {
		return cli.Fail(cli.ExitPlatform, err)
	}
	if end.Outcome != sandbar.Exited.String() && !end.Lost {
		cli.Warn(s.app.stderr, "the cell was ended: %s", end.Outcome)
	}
	s.failed = end.Failed || end.Outcome != sandbar.Exited.String()
	return nil
}

// event prints one event.
func (s *repl) event(e wire.Event) (err error) {
	switch e.Type {
	case wire.EventStdout:
		_, err = io.WriteString(s.app.stdout, e.Text)
	case wire.EventStderr:
		_, err = io.WriteString(s.app.stderr, e.Text)
	case wire.EventResult:
		err = s.result(e.Display)
	case wire.EventError:
		text := strings.TrimRight(e.Traceback, "\n")
		if text == "" {
			text = e.Name + ": " + e.Value
		}
		_, err = io.WriteString(s.app.stderr, text+"\n")
	}
	if err != nil {
		if _, ok := errors.AsType[*sandbar.Error](err); !ok {
			err = &client.OutputError{Err: err}
		}
	}
	return err
}

// result prints a result and saves its files.
func (s *repl) result(d sandbar.Display) error {
	if d.Text != "" {
		if _, err := fmt.Fprintln(s.app.stdout, d.Text); err != nil {
			return err
		}
	}
	for _, f := range []struct {
		ending string
		data   []byte
		always bool // also beside a text
	}{{"png", d.PNG, true}, {"jpg", d.JPEG, true}, {"pdf", d.PDF, true}, {"svg", []byte(d.SVG), true}, {"html", []byte(d.HTML), false}} {
		if len(f.data) == 0 || !f.always && d.Text != "" {
			continue
		}
		name, err := s.save(f.ending, f.data)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(s.app.stdout, "saved %s\n", name); err != nil {
			return err
		}
	}
	if d.Text == "" {
		for _, text := range []string{d.Markdown, d.LaTeX, string(d.JSON), d.JavaScript} {
			if text != "" {
				_, err := fmt.Fprintln(s.app.stdout, text)
				return err
			}
		}
	}
	return nil
}

// save writes a new file, "result-1.png", and never replaces one.
func (s *repl) save(ending string, data []byte) (string, error) {
	dir, _ := s.cmd.Flags().GetString("save")
	for {
		s.saved++
		name := filepath.Join(dir, fmt.Sprintf("result-%d.%s", s.saved, ending))
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if os.IsExist(err) {
			continue
		}
		if err == nil {
			_, err = f.Write(data)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			return "", &sandbar.Error{Code: sandbar.Denied, Field: "save", Message: "a result cannot be saved: " + err.Error(), Fix: "give a directory with --save"}
		}
		return name, nil
	}
}
