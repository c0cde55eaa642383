package prestart

import (
	"context"
	"maps"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// Blocker is the ability of a Sandbox to start an interpreter before the file of its program
// exists, and to block it in open(2) of that file. A program cannot tell, if the interpreter looks
// at nothing of the program before it opens the file. internal/agent/client has it on Linux.
type Blocker interface {
	// StartBlocked starts a program as Start does. The program blocks when it opens path,
	// until Release. path must not exist, and std.Stdin must be nil. The returned Process has
	// Blocked; it can be signalled, killed and waited for. Unsupported if the sandbox cannot
	// block programs. After an error only Destroy of the sandbox is defined.
	StartBlocked(ctx context.Context, c sandbar.Cmd, path string, std driver.Stdio) (driver.Process, error)
}

// Blocked is the ability of a Process of StartBlocked.
type Blocked interface {
	// Release writes code to the file, with mode 0644, and unblocks the program. It works once.
	// The result's Duration begins here. After an error nothing of the program has run, and
	// only Destroy of the sandbox is defined. Gone if the program has ended.
	Release(ctx context.Context, code string) error
	// Abandon kills a program that was not released, and removes the files that StartBlocked
	// has made.
	Abandon(ctx context.Context) error
}

// blockedInterpreter is a sandbox with an interpreter that is blocked in open(2) of its program. No
// code of this package runs in the interpreter.
type blockedInterpreter struct {
	*prestarted
	process driver.Process
	blocked Blocked // of process
}

var _ driver.Evaluator = (*blockedInterpreter)(nil)

// start starts the interpreter with the command and environment of a cold start without arguments.
func (h *blockedInterpreter) start(ctx context.Context) error {
	blocker, ok := driver.As[Blocker](h.Sandbox)
	if !ok {
		return sandbar.Errorf(sandbar.Unsupported, "this driver cannot block a program in opening its file")
	}
	std := h.std.stdio()
	std.Stdin = nil
	p, err := blocker.StartBlocked(ctx, h.t.command(driver.Evaluation{Env: h.t.spec.Env, Dir: sandbar.DefaultDir}), h.t.spec.File, std)
	if err != nil {
		return err
	}
	if h.blocked, ok = driver.As[Blocked](p); !ok {
		return sandbar.Errorf(sandbar.Internal, "the process that StartBlocked returned cannot be released")
	}
	h.process = p
	h.follow(p)
	return nil
}

// fits reports whether the program needs no arguments, input, directory or environment other than
// those that the interpreter was started with.
func (h *blockedInterpreter) fits(e driver.Evaluation, std driver.Stdio) bool {
	return len(e.Args) == 0 && std.Stdin == nil && (e.Dir == "" || e.Dir == sandbar.DefaultDir) && maps.Equal(e.Env, h.t.spec.Env)
}

// Eval implements driver.Evaluator: it unblocks the interpreter. If the interpreter does not fit,
// it starts another in the same sandbox.
func (h *blockedInterpreter) Eval(ctx context.Context, e driver.Evaluation, std driver.Stdio) (driver.Process, error) {
	if err := h.use(ctx, e); err != nil {
		return nil, err
	}
	if !h.fits(e, std) {
		h.std.abandon()
		if err := h.blocked.Abandon(ctx); err != nil {
			return nil, err
		}
		if err := driver.WriteFile(ctx, h.FS(), h.t.spec.File, []byte(e.Code)); err != nil {
			return nil, err
		}
		return h.Sandbox.Start(ctx, h.t.command(e), std)
	}
	h.std.connect("", std)
	if err := h.blocked.Release(ctx, e.Code); err != nil {
		return nil, err
	}
	return &process{Process: h.process, std: h.std}, nil
}
