package prestart

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"path"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

func now() time.Time { return time.Now() }

// pausedInterpreter is a sandbox with an interpreter that blocks in reading its standard input. The
// hook in it reads the arguments there.
type pausedInterpreter struct {
	*prestarted
	process driver.Process
	started time.Time // when Start, or the restore of its machine, had returned
	writes  bool      // the hook writes the program's file
}

var _ driver.Evaluator = (*pausedInterpreter)(nil)

func (t *template) newPaused() *pausedInterpreter {
	return &pausedInterpreter{prestarted: &prestarted{t: t, std: newDeferredStdio(readyMarker), ended: make(chan struct{})}}
}

// hookFile returns the content of the hook's file.
func (k kind) hookFile() []byte {
	hook := []byte(strings.ReplaceAll(k.hook, readyMarkerWord, readyMarker))
	if k.pack != nil {
		hook = k.pack(hook)
	}
	return hook
}

// waiting returns the command of an interpreter that loads the hook.
func (t *template) waiting() sandbar.Cmd {
	env := maps.Clone(t.kind.env)
	maps.Copy(env, t.spec.Env)
	return t.command(driver.Evaluation{Env: env, Dir: sandbar.DefaultDir})
}

// start writes the hook's file, starts the interpreter, and returns when the hook is ready.
func (w *pausedInterpreter) start(ctx context.Context) error {
	k := w.t.kind
	if err := driver.WriteFile(ctx, w.FS(), k.file, k.hookFile()); err != nil {
		return err
	}
	p, err := w.Sandbox.Start(ctx, w.t.waiting(), w.std.stdio())
	if err != nil {
		return err
	}
	return w.await(ctx, p)
}

// await waits until the hook of a process is ready.
func (w *pausedInterpreter) await(ctx context.Context, p driver.Process) error {
	w.process, w.started = p, now()
	w.follow(p)
	select {
	case <-w.std.ready:
		return nil
	case <-w.ended:
		return sandbar.Errorf(sandbar.Unsupported, "the interpreter ended before it was ready for a program")
	case <-ctx.Done():
		return sandbar.Errorf(sandbar.Timeout, "the interpreter is not ready for a program: %w", ctx.Err())
	}
}

// What a hook writes always has room: maxCode bytes in a sandbox with at least the other limits.
const (
	maxCode   = 1 << 20
	leastDisk = 2 << 20 // bytes
	leastRoom = 64      // inodes
)

// onlyOne reports whether a fork may be a sandbox for the interpreter alone.
func (t *template) onlyOne() bool {
	l := t.spec.Spec.Limits
	return t.spec.Once && !t.kind.blocks && (l.Disk < 0 || l.Disk >= leastDisk) && (l.Inodes < 0 || l.Inodes >= leastRoom)
}

// single is a sandbox that was made for the interpreter alone.
type single struct {
	driver.Single
	driver.OneProgram
}

// Unwrap returns the driver's sandbox, for driver.As.
func (s single) Unwrap() any { return s.Single }

// forkOnce makes a sandbox for the interpreter alone.
func (t *template) forkOnce(ctx context.Context, d driver.OneShotter, id sandbar.ID) (*pausedInterpreter, error) {
	w := t.newPaused()
	w.writes = true
	o := driver.OneShot{Cmd: t.waiting(), File: path.Join(sandbar.DefaultDir, t.kind.file), Code: string(t.kind.hookFile())}
	sb, p, err := d.RunOnce(ctx, id, t.spec.Spec, o, w.std.stdio())
	if err != nil {
		w.std.abandon()
		return nil, err
	}
	w.Sandbox = single{Single: sb}
	if err := w.await(ctx, p); err != nil {
		return nil, undo(ctx, w, err)
	}
	return w, nil
}

// Eval implements driver.Evaluator: it writes the program's file and sends the arguments to the
// hook.
func (w *pausedInterpreter) Eval(ctx context.Context, e driver.Evaluation, std driver.Stdio) (driver.Process, error) {
	if err := w.use(ctx, e); err != nil {
		return nil, err
	}
	file := ""
	switch {
	case !w.writes:
		if err := driver.WriteFile(ctx, w.FS(), w.t.spec.File, []byte(e.Code)); err != nil {
			return nil, err
		}
	case len(e.Code) > maxCode:
		return nil, sandbar.Errorf(sandbar.Unsupported, "the program is too large for the interpreter to write its file")
	default:
		file = w.t.spec.File
	}
	p := &process{Process: w.process, std: w.std, waited: now().Sub(w.started)}
	w.std.connect(w.t.kind.payload(file, e, std.Stdin), std)
	return p, nil
}

// Restore returns a sandbox whose interpreter a template of t has started in a machine before the
// machine was saved. restore makes the sandbox from the saved machine and connects std to the
// interpreter's process. The interpreters of all machines have the same address layout and hash
// seed. Unsupported: the interpreter has random numbers of its own, or cannot wait like this.
func Restore(t driver.TemplateSpec, restore func(std driver.Stdio) (driver.Sandbox, driver.Process, error)) (driver.Sandbox, error) {
	k, err := restorable(t)
	if err != nil {
		return nil, err
	}
	a := &prestarted{t: &template{spec: t, kind: k}, std: newDeferredStdio(""), ended: make(chan struct{})}
	w := &pausedInterpreter{prestarted: a}
	if a.Sandbox, w.process, err = restore(a.std.stdio()); err != nil {
		a.std.abandon()
		return nil, err
	}
	w.started = now() // not before: the driver's clock of the process starts when the machine runs
	w.follow(w.process)
	return w, nil
}

// restorable returns the kind of a template whose interpreter has no state that must differ between
// copies, apart from its hash seed. That of node has: V8 seeds its random numbers when it starts.
func restorable(t driver.TemplateSpec) (kind, error) {
	if t.Language != "python" {
		return kind{}, sandbar.Errorf(sandbar.Unsupported, "the interpreter of %s cannot be restored from a saved machine", t.Language)
	}
	return kinds()[t.Language], nil
}

// Restorable returns the digest of the hook that the interpreter of a saved machine runs, which
// Restore of this version understands; Unsupported if Restore does.
func Restorable(t driver.TemplateSpec) (hook string, err error) {
	k, err := restorable(t)
	sum := sha256.Sum256([]byte(k.hook))
	return hex.EncodeToString(sum[:]), err
}

// process is an interpreter that has its program.
type process struct {
	driver.Process
	std    *deferredStdio
	waited time.Duration // from the interpreter's start to Eval
}

// Unwrap returns the driver's process, for driver.As.
func (p *process) Unwrap() any { return p.Process }

// Wait returns the result. Its Duration excludes the time before Eval, but includes that of Start:
// so it is never shorter than the program's. Its CPUTime includes the interpreter's start. Its
// StdoutBytes exclude the marker.
func (p *process) Wait() (sandbar.Result, error) {
	r, err := p.Process.Wait()
	p.std.out.flushing.Wait()
	p.std.err.flushing.Wait()
	if r.Duration > 0 {
		r.Duration = max(r.Duration-p.waited, 1)
	}
	r.StdoutBytes = max(r.StdoutBytes-int64(p.std.marker), 0)
	return r, err
}
