package faulty

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// Warm is the faulty driver with templates. Its exported fields must be set before its first use.
type Warm struct {
	*Driver
	// OnPrepare, OnFork and OnEval are called before the operation. If one fails, the operation has
	// no effect.
	OnPrepare, OnFork, OnEval Hook
	// ReadAndFail makes Eval read a byte of the input and then fail, which drivers must not do.
	ReadAndFail bool
	// Only are the supported languages of templates. Empty: all.
	Only []string

	prepared, closed, forked, evaluated atomic.Int64

	mu    sync.Mutex
	lives map[*template]struct{}
}

var _ driver.Templater = (*Warm)(nil)

// NewWarm returns a driver with templates and without faults.
func NewWarm() *Warm { return &Warm{Driver: New(), lives: map[*template]struct{}{}} }

// WarmCounts has the numbers of templates and of operations on them.
type WarmCounts struct {
	Live                                int // prepared and not closed
	Prepared, Closed, Forked, Evaluated int // in total
}

// WarmCounts returns the current numbers.
func (w *Warm) WarmCounts() WarmCounts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return WarmCounts{len(w.lives), int(w.prepared.Load()), int(w.closed.Load()), int(w.forked.Load()), int(w.evaluated.Load())}
}

// KillTemplates ends all templates as if their processes had died.
func (w *Warm) KillTemplates() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for t := range w.lives {
		t.die()
	}
}

// Prepare creates a template. Unsupported: Only lacks its language. NotFound: its program is
// Missing.
func (w *Warm) Prepare(ctx context.Context, s driver.TemplateSpec) (driver.Template, error) {
	if err := w.hook(ctx, w.OnPrepare); err != nil {
		return nil, err
	}
	if len(w.Only) > 0 && !slices.Contains(w.Only, s.Language) {
		return nil, sandbar.Errorf(sandbar.Unsupported, "faulty: %s cannot be warmed", s.Language)
	}
	if slices.Contains(w.Missing, s.Argv[0]) {
		return nil, sandbar.Errorf(sandbar.NotFound, "there is no program %s", sandbar.Quote(s.Argv[0], 40))
	}
	w.prepared.Add(1)
	t := &template{w: w, spec: s, dead: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lives[t] = struct{}{}
	return t, nil
}

type template struct {
	w    *Warm
	spec driver.TemplateSpec
	dead chan struct{}
	once sync.Once
}

func (t *template) die()                  { t.once.Do(func() { close(t.dead) }) }
func (t *template) Dead() <-chan struct{} { return t.dead }

// Close removes the template. Its sandboxes stay.
func (t *template) Close() error {
	t.die()
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	if _, ok := t.w.lives[t]; ok {
		delete(t.w.lives, t)
		t.w.closed.Add(1)
	}
	return nil
}

// Fork creates a sandbox whose Eval interprets a script. Gone: the template has died.
func (t *template) Fork(ctx context.Context, id sandbar.ID) (driver.Sandbox, error) {
	if err := t.w.hook(ctx, t.w.OnFork); err != nil {
		return nil, err
	}
	select {
	case <-t.dead:
		return nil, sandbar.Errorf(sandbar.Gone, "faulty: the template is dead")
	default:
	}
	sb, err := t.w.Create(ctx, id, t.spec.Spec)
	if err != nil {
		return nil, err
	}
	t.w.forked.Add(1)
	return &fork{Sandbox: sb, t: t}, nil
}

// fork is a sandbox of a template.
type fork struct {
	driver.Sandbox
	t    *template
	used atomic.Bool
}

// Unwrap returns the sandbox, for driver.As.
func (f *fork) Unwrap() any { return f.Sandbox }

// Eval runs a script. Conflict: it has been called before.
func (f *fork) Eval(ctx context.Context, e driver.Evaluation, std driver.Stdio) (driver.Process, error) {
	if f.used.Swap(true) {
		return nil, sandbar.Errorf(sandbar.Conflict, "faulty: the interpreter has been used")
	}
	if err := f.t.w.hook(ctx, f.t.w.OnEval); err != nil {
		return nil, err
	}
	if f.t.w.ReadAndFail {
		_, err := std.Stdin.Read(make([]byte, 1))
		return nil, errors.Join(errors.New("faulty: requested failure"), err)
	}
	if err := driver.WriteFile(ctx, f.FS(), e.Path, []byte(e.Code)); err != nil {
		return nil, err
	}
	c := sandbar.Cmd{Args: slices.Concat(f.t.spec.Argv, []string{e.Path}, e.Args), Env: e.Env, Dir: e.Dir}
	p, err := f.Start(ctx, c, std)
	if err == nil {
		f.t.w.evaluated.Add(1)
	}
	return p, err
}
