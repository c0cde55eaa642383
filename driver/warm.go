package driver

import (
	"context"

	"github.com/sandbar-dev/sandbar"
)

// A warm start runs a program in a sandbox whose interpreter has been started before the program is
// known. Prepare makes a Template, Fork makes a sandbox of it, and Eval runs the program there.
// Drivers without Templater get templates from internal/warm/prestart, which uses Create and Start
// only.

// Templater is the ability of a Driver to prepare warm starts.
type Templater interface {
	// Prepare starts the interpreter that t describes, confined as a sandbox is, and returns
	// when it is ready to be forked. Unsupported if the driver cannot fork this language or
	// import these modules. NotFound if the image has no such interpreter. ctx bounds the
	// preparation only. On error nothing is left behind.
	Prepare(ctx context.Context, t TemplateSpec) (Template, error)
}

// TemplateSpec describes a template.
type TemplateSpec struct {
	// Spec describes every fork. All fields are set, as for Driver.Create, except Env and
	// Labels, which come with the job.
	Spec sandbar.Spec
	// Language is a name of the language catalogue: "python", "javascript", …
	Language string
	// Argv is the command of a cold start up to the program's file: {"python3"} if
	// that is {"python3", "main.py", …}.
	Argv []string
	// File is the program's file as a cold start names it to the interpreter,
	// relative to sandbar.DefaultDir: "main.py".
	File string
	// Env are the variables that the language adds to a program's environment (LANG,
	// PYTHONUNBUFFERED, …). The interpreter is started with them. Evaluation.Env has them too,
	// unless the job sets other values.
	Env map[string]string
	// Imports are the names of modules to import in advance.
	Imports []string
}

// Template makes forks. It never runs code of a caller. Its methods may be called concurrently.
type Template interface {
	// Fork makes a sandbox with the properties of one from Create, and an interpreter in it
	// that waits for a program. The Sandbox has Evaluator. Gone if the template is dead. ctx
	// bounds the call only. On error nothing is left behind.
	Fork(ctx context.Context, id sandbar.ID) (Sandbox, error)
	// Dead is closed when the template can no longer fork; nil if it always can.
	Dead() <-chan struct{}
	// Close removes the template. Its forks are not affected.
	Close() error
}

// Evaluator is the ability of a fork to run a program in its interpreter.
type Evaluator interface {
	// Eval runs a program. Process and Stdio are those of Start: process id, signals, KillTree
	// and result. The result's Duration begins with the call. ctx bounds the start only.
	//
	// Eval works once; a second call returns Conflict. Unsupported if the program would differ
	// from a cold start: it has another file, or an environment variable that the interpreter
	// reads at its start. NoSpace if the sandbox's disk has no room for the code. Gone if the
	// sandbox or the interpreter has ended. After an error nothing of the program has run,
	// nothing was read from std.Stdin, and only Destroy of the sandbox is defined.
	Eval(ctx context.Context, e Evaluation, std Stdio) (Process, error)
}

// Evaluation is a program for an Evaluator.
type Evaluation struct {
	// Path is TemplateSpec.File. The file must not exist: Eval writes it, with mode 0644.
	Path string
	// Code is the program.
	Code string
	// Args are the program's arguments, without its own name.
	Args []string
	// Env and Dir are those of sandbar.Cmd.
	Env map[string]string
	Dir string
}

// WriteFile writes a file with mode 0644, and makes the directories above it. It takes one round trip
// if fs is a sandbar.Putter and content has at most sandbar.MaxPut bytes. On error path does not exist
// or is unchanged.
func WriteFile(ctx context.Context, fs sandbar.FS, path string, content []byte) error {
	opt := sandbar.CreateOptions{Mode: 0o644, Parents: true}
	if p, ok := fs.(sandbar.Putter); ok && len(content) <= sandbar.MaxPut {
		return p.Put(ctx, path, content, opt)
	}
	w, err := fs.Create(ctx, path, opt)
	if err != nil {
		return err
	}
	if _, err := w.Write(content); err != nil {
		w.Abort()
		return err
	}
	return w.Commit()
}
