package driver

import (
	"context"

	"github.com/sandbar-dev/sandbar"
)

// A warm start runs a program in a sandbox whose interpreter was started before the program was
// known. Prepare makes a Template, Fork makes a sandbox from it, and Eval runs the program there.
// Drivers without Templater get templates from internal/warm/prestart, which needs only Create and
// Start.

// Templater is an optional interface of a Driver that prepares warm starts.
type Templater interface {
	// Prepare starts an interpreter for t, confined like a sandbox, and returns when it can be
	// forked. Unsupported: the driver cannot warm this language or these imports. NotFound: the
	// image has no such interpreter. ctx bounds the preparation only. After an error no resource
	// remains.
	Prepare(ctx context.Context, t TemplateSpec) (Template, error)
}

// TemplateSpec describes a template.
type TemplateSpec struct {
	// Spec is the Spec of every fork, without unset fields, as for Driver.Create. Env and Labels
	// are empty, because they come with the job.
	Spec sandbar.Spec
	// Language is the name in the language catalogue: "python", "javascript", …
	Language string
	// Argv is the command of a cold start up to the program's file: {"python3"} if the command is
	// {"python3", "main.py", …}.
	Argv []string
	// File is the program's file as a cold start passes it to the interpreter, relative to
	// sandbar.DefaultDir: "main.py".
	File string
	// Env is the language's part of a program's environment (LANG, PYTHONUNBUFFERED, …), which an
	// interpreter may read when it starts. Every Evaluation has these variables too, unless its job
	// overrides them.
	Env map[string]string
	// Imports are the names of modules to import in advance.
	Imports []string
	// Once says that a fork is used for one Evaluation only. Then Start and all operations of FS of
	// a fork may be Unsupported, which lets a driver make forks with less work.
	Once bool
}

// Template is the origin of forks. It never runs a caller's code. Its methods may be called
// concurrently.
type Template interface {
	// Fork makes a sandbox with all properties of one from Create, and with a started interpreter
	// without a program. The Sandbox implements Evaluator. Gone: the template is dead. ctx bounds
	// the creation only. After an error no resource remains.
	Fork(ctx context.Context, id sandbar.ID) (Sandbox, error)
	// Dead returns a channel that is closed when the template cannot fork any more; nil if it
	// always can.
	Dead() <-chan struct{}
	// Close removes the template. Its forks stay alive.
	Close() error
}

// Evaluator is an optional interface of a Sandbox, which forks have. It runs a program in the
// started interpreter.
type Evaluator interface {
	// Eval runs a program. Process and Stdio work as for Start: PID, signals, KillTree, result and
	// its Duration, which begins with the call. ctx bounds the start only.
	//
	// It works once; a second call is Conflict. Unsupported: this program would not run as after a
	// cold start, because of another file or of an environment variable that an interpreter reads
	// when it starts. NoSpace: there is no room for the code. Gone: the sandbox or the interpreter
	// has ended. After any error no part of the program has run, std.Stdin has not been read, and
	// the sandbox can only be destroyed.
	Eval(ctx context.Context, e Evaluation, std Stdio) (Process, error)
}

// Evaluation is a program for an Evaluator.
type Evaluation struct {
	// Path is the program's file as a cold start passes it to the interpreter: TemplateSpec.File. A
	// relative path starts at Dir. The file must not exist: Eval writes it, with mode 0644.
	Path string
	// Code is the program.
	Code string
	// Args are the program's arguments without its own name.
	Args []string
	// Env and Dir are as in sandbar.Cmd.
	Env map[string]string
	Dir string
}

// WriteFile writes a file with mode 0644 and makes missing parent directories. It uses one step if
// fs is a sandbar.Putter and the content has at most sandbar.MaxPut bytes. On an error no file
// appears at path.
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
