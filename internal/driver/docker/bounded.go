package docker

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync/atomic"
)

// Bounds of one answer of an engine: its bytes, headers and events included, and its JSON objects,
// each of which may use a hundred times its length in memory.
const (
	maxAnswer  = 8 << 20
	maxObjects = 1 << 16
)

var errFlood = errors.New("the engine's answer is too large")

// boundedConn is a connection to an engine that bounds each answer. The bytes read between two
// writes are one answer or a part of it, because requests do not overlap.
type boundedConn struct {
	net.Conn
	free    *atomic.Bool // the connection has become a container's streams, which are not bounded
	read    atomic.Int64
	objects atomic.Int64
}

// freeKey is the context key of the *atomic.Bool that becomes a connection's free.
type freeKey struct{}

// bounded wraps a dialer to return boundedConns.
func bounded(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		free, ok := ctx.Value(freeKey{}).(*atomic.Bool)
		if !ok {
			free = new(atomic.Bool)
		}
		return &boundedConn{Conn: conn, free: free}, nil
	}
}

func (c *boundedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.free.Load() {
		return n, err
	}
	if c.read.Add(int64(n)) > maxAnswer || c.objects.Add(int64(bytes.Count(b[:n], []byte("{")))) > maxObjects {
		_ = c.Conn.Close() // the connection cannot be used any more
		return 0, errFlood
	}
	return n, err
}

func (c *boundedConn) Write(b []byte) (int, error) {
	c.read.Store(0)
	c.objects.Store(0)
	return c.Conn.Write(b)
}
