package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
)

// CreateContext starts an interpreter in a sandbox, which runs one cell after another.
func (c *Client) CreateContext(ctx context.Context, id string, x wire.CreateContext) (wire.Context, error) {
	var made wire.Context
	err := c.call(ctx, http.MethodPost, path(id, "contexts"), nil, x, &made)
	return made, err
}

// Contexts lists the contexts of a sandbox in the order of their creation.
func (c *Client) Contexts(ctx context.Context, id string) ([]wire.Context, error) {
	var l wire.Contexts
	err := c.call(ctx, http.MethodGet, path(id, "contexts"), nil, nil, &l)
	return l.Contexts, err
}

// RemoveContext ends the interpreter of a context and removes it.
func (c *Client) RemoveContext(ctx context.Context, id, name string) error {
	return c.call(ctx, http.MethodDelete, path(id, "contexts", name), nil, nil, nil)
}

// RestartContext ends the interpreter of a context and starts a new one.
func (c *Client) RestartContext(ctx context.Context, id, name string) (wire.Context, error) {
	var x wire.Context
	err := c.call(ctx, http.MethodPost, path(id, "contexts", name, "restart"), nil, nil, &x)
	return x, err
}

// InterruptContext interrupts the running cell of a context, as Ctrl-C does. The interpreter's
// variables stay.
func (c *Client) InterruptContext(ctx context.Context, id, name string) error {
	return c.call(ctx, http.MethodPost, path(id, "contexts", name, "interrupt"), nil, nil, nil)
}

// RunCell runs a cell in a context and calls fn with its events, in order, except keepalives, the
// end and types that this version does not have. The end of ctx, or an error of fn, which is
// returned, interrupts the cell. An error is the daemon's or a broken connection.
func (c *Client) RunCell(ctx context.Context, id, name string, cell wire.Cell, fn func(wire.Event) error) (wire.End, error) {
	body, err := json.Marshal(cell)
	if err != nil {
		return wire.End{}, sandbar.Errorf(sandbar.Internal, "the request cannot be written: %w", err)
	}
	r, err := c.request(ctx, http.MethodPost, path(id, "contexts", name, "run"), nil, bytes.NewReader(body))
	if err != nil {
		return wire.End{}, err
	}
	resp, err := c.do(r)
	if err != nil {
		return wire.End{}, err
	}
	defer resp.Body.Close()
	lines := &events{bufio.NewReaderSize(resp.Body, 64<<10)}
	for {
		line, err := lines.line(maxEvent)
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return wire.End{}, c.unreachable(ctx, err)
		}
		var e wire.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return wire.End{}, c.badAnswer(err)
		}
		switch e.Type {
		case wire.EventStarted, wire.EventStdout, wire.EventStderr, wire.EventResult, wire.EventError:
			if err := fn(e); err != nil {
				return wire.End{}, err
			}
		case wire.EventEnd:
			if e.End == nil {
				return wire.End{}, c.badAnswer(io.ErrUnexpectedEOF)
			}
			return *e.End, nil
		case wire.EventFailed:
			if e.Failure == nil {
				return wire.End{}, c.badAnswer(io.ErrUnexpectedEOF)
			}
			return wire.End{}, wire.Error{Error: *e.Failure}.Err()
		}
	}
}
