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
	return start(cmd, &pipeConn{r: ourIn, w: ourOut})
}

// StartOn is Start for a child whose standard input is an open file, such as one
// end of a socket; more are its descriptors from 3 on. The caller closes its own
// copies. Conn and Stop must not be used.
func StartOn(stdin *os.File, args, env []string, stderr io.Writer, more ...*os.File) (*Process, error) {
	cmd, err := Command(context.Background(), args, env)
	if err != nil {
		return nil, err
	}
	cmd.Stdin, cmd.Stderr, cmd.ExtraFiles = stdin, stderr, more
	return start(cmd, nil)
}

func start(cmd *exec.Cmd, conn *pipeConn) (*Process, error) {
	cmd.WaitDelay = politeness
	p := &Process{cmd: cmd, conn: conn, ended: make(chan struct{})}
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
		if conn != nil {
			conn.Close()
		}
		return nil, sandbar.Errorf(sandbar.Internal, "starting %s: %w", cmd.Args[0], err)
	}
	return p, nil
}

// Conn is the connection to the child's standard input and output. Where pipes
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

// Stop ends the child's input and waits for the child, which ends what it
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
