package worker

import (
	"context"

	"github.com/sandbar-dev/sandbar/internal/wasm/shell"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/program"
)

// pidsOfOne is how many numbers each command has for its processes, which never
// see another's.
const pidsOfOne = 1000

// firstPID is the number of the first process of the nth command.
func firstPID(n uint64) int { return int(n%1e6) * pidsOfOne }

// valueRoom is how long a value of the shell may be where memory has no limit,
// in bytes.
const valueRoom = 1 << 30

// exec runs a program as the shell would, in processes of its own: with the
// utilities of the shell, and the interpreters.
func (p *process) exec(ctx context.Context, c *program.Context) int {
	plan := p.w.plan
	room := int64(valueRoom)
	if plan.memory > 0 {
		// More than there is memory for: what ends a program that wants it is
		// the budget, which says so.
		room = 2 * plan.memory
	}
	code, _ := shell.Run(ctx, shell.Config{ // its error is the end of ctx
		FS: c.FS, Env: c.Env, Dir: c.Dir, Args: c.Args,
		Stdin: c.Stdin, Stdout: c.Stdout, Stderr: c.Stderr,
		Programs: p.w.progs.list,
		Limits:   shell.Limits{Processes: int(plan.pids), Descriptors: int(plan.fds), Bytes: int(room)},
		PID:      firstPID(p.mark), Signals: p.signals, Killed: p.killedBy,
	})
	return code
}
