package client

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// StartMonitor sends a process of agent.ModeMonitor, at the other end of conn, its plan, and
// returns when that process has executed the program. fds are the program's executable, its
// standard error output and the m.Files descriptors that it inherits; the caller keeps them. It
// closes conn. An error names the step that failed.
func StartMonitor(ctx context.Context, conn net.Conn, m *wire.Monitor, fds ...int) error {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	payload := m.Append(nil)
	if len(payload) > wire.MaxPayload {
		return sandbar.Errorf(sandbar.TooLarge, "the plan of the monitor has %d bytes; at most %d are possible", len(payload), wire.MaxPayload)
	}
	for len(fds) > 0 {
		n := min(len(fds), wire.MaxFDs)
		b := wire.AppendHeader(nil, wire.Header{Length: uint32(len(payload)), Type: wire.TypeSetup, FDs: uint8(n)})
		if err := writeWithFDs(conn, append(b, payload...), fds[:n]); err != nil {
			return monitorLost(ctx, err)
		}
		fds, payload = fds[n:], nil
	}
	f, err := readFrame(conn)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return monitorLost(ctx, err)
	}
	closeFDs(f.FDs)
	var r wire.Reply
	if f.Type != wire.TypeReply || r.Decode(f.Payload) != nil || r.Failure == wire.OK {
		return sandbar.Errorf(sandbar.Internal, "starting a machine's monitor: %w", errViolation)
	}
	cause := errnoOf(r.Errno)
	return forbidden(sandbar.Errorf(sandbar.Unsupported, "the monitor of a machine could not be confined: %s: %w", said(r.Text), cause), cause)
}

// monitorLost returns the error of a process that has ended early, or of the end of ctx.
func monitorLost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return sandbar.Errorf(sandbar.CodeOfContext(ctx), "starting a machine's monitor: %w", ctx.Err())
	}
	return sandbar.Errorf(sandbar.Internal, "starting a machine's monitor: %w", err)
}
