package driver

import (
	"context"

	"github.com/sandbar-dev/sandbar"
)

// Templater is the ability of a Driver to prepare warm starts: interpreters that
// are up before there is a program for them.
type Templater interface {
	// Prepare starts what t describes, confined as a sandbox is, and returns when
	// it is ready to be forked. Unsupported when the driver cannot warm this
	// language or these imports; the engine then makes do with what it can warm
	// itself. NotFound when the image has no such interpreter. ctx bounds the
	// preparation only. On error nothing is left behind.
	Prepare(ctx context.Context, t TemplateSpec) (Template, error)
}

// TemplateSpec describes a template.
type TemplateSpec struct {
	// Spec is what every fork is made from, without unset fields, as for
	// Driver.Create. It has neither Env nor Labels: those come with the job.
	Spec sandbar.Spec
	// Language is its name in the language catalogue: "python", "javascript", …
	Language string
	// Argv is the command of a cold start without what comes after the
	// program's file: {"python3"} where that would be {"python3", "main.py", …}.
	Argv []string
	// File is the program's file as a cold start names it to the interpreter,
	// relative to sandbar.DefaultDir: "main.py".
	File string
	// Env is what the language adds to a program's environment (LANG,
	// PYTHONUNBUFFERED, …), which an interpreter may read as it starts. Every
	// Evaluation has it too, unless its job says otherwise.
	Env map[string]string
	// Imports are modules to import ahead, by their names in the language.
	Imports []string
}

// Template is what forks are made from. It never runs a byte of a caller's. Its
// methods may be called concurrently.
type Template interface {
	// Fork makes a sandbox with everything that one from Create has, and in it an
	// interpreter that waits. The Sandbox has Evaluator. ctx bounds the making
	// only. On error nothing is left behind.
	Fork(ctx context.Context, id sandbar.ID) (Sandbox, error)
	// Dead is closed when the template can fork no more; nil if it always can.
	Dead() <-chan struct{}
	// Close removes the template. Forks live on.
	Close() error
}

// Evaluator is the ability of a Sandbox to run a program in an interpreter that
// is already up.
type Evaluator interface {
	// Eval has the waiting interpreter run a program. Process and Stdio are as
	// those of Start: number, signals, KillTree, result and its Duration, which
	// begins with the call. ctx bounds the start only.
	//
	// It works once: Conflict after that. Unsupported when this program would
	// not run as it does after a cold start, because of a variable of the
	// environment that an interpreter reads as it starts, and Gone when sandbox
	// or interpreter have ended. After any error nothing of the program has run,
	// nothing was read from std.Stdin, and the sandbox is good for nothing but
	// Destroy.
	Eval(ctx context.Context, e Evaluation, std Stdio) (Process, error)
}

// CodeEvaluator is the ability of an Evaluator to put the program into its file
// itself, which saves the time of doing so before.
type CodeEvaluator interface {
	// TakesCode reports whether EvalCode can write a program of n bytes.
	TakesCode(n int) bool
	// EvalCode is Eval of a program whose file is not there yet and is to hold
	// code, with mode 0644.
	EvalCode(ctx context.Context, e Evaluation, code string, std Stdio) (Process, error)
}

// Meter is the ability of a Sandbox to tell what it holds.
type Meter interface {
	// PeakMemory is the most memory, in bytes, that the sandbox has held at once so
	// far; 0 if that is not known. It may cost a few system calls.
	PeakMemory() int64
}

// Evaluation is a program for an Evaluator.
type Evaluation struct {
	// Path is the file of the program, which Eval finds written to the sandbox, as
	// a cold start names it to the interpreter: TemplateSpec.File. A relative one
	// is taken from Dir.
	Path string
	// Args are the program's arguments, without its own name.
	Args []string
	// Env and Dir are those of sandbar.Cmd.
	Env map[string]string
	Dir string
}
