package worker

import (
	"context"

	"github.com/sandbar-dev/sandbar/internal/wasmsh"
	"github.com/sandbar-dev/sandbar/internal/wasmsh/program"
)

// exec runs a command as the shell would, in processes of its own: with the
// utilities of the shell, and the interpreters.
func (p *programs) exec(ctx context.Context, c *program.Context) int {
	code, _ := wasmsh.Run(ctx, wasmsh.Config{ // its error is the end of ctx
		FS: c.FS, Env: c.Env, Dir: c.Dir, Args: c.Args,
		Stdin: c.Stdin, Stdout: c.Stdout, Stderr: c.Stderr,
		Programs: p.list,
		Limits:   wasmsh.Limits{Processes: int(p.w.plan.pids), Descriptors: int(p.w.plan.fds)},
	})
	return code
}
