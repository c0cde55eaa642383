package docker

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync/atomic"
)

// Bounds of what an engine sends as one answer: its bytes, headers and events included,
// and its JSON objects, of which each may take a hundred times its length in memory.
const (
	maxAnswer  = 8 << 20
	maxObjects = 1 << 16
)

var errFlood = errors.New("the engine's answer is too large")

// boundedConn is a connection to an engine. What is read between two writes is one answer
// or a part of it, as requests do not overlap.
type boundedConn struct {
	net.Conn
	free    *atomic.Bool // the connection has become a container's streams
	read    atomic.Int64
	objects atomic.Int64
}

// freeKey is the key of a context's *atomic.Bool that becomes a connection's free.
type freeKey struct{}

// bounded has a dialer make boundedConns.
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
		_ = c.Conn.Close() // nothing of it is of use
		return 0, errFlood
	}
	return n, err
}

func (c *boundedConn) Write(b []byte) (int, error) {
	c.read.Store(0)
	c.objects.Store(0)
	return c.Conn.Write(b)
}
