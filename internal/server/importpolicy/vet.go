// Package importpolicy checks code before it runs, and refuses code that imports modules which the
// operator has blocked.
//
// It is a safeguard against mistakes, not a boundary. A program can hide an import: by a name that
// it computes at run time, through another module, or through a descriptor. The sandbox is the
// boundary for such a program.
//
// The code is parsed by the parser of its own language, inside the sandbox in which it will run, so
// a bug of that parser does no harm. It is not executed. Code that cannot be parsed in the way it
// would run is refused, with one exception: code with a syntax error passes, because it cannot run
// and the language's own message is the better one.
//
// Only Python is checked; code of other languages passes.
package importpolicy

import (
	"context"
	_ "embed"
	"encoding/json"
	"strings"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine/lang"
)

//go:embed imports.py
var importsScript string

// maxAnswer is the most output of the check that is read, in bytes.
const maxAnswer = 64 << 10

// Blocked is the cause of an error Denied: the code imports blocked modules.
type Blocked struct {
	Imports []string // the blocked modules, in the order of their first import
}

// Error names the modules.
func (b *Blocked) Error() string { return "blocked imports: " + strings.Join(b.Imports, ", ") }

// Imports returns a check for engine.Config.Vet. The check returns nil for code that imports none
// of the top-level modules, and for code of an unknown language. It returns Denied with a *Blocked
// for code that does, and Denied without one for code that could not be checked.
func Imports(modules []string) func(context.Context, driver.Sandbox, lang.Language, string) error {
	return func(ctx context.Context, s driver.Sandbox, l lang.Language, code string) error {
		if l.Name != "python" || len(modules) == 0 {
			return nil
		}
		found, err := pythonImports(ctx, s, l, code, modules)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return nil
		}
		cause := &Blocked{found}
		return &sandbar.Error{Code: sandbar.Denied, Field: "code", Err: cause,
			Message: "the code was not run", Fix: "do without, or let the operator change code.blocked_imports"}
	}
}

// pythonImports asks Python which of the modules the code imports.
func pythonImports(ctx context.Context, s driver.Sandbox, l lang.Language, code string, modules []string) ([]string, error) {
	out := &answer{}
	// -I: isolated mode, which ignores the code's directory and the environment
	p, err := s.Start(ctx, sandbar.Cmd{Args: []string{l.Interpreter(), "-I", "-c", importsScript, strings.Join(modules, ",")},
		Dir: sandbar.DefaultDir, Env: l.Env}, driver.Stdio{Stdin: strings.NewReader(code), Stdout: out})
	if err != nil {
		if sandbar.CodeOf(err) == sandbar.NotFound {
			// the language does not exist here, and starting the program will report it
			return nil, nil
		}
		return nil, err
	}
	r, err := wait(ctx, p)
	if err != nil {
		return nil, err
	}
	var found []string
	if r.Outcome != sandbar.Exited || r.ExitCode != 0 || out.over || json.Unmarshal(out.text, &found) != nil {
		return nil, &sandbar.Error{Code: sandbar.Denied, Field: "code",
			Message: "the code was not run: its imports could not be determined (the check ended as " + r.Outcome.String() + ")",
			Fix:     "write it more plainly, or let the operator turn code.block_imports off"}
	}
	return found, nil
}

// wait waits for the process, which the end of ctx kills.
func wait(ctx context.Context, p driver.Process) (sandbar.Result, error) {
	const sigkill = 9
	defer context.AfterFunc(ctx, func() { p.Signal(sigkill) })()
	r, err := p.Wait()
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return r, err
}

// answer keeps output up to maxAnswer.
type answer struct {
	text []byte
	over bool
}

// Write implements io.Writer. It never fails.
func (a *answer) Write(p []byte) (int, error) {
	room := min(len(p), maxAnswer-len(a.text))
	a.text = append(a.text, p[:room]...)
	a.over = a.over || room < len(p)
	return len(p), nil
}
