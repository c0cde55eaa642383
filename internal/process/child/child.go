// Package child starts further processes of this same program, under another
// name, and speaks to them over two pipes. It works without rights and on every
// system.
//
// What it promises: a child starts in the root directory, with the environment
// it is given and no descriptors but its standard ones; it ends with the end of
// its input, or is killed; and nothing of it, or of what it started, is left
// when Stop returns nil.
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

// Command is this program, to be run under the name args[0] and waited for by
// the caller.
func Command(ctx context.Context, args, env []string) (*exec.Cmd, error) {
	exe, err := executable()
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "finding the running binary: %w", err)
	}
	cmd := exec.CommandContext(ctx, exe)
	cmd.Args, cmd.Env, cmd.Dir, cmd.SysProcAttr = args, env, rootDir(), attributes()
	return cmd, nil
}

// Start starts a child. stderr takes what it says about itself; nil: nothing
// does.
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

// claimed are the names under which this program, when it is started, does the
// work of a child.
var claimed sync.Map

// Claim tells that this program does a child's work when it is started under a
// name. A program that does not say so would do its own work again.
func Claim(name string) { claimed.Store(name, true) }

// Claimed reports whether a name was claimed.
func Claimed(name string) bool {
	_, ok := claimed.Load(name)
	return ok
}

// StartOn starts a child whose connection is its standard input, which stays the
// caller's; it ends by Kill. args[0] must have been claimed.
func StartOn(stdin *os.File, args, env []string, stderr io.Writer) (*Process, error) {
	if !Claimed(args[0]) {
		return nil, sandbar.Errorf(sandbar.Internal, "starting %s: this program does not do its work", args[0])
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

// start starts the child and has it waited for.
func (p *Process) start() error {
	cmd := p.cmd
	cmd.WaitDelay = politeness
	started := make(chan error)
	go func() {
		// The kernel ends the child with the thread that started it, where it does
		// so at all: that may not be a thread which ends with another goroutine.
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

// Conn is the connection to the child's standard input and output; nil after
// StartOn. Where pipes
// have no deadlines, only the child's end ends a wait.
func (p *Process) Conn() net.Conn { return p.conn }

// Ended is closed when the child has ended and was waited for.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Err is how the child ended, once it has: nil if with exit code 0.
func (p *Process) Err() error { return p.err }

// Kill ends the child, but not what it started.
func (p *Process) Kill() { _ = p.cmd.Process.Kill() }

// politeness is how long a child may take to end by itself.
const politeness = 2 * time.Second

// Stop, for children of Start, ends the child's input and waits for the child, which ends what it
// started first. One that does not end in time, or before ctx, is killed
// together with that. The connection is closed.
func (p *Process) Stop(ctx context.Context) error {
	_ = p.conn.w.Close()
	t := time.NewTimer(politeness)
	defer t.Stop()
	select {
	case <-p.ended:
	case <-t.C:
	case <-ctx.Done():
	}
	kill(p.cmd.Process)
	select {
	case <-p.ended:
	case <-time.After(2 * politeness):
		return errors.New("a killed process has not ended yet")
	}
	p.conn.Close()
	return nil
}
