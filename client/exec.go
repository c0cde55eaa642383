package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
)

// Streams are the input and the outputs of a command. A nil Stdin is an empty input. A command with
// a terminal writes to Stdout only.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Sizes, if not nil, delivers later sizes of the terminal, until the command's end.
	Sizes <-chan sandbar.TerminalSize
}

// OutputError is a failed write to an output. It ended the command.
type OutputError struct{ Err error }

// Error returns the message.
func (e *OutputError) Error() string { return "the output cannot be written: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *OutputError) Unwrap() error { return e.Err }

// Exec runs one command in a sandbox to its end. The end of ctx cancels it with a grace period, and
// the result's outcome is then "cancelled". An error is the daemon's, a broken connection, or an
// *OutputError. A read of Stdin may still be in progress when Exec returns.
func (c *Client) Exec(ctx context.Context, id string, x wire.Exec, s Streams) (wire.Result, error) {
	x.Stdin = s.Stdin != nil
	request, err := json.Marshal(x)
	if err != nil {
		return wire.Result{}, sandbar.Errorf(sandbar.Internal, "the request cannot be written: %w", err)
	}
	if len(request) > wire.MaxFrame {
		return wire.Result{}, sandbar.Errorf(sandbar.TooLarge, "the command and its environment are larger than %d bytes", wire.MaxFrame)
	}
	conn, err := c.upgrade(ctx, path(id, "exec"), wire.UpgradeExec)
	if err != nil {
		return wire.Result{}, err
	}
	e := &execution{conn: conn, credit: wire.Window}
	e.more.L = &e.mu
	defer e.close()
	if err := e.send(wire.Request, request); err != nil {
		return wire.Result{}, c.unreachable(ctx, err)
	}
	defer context.AfterFunc(ctx, func() { e.send(wire.Cancel, nil) })()
	if s.Stdin != nil {
		go e.sendStdin(s.Stdin)
	}
	if s.Sizes != nil {
		over := make(chan struct{})
		defer close(over)
		go e.sendSizes(s.Sizes, over)
	}
	r, err := e.follow(s)
	if _, ok := errors.AsType[*sandbar.Error](err); ok || err == nil {
		return r, err
	}
	if _, ok := errors.AsType[*OutputError](err); ok {
		return r, err
	}
	lost := sandbar.Errorf(sandbar.Unavailable, "the connection to %s broke; how the command ended is not known: %w", c.name, err)
	return r, lost
}

// execution is a running command.
type execution struct {
	conn *upgraded

	writing sync.Mutex

	mu     sync.Mutex
	more   sync.Cond
	credit int
	closed bool
}

func (e *execution) send(k wire.Kind, data []byte) error { return e.write(wire.Append(nil, k, data)) }

func (e *execution) write(frame []byte) error {
	e.writing.Lock()
	defer e.writing.Unlock()
	_, err := e.conn.Write(frame)
	return err
}

// sendSizes sends sizes of the terminal until over is closed. It drops those out of range.
func (e *execution) sendSizes(sizes <-chan sandbar.TerminalSize, over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		case size, more := <-sizes:
			if !more {
				return
			}
			if size.Check() == nil && e.write(wire.AppendResize(nil, wire.TerminalSize(size))) != nil {
				return
			}
		}
	}
}

func (e *execution) close() {
	e.mu.Lock()
	e.closed = true
	e.more.Broadcast()
	e.mu.Unlock()
	e.conn.Close()
}

// sendStdin sends the input, within the daemon's credit.
func (e *execution) sendStdin(r io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		for data := buf[:n]; len(data) > 0; {
			part := e.takeCredit(len(data))
			if part == 0 || e.send(wire.Stdin, data[:part]) != nil {
				return
			}
			data = data[part:]
		}
		if err != nil { // a read error also ends the input; the protocol has no other message for it
			e.send(wire.Stdin, nil)
			return
		}
	}
}

// takeCredit waits for credit and takes up to n of it. It returns 0 if the command has ended.
func (e *execution) takeCredit(n int) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.credit == 0 && !e.closed {
		e.more.Wait()
	}
	if e.closed {
		return 0
	}
	n = min(n, e.credit)
	e.credit -= n
	return n
}

func (e *execution) addCredit(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.credit += n
	e.more.Broadcast()
}

// follow passes the command's output to s until its end.
func (e *execution) follow(s Streams) (wire.Result, error) {
	frames := wire.NewReader(e.conn)
	for {
		k, data, err := frames.Next()
		if err != nil {
			return wire.Result{}, err
		}
		switch k {
		case wire.Started:
		case wire.Stdout:
			_, err = s.Stdout.Write(data)
			err = outputError(err)
		case wire.Stderr:
			_, err = s.Stderr.Write(data)
			err = outputError(err)
		case wire.Credit:
			var n int
			if n, err = wire.CreditOf(data); err == nil {
				e.addCredit(n)
			}
		case wire.Ended:
			var r wire.Result
			err := json.Unmarshal(data, &r)
			return r, err
		case wire.Failed:
			var f wire.Error
			if err := json.Unmarshal(data, &f); err != nil {
				return wire.Result{}, err
			}
			return wire.Result{}, f.Err()
		default:
			err = fmt.Errorf("a frame of the unknown kind %q", byte(k))
		}
		if err != nil {
			return wire.Result{}, err
		}
	}
}

func outputError(err error) error {
	if err == nil {
		return nil
	}
	return &OutputError{err}
}
