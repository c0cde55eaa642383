// Package prestart has interpreters wait for their program where no driver forks them,
// over any driver that can start one: a fresh process is started in each ready
// sandbox, goes as far as it can without a program, and waits.
//
// A shell looks at nothing of its program before it opens the file. It is started
// with the very command of a cold start and waits in that open (driver.Holder);
// there is nothing more to it, and what follows is about the others.
//
// A program must not be able to tell that it was waited for, except by the
// clock. So the interpreter is started with the very command of a cold start,
// with a few lines of ours loaded ahead through a variable of its environment.
// These read what comes with the program (arguments, environment, directory)
// from the standard input, take themselves out of the way, and let the
// interpreter go on as it does when it has just started. The program's input
// follows in the same pipe; its outputs are the process's own. What can be told
// apart all the same is listed in SECURITY.md.
//
// An evaluation that sets a variable which the interpreter reads as it starts is
// refused (Unsupported): it needs a cold start to be the same.
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

// mark is what a waiter writes when it waits. It stands in place of markWord in
// the waiters.
const (
	readyMarker     = "\x01sandbar waits\x01"
	readyMarkerWord = "READY_MARK"
)

// kind is how one interpreter is made to wait.
type kind struct {
	// holds: it waits where it opens the program's file, which is the first thing
	// of the program's that it looks at. Nothing else below is needed.
	blocks bool
	argv   []string // the command it works with
	file   string   // the waiter's name in sandbar.DefaultDir; it deletes itself
	hook   string
	pack   func([]byte) []byte // makes the file of the waiter; nil: it is the file
	env    map[string]string   // has the interpreter load the waiter
	header func(payload string) string
	// started tells of variables that the interpreter reads as it starts.
	readsAtStart func(name string) bool
}

// kinds are the languages that can be warmed.
func kinds() map[string]kind {
	return map[string]kind{
		// Where it cannot be forked (driver.Templater).
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

// sized is a header: the payload after its length.
func sized(payload string) string { return fmt.Sprintf("%08x%s", len(payload), payload) }

// names returns what finds a name in a list of names and of prefixes.
func names(whole, prefixes string) func(string) bool {
	return func(name string) bool {
		return slices.Contains(strings.Fields(whole), name) ||
			slices.ContainsFunc(strings.Fields(prefixes), func(p string) bool { return strings.HasPrefix(name, p) })
	}
}

// Prepare makes a template whose forks are sandboxes of d with an interpreter
// started in them. Unsupported for a language, a command or imports that it
// cannot warm. It starts nothing: that an image has no such interpreter is told
// by Fork, as NotFound.
func Prepare(d driver.Driver, t driver.TemplateSpec) (driver.Template, error) {
	k, ok := kinds()[t.Language]
	switch {
	case !ok:
		return nil, sandbar.Errorf(sandbar.Unsupported, "the interpreter of %s cannot be started ahead", t.Language)
	case !slices.Equal(k.argv, t.Argv):
		return nil, sandbar.Errorf(sandbar.Unsupported, "the interpreter of %s can be started ahead as %q, and the command is another", t.Language, k.argv)
	case len(t.Imports) > 0:
		return nil, &sandbar.Error{Code: sandbar.Invalid, Field: "warm_imports", Message: "modules of " + t.Language + " cannot be imported ahead"}
	}
	for name := range t.Env {
		if _, taken := k.env[name]; taken {
			return nil, sandbar.Errorf(sandbar.Unsupported, "the variable %s of the language is needed to start its interpreter ahead", name)
		}
	}
	return &template{d: d, spec: t, kind: k}, nil
}

type template struct {
	d    driver.Driver
	spec driver.TemplateSpec
	kind kind
}

// Dead is nil: there is nothing that could die.
func (*template) Dead() <-chan struct{} { return nil }

// Close has nothing to do.
func (*template) Close() error { return nil }

// Fork makes a sandbox and starts the interpreter in it.
func (t *template) Fork(ctx context.Context, id sandbar.ID) (driver.Sandbox, error) {
	sb, err := t.d.Create(ctx, id, t.spec.Spec)
	if err != nil {
		return nil, err
	}
	made := t.newSandbox(sb)
	if err := made.start(ctx); err != nil {
		if derr := made.Destroy(context.WithoutCancel(ctx)); derr != nil {
			// The caller gets what is left, and no error that hides it.
			return nil, fmt.Errorf("%w; and the sandbox was not removed: %w", err, derr)
		}
		return nil, err
	}
	return made, nil
}

// starter is a sandbox in which an interpreter can be started.
type starter interface {
	driver.Sandbox
	start(ctx context.Context) error // returns when it waits
}

func (t *template) newSandbox(sb driver.Sandbox) starter {
	a := &prestarted{Sandbox: sb, t: t, ended: make(chan struct{})}
	if t.kind.blocks {
		a.std = newDeferredStdio("")
		return &blockedInterpreter{prestarted: a}
	}
	a.std = newDeferredStdio(readyMarker)
	return &pausedInterpreter{prestarted: a}
}

// start puts the waiter into the sandbox, starts the interpreter and waits until
// that waits.
func (w *pausedInterpreter) start(ctx context.Context) error {
	k := w.t.kind
	waiter := []byte(strings.ReplaceAll(k.hook, readyMarkerWord, readyMarker))
	if k.pack != nil {
		waiter = k.pack(waiter)
	}
	if err := driver.WriteFile(ctx, w.FS(), k.file, waiter); err != nil {
		return err
	}
	env := map[string]string{}
	for _, m := range []map[string]string{w.t.spec.Env, k.env} {
		for name, v := range m {
			env[name] = v
		}
	}
	p, err := w.Sandbox.Start(ctx, w.t.command(driver.Evaluation{Env: env, Dir: sandbar.DefaultDir}), w.std.stdio())
	if err != nil {
		return err
	}
	w.process, w.started = p, now()
	w.follow(p)
	select {
	case <-w.std.ready:
		return nil
	case <-w.ended:
		return sandbar.Errorf(sandbar.Unsupported, "the interpreter ended before it waited for a program")
	case <-ctx.Done():
		return sandbar.Errorf(sandbar.Timeout, "the interpreter does not come to wait for a program: %w", ctx.Err())
	}
}

// command is that of a cold start.
func (t *template) command(e driver.Evaluation) sandbar.Cmd {
	args := append(slices.Clone(t.spec.Argv), t.spec.File)
	return sandbar.Cmd{Args: append(args, e.Args...), Env: e.Env, Dir: e.Dir}
}

// payload is what a waiter is told: fields with a NUL between.
func (k kind) payload(e driver.Evaluation, in io.Reader) string {
	stdin := "pipe"
	if in == nil {
		stdin = "none"
	} else if _, whole := in.(driver.Sized); whole {
		stdin = "whole"
	}
	dir := e.Dir
	if dir == sandbar.DefaultDir {
		dir = "" // where it is
	}
	fields := append([]string{stdin, dir, strconv.Itoa(len(e.Args))}, e.Args...)
	for name, v := range e.Env {
		fields = append(fields, name+"="+v)
	}
	return k.header(strings.Join(fields, "\x00"))
}

// refuse returns an error if the program would not run as after a cold start.
func (t *template) refuse(e driver.Evaluation) error {
	if e.Path != t.spec.File {
		return sandbar.Errorf(sandbar.Unsupported, "the interpreter waits for another file")
	}
	if t.kind.blocks {
		return nil // and what it was not started with has it started again
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
