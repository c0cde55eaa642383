// Package child starts this program again under another name, and communicates with the child over
// two pipes. It needs no privileges and works on every system.
//
// Invariants: a child starts in the root directory, with exactly the given environment and its
// standard descriptors. It exits at the end of its input, or is killed. When Stop returns nil, the
// child and all processes that it started have exited.
package child

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// Process is a child.
type Process struct {
	cmd   *exec.Cmd
	conn  *pipeConn
	ended chan struct{}
	err   error
}

// Command returns a command that runs this program as args[0]. The caller waits for it.
func Command(ctx context.Context, args, env []string) (*exec.Cmd, error) {
	exe, err := executable()
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "finding the running binary: %w", err)
	}
	cmd := exec.CommandContext(ctx, exe)
	cmd.Args, cmd.Env, cmd.Dir, cmd.SysProcAttr = args, env, rootDir(), attributes()
	return cmd, nil
}

// Start starts a child. stderr receives its standard error output; nil discards it.
func Start(args, env []string, stderr io.Writer) (*Process, error) {
	cmd, err := Command(context.Background(), args, env)
	if err != nil {
		return nil, err
	}
	theirIn, ourOut, err := os.Pipe()
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Exhausted, "making a pipe: %w", err)
	}
	ourIn, theirOut, err := os.Pipe()
	if err != nil {
		theirIn.Close()
		ourOut.Close()
		return nil, sandbar.Errorf(sandbar.Exhausted, "making a pipe: %w", err)
	}
	defer theirIn.Close()
	defer theirOut.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirIn, theirOut, stderr
	p := &Process{cmd: cmd, conn: &pipeConn{r: ourIn, w: ourOut}, ended: make(chan struct{})}
	if err := p.start(); err != nil {
		p.conn.Close()
		return nil, err
	}
	return p, nil
}

// claimed are the names under which this program does a child's work when it is started.
var claimed sync.Map

// Claim declares that this program does a child's work when it is started under name. Without that,
// a child would run the program's normal main again.
func Claim(name string) { claimed.Store(name, true) }

// Claimed reports whether a name was claimed.
func Claimed(name string) bool {
	_, ok := claimed.Load(name)
	return ok
}

// StartOn starts a child whose connection is its standard input; the caller keeps the descriptor.
// Kill ends it. args[0] must have been claimed.
func StartOn(stdin *os.File, args, env []string, stderr io.Writer) (*Process, error) {
	if !Claimed(args[0]) {
		return nil, sandbar.Errorf(sandbar.Internal, "starting %s: this program has not claimed that name", args[0])
	}
	cmd, err := Command(context.Background(), args, env)
	if err != nil {
		return nil, err
	}
	cmd.Stdin, cmd.Stderr = stdin, stderr
	p := &Process{cmd: cmd, ended: make(chan struct{})}
	if err := p.start(); err != nil {
		return nil, err
	}
	return p, nil
}

// start starts the child, and a goroutine that waits for it.
func (p *Process) start() error {
	cmd := p.cmd
	cmd.WaitDelay = stopTimeout
	started := make(chan error)
	go func() {
		// On Linux the kernel sends the parent-death signal when the thread that started the child
		// exits, so that must be a thread that lives as long as this process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return sandbar.Errorf(sandbar.Internal, "starting %s: %w", cmd.Args[0], err)
	}
	return nil
}

// PID is the child's process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Conn is the connection to the child's standard input and output, nil after StartOn. On systems
// without deadlines for pipes, only the child's exit ends a blocked read.
func (p *Process) Conn() net.Conn { return p.conn }

// Ended is closed after the child has exited and been reaped.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Err is the child's exit status after Ended: nil for exit code 0.
func (p *Process) Err() error { return p.err }

// Kill kills the child, but not the processes that it started.
func (p *Process) Kill() { _ = p.cmd.Process.Kill() }

// stopTimeout is the time in which a child must exit after the end of its input.
const stopTimeout = 2 * time.Second

// Stop ends a child of Start: it closes the child's input and waits for the child to exit, which
// must end its own children first. If the child does not exit in time, or before ctx ends, Stop
// kills its process group. It closes the connection.
func (p *Process) Stop(ctx context.Context) error {
	_ = p.conn.w.Close()
	t := time.NewTimer(stopTimeout)
	defer t.Stop()
	select {
	case <-p.ended:
	case <-t.C:
	case <-ctx.Done():
	}
	kill(p.cmd.Process)
	select {
	case <-p.ended:
	case <-time.After(2 * stopTimeout):
		return errors.New("a killed process has not exited yet")
	}
	p.conn.Close()
	return nil
}
