// Package importpolicy looks at code before it runs and refuses what imports modules that
// the operator has blocked.
//
// It is a seat belt, not a boundary. It catches the program that somebody wrote
// without thinking; one that means to hide what it imports can, by an import
// made of text that is put together when the program runs, by a module that
// imports another, or by a descriptor. What holds such a program is the sandbox.
//
// The code is parsed by the parser of its own language inside the sandbox it is
// about to run in, where a fault of that parser harms nobody, and it is never
// run for it. Code that cannot be parsed in the way it would run is refused,
// except where its only fault is its syntax: then nothing of it runs anyway, and
// the language tells its author better what is wrong.
//
// Languages other than Python have no such check; their code passes.
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

// maxAnswer bounds what is read of the check's answer, in bytes.
const maxAnswer = 64 << 10

// Blocked is why code was refused for what it imports: the cause of an Error of
// code Denied.
type Blocked struct {
	Imports []string // the blocked modules, in the order in which the code names them first
}

// Error names the modules.
func (b *Blocked) Error() string { return "blocked imports: " + strings.Join(b.Imports, ", ") }

// Imports returns a check for engine.Config.Vet. It returns nil for code that
// imports none of the modules, by their names at the top, and for code of a
// language that it does not know; Denied with a *Blocked for code that does; and
// Denied without one for code that could not be looked at, since what cannot be
// checked has not passed.
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
	// -I: neither the directory of the code nor the environment has a part in it.
	p, err := s.Start(ctx, sandbar.Cmd{Args: []string{l.Interpreter(), "-I", "-c", importsScript, strings.Join(modules, ",")},
		Dir: sandbar.DefaultDir, Env: l.Env}, driver.Stdio{Stdin: strings.NewReader(code), Stdout: out})
	if err != nil {
		if sandbar.CodeOf(err) == sandbar.NotFound {
			return nil, nil // there is no such language here, which starting the program will tell
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
			Message: "the code was not run: which modules it imports could not be told (the check ended as " + r.Outcome.String() + ")",
			Fix:     "write it more plainly, or let the operator turn code.block_imports off"}
	}
	return found, nil
}

// wait is the process's end, which that of ctx brings about.
func wait(ctx context.Context, p driver.Process) (sandbar.Result, error) {
	const sigkill = 9
	defer context.AfterFunc(ctx, func() { p.Signal(sigkill) })()
	r, err := p.Wait()
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return r, err
}

// answer keeps what fits.
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
