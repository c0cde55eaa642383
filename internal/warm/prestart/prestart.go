// Package prestart starts interpreters before their programs are known. It works with any driver
// that can start a program, and serves languages that the driver cannot fork (driver.Templater):
// each ready sandbox has an interpreter process of its own, which has done its start-up and waits.
//
// A program must not be able to tell that its interpreter has waited, except by clocks. So each
// interpreter is started with the command of a cold start. There are two ways to make it wait:
//
//   - A shell opens the program's file first and looks at nothing of it before. It blocks in that
//     open(2) (Blocker), and no code of this package runs in it.
//   - Node, the BEAM and Python load a hook that an environment variable names. The hook reads
//     arguments, environment and directory from the standard input, removes its traces, and returns
//     into the interpreter's start-up. The program's input follows in the same pipe; the outputs
//     are the process's own.
//
// A template for single evaluations (driver.TemplateSpec.Once) uses driver.OneShotter if it can.
// Such a sandbox has no files for the daemon, so the hook writes the program's file.
//
// SECURITY.md lists the differences that a program can still observe. Eval refuses a program that
// sets an environment variable which the interpreter reads at its start (Unsupported): it needs a
// cold start.
package prestart

import (
	"context"
	_ "embed"
	"encoding/base64"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/warm/sitezip"
)

//go:embed wait.cjs
var waitNode string

//go:embed wait.py
var waitPython string

//go:embed wait.erl
var waitBEAM string

// readyMarker is what a hook writes to the standard output when it waits. It replaces
// readyMarkerWord in the text of the hooks.
const (
	readyMarker     = "\x01sandbar waits\x01"
	readyMarkerWord = "READY_MARK"
)

// kind describes how one interpreter is made to wait.
type kind struct {
	// blocks: the interpreter opens the program's file before it looks at anything else of the
	// program, and blocks there. Of the fields below only argv is set then.
	blocks bool
	argv   []string                    // the command of a cold start, up to the program's file
	file   string                      // the name of the hook's file in sandbar.DefaultDir; the hook deletes it
	hook   string                      // the hook's program
	pack   func([]byte) []byte         // makes the hook's file of its program; nil: they are the same
	env    map[string]string           // makes the interpreter load the hook
	header func(payload string) string // encodes what the hook reads
	// readsAtStart reports whether the interpreter reads an environment variable at its start.
	readsAtStart func(name string) bool
}

// StartsFast reports whether an interpreter of a language starts in about a millisecond.
func StartsFast(language string) bool { return kinds()[language].blocks }

// kinds returns the languages whose interpreters can be started before their program.
func kinds() map[string]kind {
	return map[string]kind{
		// for drivers without driver.Templater
		"python": {
			argv: []string{"python3"}, file: ".sandbar-wait", hook: waitPython, pack: sitezip.Pack,
			env:          map[string]string{sitezip.Variable: ".sandbar-wait"},
			header:       sized,
			readsAtStart: names("LANG LANGUAGE TZ HOME PATH", "PYTHON LD_ LC_ MALLOC_ GLIBC_ OPENSSL_ SSL_"),
		},
		"javascript": {
			argv: []string{"node"}, file: ".sandbar-wait.cjs", hook: waitNode,
			env:          map[string]string{"NODE_OPTIONS": "--require=./.sandbar-wait.cjs"},
			header:       sized,
			readsAtStart: names("LANG LANGUAGE TZ HOME PATH", "NODE_ V8_ UV_ LD_ LC_ ICU_ OPENSSL_ SSL_ MALLOC_ GLIBC_"),
		},
		"shell": {blocks: true, argv: []string{"sh"}},
		"elixir": {
			argv: []string{"elixir"}, file: ".sandbar-wait", hook: waitBEAM,
			env:          map[string]string{"ERL_AFLAGS": "-run file script .sandbar-wait"},
			header:       func(p string) string { return base64.StdEncoding.EncodeToString([]byte(p)) + "\n" },
			readsAtStart: names("LANG LANGUAGE TZ HOME PATH ROOTDIR BINDIR EMU PROGNAME", "ERL_ ELIXIR_ RELEASE_ LD_ LC_ MALLOC_ GLIBC_"),
		},
	}
}

// sized is a kind.header: the length in eight hexadecimal digits, and the payload.
func sized(payload string) string { return fmt.Sprintf("%08x%s", len(payload), payload) }

// names returns a function that finds a name in a list of names and a list of prefixes.
func names(whole, prefixes string) func(string) bool {
	return func(name string) bool {
		return slices.Contains(strings.Fields(whole), name) ||
			slices.ContainsFunc(strings.Fields(prefixes), func(p string) bool { return strings.HasPrefix(name, p) })
	}
}

// Prepare makes a template whose forks are sandboxes of d with a prestarted interpreter. It returns
// Unsupported for a language or command that cannot be prestarted, Invalid for imports. It starts
// nothing: Fork returns NotFound if the image has no such interpreter.
func Prepare(d driver.Driver, t driver.TemplateSpec) (driver.Template, error) {
	k, ok := kinds()[t.Language]
	switch {
	case !ok:
		return nil, sandbar.Errorf(sandbar.Unsupported, "the interpreter of %s cannot be prestarted", t.Language)
	case !slices.Equal(k.argv, t.Argv):
		return nil, sandbar.Errorf(sandbar.Unsupported, "the interpreter of %s can be prestarted as %q only", t.Language, k.argv)
	case len(t.Imports) > 0:
		return nil, &sandbar.Error{Code: sandbar.Invalid, Field: "warm_imports", Message: "modules of " + t.Language + " cannot be imported in advance"}
	}
	for name := range t.Env {
		if _, taken := k.env[name]; taken {
			return nil, sandbar.Errorf(sandbar.Unsupported, "the variable %s of the language is needed to prestart its interpreter", name)
		}
	}
	return &template{d: d, spec: t, kind: k}, nil
}

type template struct {
	d    driver.Driver
	spec driver.TemplateSpec
	kind kind
}

// Dead returns nil: the template has no process.
func (*template) Dead() <-chan struct{} { return nil }

// Close does nothing.
func (*template) Close() error { return nil }

// Fork makes a sandbox and starts the interpreter in it.
func (t *template) Fork(ctx context.Context, id sandbar.ID) (driver.Sandbox, error) {
	if o, ok := driver.As[driver.OneShotter](t.d); ok && t.onlyOne() && o.TakesOneShots(t.spec.Spec) {
		w, err := t.forkOnce(ctx, o, id)
		switch {
		case err == nil:
			return w, nil
		case sandbar.CodeOf(err) != sandbar.Unsupported:
			return nil, err
		}
	}
	sb, err := t.d.Create(ctx, id, t.spec.Spec)
	if err != nil {
		return nil, err
	}
	made := t.newSandbox(sb)
	if err := made.start(ctx); err != nil {
		return nil, undo(ctx, made, err)
	}
	return made, nil
}

// undo removes a sandbox whose interpreter failed, and returns the error.
func undo(ctx context.Context, made driver.Sandbox, err error) error {
	if derr := made.Destroy(context.WithoutCancel(ctx)); derr != nil {
		return fmt.Errorf("%w; and the sandbox was not removed: %w", err, derr)
	}
	return err
}

// starter is a sandbox in which an interpreter can be started.
type starter interface {
	driver.Sandbox
	start(ctx context.Context) error // returns when the interpreter waits
}

func (t *template) newSandbox(sb driver.Sandbox) starter {
	if !t.kind.blocks {
		w := t.newPaused()
		w.Sandbox = sb
		return w
	}
	return &blockedInterpreter{prestarted: &prestarted{Sandbox: sb, t: t, std: newDeferredStdio(""), ended: make(chan struct{})}}
}

// command returns the command of a cold start.
func (t *template) command(e driver.Evaluation) sandbar.Cmd {
	args := append(slices.Clone(t.spec.Argv), t.spec.File)
	return sandbar.Cmd{Args: append(args, e.Args...), Env: e.Env, Dir: e.Dir}
}

// payload returns what a hook reads: fields separated by NUL. They are the name of the file to
// write, "" for none, the kind of input, the directory, the number of arguments, the arguments, and
// the environment as K=V. The file's content follows.
func (k kind) payload(file string, e driver.Evaluation, in io.Reader) string {
	stdin := "pipe"
	if in == nil {
		stdin = "none"
	} else if _, whole := in.(driver.Sized); whole {
		stdin = "whole"
	}
	dir := e.Dir
	if dir == sandbar.DefaultDir {
		dir = "" // the interpreter's own
	}
	fields := append([]string{file, stdin, dir, strconv.Itoa(len(e.Args))}, e.Args...)
	for name, v := range e.Env {
		fields = append(fields, name+"="+v)
	}
	header := k.header(strings.Join(fields, "\x00"))
	if file != "" {
		header += k.header(e.Code)
	}
	return header
}

// refuse returns an error if the program would differ from a cold start.
func (t *template) refuse(e driver.Evaluation) error {
	if e.Path != t.spec.File {
		return sandbar.Errorf(sandbar.Unsupported, "the interpreter was started for another file")
	}
	if t.kind.blocks {
		return nil // Eval starts it again if it does not fit
	}
	for name, v := range e.Env {
		if had, ok := t.spec.Env[name]; t.kind.readsAtStart(name) && (!ok || had != v) {
			return sandbar.Errorf(sandbar.Unsupported, "the variable %s is read when an interpreter starts", sandbar.Quote(name, 40))
		}
		if !utf8.ValidString(name) || !utf8.ValidString(v) {
			return sandbar.Errorf(sandbar.Unsupported, "the environment is not all UTF-8")
		}
	}
	if slices.ContainsFunc(e.Args, func(a string) bool { return !utf8.ValidString(a) || strings.ContainsRune(a, 0) }) {
		return sandbar.Errorf(sandbar.Unsupported, "the arguments are not all UTF-8")
	}
	return nil
}
