package escapesuite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/warm/prestart"
)

// warmDriver is a driver whose sandboxes have a prestarted interpreter, created like in the engine:
// by the driver's templates, if it supports them, otherwise by package prestart. The first program
// of a sandbox runs in that interpreter. All others start cold.
type warmDriver struct {
	driver.Driver
	kind      interpreter
	templates *templates
}

// interpreter describes an interpreter of attacks.
type interpreter struct {
	language, file string
	argv           []string
	env            map[string]string // variables that the language adds, as in package lang
	fullEnv        bool              // the template needs the complete environment of the program
	args           bool              // prestarted programs can have arguments
}

// interpreterOf returns the interpreter of an attack. python is the program name of Python, "" for
// a shell.
func interpreterOf(python string) interpreter {
	if python != "" {
		return interpreter{language: "python", file: "main.py", argv: []string{python}, args: true,
			env: map[string]string{"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}}
	}
	return interpreter{language: "shell", file: "main.sh", argv: []string{"sh"}, fullEnv: true}
}

// merge merges environments. Later ones win.
func merge(envs ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, env := range envs {
		maps.Copy(all, env)
	}
	return all
}

// templates are the templates of one Suite, by their description.
type templates struct {
	mu   sync.Mutex
	made map[string]driver.Template
}

// get returns the template for t. It prepares one if there is none or it has died.
func (ts *templates) get(ctx context.Context, d driver.Driver, t driver.TemplateSpec) (driver.Template, error) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	key := fmt.Sprintf("%+v", t)
	if made := ts.made[key]; made != nil {
		select {
		case <-made.Dead():
			_ = made.Close()
		default:
			return made, nil
		}
	}
	made, err := prepare(ctx, d, t)
	if err != nil {
		return nil, fmt.Errorf("preparing a warm %s: %w", t.Language, err)
	}
	if ts.made == nil {
		ts.made = map[string]driver.Template{}
	}
	ts.made[key] = made
	return made, nil
}

func prepare(ctx context.Context, d driver.Driver, t driver.TemplateSpec) (driver.Template, error) {
	if forker, ok := driver.As[driver.Templater](d); ok {
		made, err := forker.Prepare(ctx, t)
		if sandbar.CodeOf(err) != sandbar.Unsupported {
			return made, err
		}
	}
	return prestart.Prepare(d, t)
}

func (ts *templates) close() error {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	var errs []error
	for _, t := range ts.made {
		errs = append(errs, t.Close())
	}
	ts.made = nil
	return errors.Join(errs...)
}

// Unwrap returns the driver, for driver.As.
func (r *warmDriver) Unwrap() any { return r.Driver }

// Create creates a sandbox with a prestarted interpreter.
func (r *warmDriver) Create(ctx context.Context, id sandbar.ID, s sandbar.Spec) (driver.Sandbox, error) {
	own, env := s.Env, r.kind.env
	if r.kind.fullEnv {
		env = merge(env, own)
	}
	s.Env = nil
	t, err := r.templates.get(ctx, r.Driver, driver.TemplateSpec{Spec: s, Language: r.kind.language, Argv: r.kind.argv, File: r.kind.file, Env: env})
	if err != nil {
		return nil, err
	}
	sb, err := t.Fork(ctx, id)
	if sandbar.CodeOf(err) == sandbar.Unsupported {
		s.Env = own
		return r.Driver.Create(ctx, id, s)
	}
	if err != nil {
		return nil, err
	}
	return &warmSandbox{Sandbox: sb, kind: r.kind, env: own}, nil
}

// warmSandbox is a sandbox with a prestarted interpreter.
type warmSandbox struct {
	driver.Sandbox
	kind interpreter
	env  map[string]string
	used atomic.Bool
}

// Unwrap returns the sandbox, for driver.As.
func (b *warmSandbox) Unwrap() any { return b.Sandbox }

// Start runs the first program of the form "INTERPRETER -c CODE ARGUMENT…" in the prestarted
// interpreter.
func (b *warmSandbox) Start(ctx context.Context, c sandbar.Cmd, std driver.Stdio) (driver.Process, error) {
	c.Env = merge(b.kind.env, b.env, c.Env)
	if len(c.Args) < 3 || c.Args[0] != b.kind.argv[0] || c.Args[1] != "-c" || c.Dir != "" || !b.used.CompareAndSwap(false, true) {
		return b.Sandbox.Start(ctx, c, std)
	}
	e := driver.Evaluation{Path: b.kind.file, Code: c.Args[2], Env: c.Env}
	if b.kind.args {
		e.Args = c.Args[3:]
	}
	eval, ok := driver.As[driver.Evaluator](b.Sandbox)
	if !ok {
		return nil, errors.New("the sandbox has no prestarted interpreter")
	}
	return eval.Eval(ctx, e, std)
}
