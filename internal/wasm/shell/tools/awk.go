package tools

import (
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar/internal/wasm/shell/awk"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/program"
)

func awkTool(t *cmd) {
	env := awk.Env{Environ: t.Env, Stdin: t.Stdin, Stdout: t.out, Check: t.check, Time: time.Now, Zone: location(t), Strftime: strftime,
		Warn: func(message string) { t.warn("%s", message) }}
	var sources []string
	args := t.leading(
		"F: field-separator", func(v string) {
			if env.FS = v; env.FS == "t" {
				env.FS = `\t`
			}
		},
		"v: assign", func(v string) {
			if !strings.Contains(v, "=") {
				t.fatal(2, "invalid -v argument: %s", v)
			}
			env.Vars = append(env.Vars, v)
		},
		"f: file", func(v string) { sources = append(sources, t.scriptFile(v)) },
		"e: source", &sources,
	)
	if sources == nil {
		if len(args) == 0 {
			t.fatal(2, "no program was given")
		}
		sources, args = args[:1], args[1:]
	}
	prog, err := awk.Parse(strings.Join(sources, "\n"))
	t.valid(err, 2)
	env.Args = append([]string{"awk"}, args...)
	env.Open = func(name string) (io.ReadCloser, error) {
		if name != "-" && t.isDir(name) {
			return nil, errors.New("is a directory")
		}
		f, err := t.OpenFile(name, os.O_RDONLY, 0)
		return f, textError(err)
	}
	env.Create = func(name string, extend bool) (io.WriteCloser, error) {
		f, err := t.create(name, extend)
		if err != nil {
			return nil, textError(err)
		}
		return textErrors{f}, nil
	}
	env.Run = func(command string, stdin io.Reader, stdout io.Writer) int { return t.shell(command, stdin, stdout) }
	t.status, err = prog.Run(env)
	t.valid(err, 2)
}

// textErrors is a file whose errors have the texts of strerror(3).
type textErrors struct{ io.WriteCloser }

func (w textErrors) Write(p []byte) (int, error) {
	n, err := w.WriteCloser.Write(p)
	return n, textError(err)
}

// textError returns an error with the text of strerror(3).
func textError(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(program.ErrorText(err))
}

// shell runs a command line with the given streams, or the utility's own if they are nil.
func (t *cmd) shell(command string, stdin io.Reader, stdout io.Writer) int {
	t.flush()
	if t.Run == nil {
		t.fatal(2, "cannot run commands here")
	}
	c := &program.Context{Args: []string{"sh", "-c", command}, Env: t.Env, Dir: t.Dir, Umask: t.Umask, FS: t.FS, Stdin: t.Stdin, Stdout: t.Stdout, Stderr: t.Stderr}
	if stdin != nil {
		c.Stdin = stdin
	}
	if stdout != nil {
		c.Stdout = stdout
	}
	return t.Run(t.ctx, c)
}
