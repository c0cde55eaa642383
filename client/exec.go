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

// Streams are where a command's input comes from and its outputs go. A nil
// Stdin is an empty input.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// OutputError is an output that could not be written. The command was ended
// because of it.
type OutputError struct{ Err error }

// Error tells what happened.
func (e *OutputError) Error() string { return "the output cannot be written: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *OutputError) Unwrap() error { return e.Err }

// Exec runs one command in a sandbox to its end. The end of ctx cancels it,
// with grace, and the result then tells so. An error is the daemon's, or that
// the connection broke, or an *OutputError. A read of Stdin may be under way
// when Exec returns.
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
		go e.feed(s.Stdin)
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

// execution is a command under way.
type execution struct {
	conn *upgraded

	writing sync.Mutex

	mu     sync.Mutex
	more   sync.Cond
	credit int
	closed bool
}

func (e *execution) send(k wire.Kind, data []byte) error {
	e.writing.Lock()
	defer e.writing.Unlock()
	_, err := e.conn.Write(wire.Append(nil, k, data))
	return err
}

func (e *execution) close() {
	e.mu.Lock()
	e.closed = true
	e.more.Broadcast()
	e.mu.Unlock()
	e.conn.Close()
}

// feed sends the input, as far as there is credit.
func (e *execution) feed(r io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		for data := buf[:n]; len(data) > 0; {
			part := e.take(len(data))
			if part == 0 || e.send(wire.Stdin, data[:part]) != nil {
				return
			}
			data = data[part:]
		}
		if err != nil { // also of a file that cannot be read: its end is all there is to say
			e.send(wire.Stdin, nil)
			return
		}
	}
}

// take waits for credit and takes up to n of it; 0 when the command has ended.
func (e *execution) take(n int) int {
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

func (e *execution) give(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.credit += n
	e.more.Broadcast()
}

// follow passes on what the command writes, to its end.
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
				e.give(n)
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
