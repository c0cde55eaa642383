package driver

import (
	"context"

	"github.com/sandbar-dev/sandbar"
)

// A warm start runs a program in a sandbox that was prepared for it: an interpreter
// is up in the sandbox before the program is known. Prepare makes a Template, Fork
// makes a sandbox of it, and Eval runs the program there. Drivers without Templater
// get templates from internal/warm/prestart, which needs nothing but Create and
// Start.

// Templater is the ability of a Driver to prepare warm starts.
type Templater interface {
	// Prepare starts what t describes, confined as a sandbox is, and returns when
	// it is ready to be forked. Unsupported if the driver cannot warm this language
	// or these imports. NotFound if the image has no such interpreter. ctx bounds
	// the preparation only. On error nothing is left behind.
	Prepare(ctx context.Context, t TemplateSpec) (Template, error)
}

// TemplateSpec describes a template.
type TemplateSpec struct {
	// Spec is what every fork is made from, without unset fields, as for
	// Driver.Create. It has neither Env nor Labels: those come with the job.
	Spec sandbar.Spec
	// Language is its name in the language catalogue: "python", "javascript", …
	Language string
	// Argv is the command of a cold start up to the program's file: {"python3"} if
	// that is {"python3", "main.py", …}.
	Argv []string
	// File is the program's file as a cold start names it to the interpreter,
	// relative to sandbar.DefaultDir: "main.py".
	File string
	// Env is what the language adds to a program's environment (LANG,
	// PYTHONUNBUFFERED, …), which an interpreter may read as it starts. Every
	// Evaluation has these variables too, unless its job says otherwise.
	Env map[string]string
	// Imports are modules to import in advance, by their names in the language.
	Imports []string
}

// Template is what forks are made from. It never runs a byte of a caller's. Its
// methods may be called concurrently.
type Template interface {
	// Fork makes a sandbox with everything that one from Create has, and in it an
	// interpreter without a program. The Sandbox has Evaluator. Gone if the template
	// is dead. ctx bounds the making only. On error nothing is left behind.
	Fork(ctx context.Context, id sandbar.ID) (Sandbox, error)
	// Dead is closed when the template can fork no more; nil if it always can.
	Dead() <-chan struct{}
	// Close removes the template. Forks live on.
	Close() error
}

// Evaluator is the ability of a fork to run a program in its interpreter.
type Evaluator interface {
	// Eval runs a program. Process and Stdio are as those of Start: number, signals,
	// KillTree, result and its Duration, which begins with the call. ctx bounds the
	// start only.
	//
	// It works once: Conflict after that. Unsupported if this program would not run
	// as it does after a cold start, because of another file or of a variable of the
	// environment that an interpreter reads as it starts; NoSpace if there is no room
	// for the code; Gone if the sandbox or the interpreter has ended. After any error
	// nothing of the program has run, nothing was read from std.Stdin, and the sandbox
	// is good for nothing but Destroy.
	Eval(ctx context.Context, e Evaluation, std Stdio) (Process, error)
}

// Evaluation is a program for an Evaluator.
type Evaluation struct {
	// Path is the file of the program as a cold start names it to the interpreter:
	// TemplateSpec.File. A relative one is taken from Dir. The file must not exist: Eval
	// writes it, with mode 0644.
	Path string
	// Code is the program.
	Code string
	// Args are the program's arguments, without its own name.
	Args []string
	// Env and Dir are those of sandbar.Cmd.
	Env map[string]string
	Dir string
}

// WriteFile writes a file with mode 0644 and the directories above it: in one step if
// fs is a sandbar.Putter and the content is no more than sandbar.MaxPut bytes. On error
// nothing is seen at path.
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
