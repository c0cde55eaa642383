package worker

import (
	"context"

	"github.com/sandbar-dev/sandbar/internal/wasm/shell"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/program"
)

// pidsPerCommand is the number of process ids of one command. Commands do not see each other's
// processes.
const pidsPerCommand = 1000

// firstPID returns the process id of the nth command's first process.
func firstPID(n uint64) int { return int(n%1e6) * pidsPerCommand }

// maxValue is the longest value of the shell without a memory limit, in bytes.
const maxValue = 1 << 30

// exec runs a program in an own instance of the shell, with the shell's utilities and the
// interpreters.
func (p *process) exec(ctx context.Context, c *program.Context) int {
	plan := p.w.plan
	room := int64(maxValue)
	if plan.memory > 0 {
		// Above the memory limit, so that the budget ends the program and reports the reason.
		room = 2 * plan.memory
	}
	code, _ := shell.Run(ctx, shell.Config{ // error is that of ctx
		FS: c.FS, Env: c.Env, Dir: c.Dir, Args: c.Args,
		Stdin: c.Stdin, Stdout: c.Stdout, Stderr: c.Stderr,
		Programs: p.w.progs.list,
		Limits:   shell.Limits{Processes: int(plan.pids), Descriptors: int(plan.fds), Bytes: int(room)},
		PID:      firstPID(p.tag), Signals: p.signals, Killed: p.killedBy,
	})
	return code
}
