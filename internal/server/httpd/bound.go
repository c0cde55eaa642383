package httpd

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// limitListener bounds the number of open connections. It answers further connections at once with
// 503, without reading their requests, so that clients learn the reason and accepted connections
// stay served.
type limitListener struct {
	net.Listener
	places chan struct{}
	mute   bool // no answer is possible: the connection expects TLS
	busy   atomic.Int64
}

func bound(ln net.Listener, most int, mute bool) *limitListener {
	return &limitListener{Listener: ln, places: make(chan struct{}, most), mute: mute}
}

// tooMany is the complete response to a connection beyond the bound.
const tooMany = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Type: application/problem+json\r\nConnection: close\r\n" +
	"Content-Length: 325\r\n\r\n" +
	`{"error":{"code":"exhausted","message":"there are as many connections as there may be (max_connections)","fix":"try again in a second, or let the operator raise max_connections"},` +
	`"type":"urn:sandbar:error:exhausted","title":"exhausted","status":503,"detail":"there are as many connections as there may be (max_connections)"}` + "\n"

// maxRefusals bounds the refusals that run at once; further connections are closed silently.
const maxRefusals = 64

// Accept returns the next connection within the bound.
func (l *limitListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.places <- struct{}{}:
			return placed(c, &slot{leave: func() { <-l.places }}), nil
		default:
			l.refuse(c)
		}
	}
}

// refuse answers a connection with 503 and closes it. It reads for a moment before: closing a
// socket with unread data resets the connection and discards the answer.
func (l *limitListener) refuse(c net.Conn) {
	if l.mute || l.busy.Add(1) > maxRefusals {
		if !l.mute {
			l.busy.Add(-1)
		}
		c.Close()
		return
	}
	go func() {
		defer l.busy.Add(-1)
		defer c.Close()
		c.SetDeadline(time.Now().Add(time.Second))
		c.Write([]byte(tooMany))
		if half, ok := c.(interface{ CloseWrite() error }); ok {
			half.CloseWrite()
		}
		var rest [4 << 10]byte
		for range 16 {
			if _, err := c.Read(rest[:]); err != nil {
				return
			}
		}
	}()
}

// slot is a slot of the bound, which a connection releases when it is closed.
type slot struct {
	leave func()
	once  sync.Once
}

// The wrappers keep the methods of the wrapped connections: net/http and handlers that hijack
// connections use them to copy with sendfile(2) and splice(2).
type (
	tcpConn struct {
		*net.TCPConn
		*slot
	}
	unixConn struct {
		*net.UnixConn
		*slot
	}
	otherConn struct {
		net.Conn
		*slot
	}
)

// Close closes the connection.
func (c tcpConn) Close() error { defer c.once.Do(c.leave); return c.TCPConn.Close() }

// Close closes the connection.
func (c unixConn) Close() error { defer c.once.Do(c.leave); return c.UnixConn.Close() }

// Close closes the connection.
func (c otherConn) Close() error { defer c.once.Do(c.leave); return c.Conn.Close() }

func placed(c net.Conn, p *slot) net.Conn {
	switch c := c.(type) {
	case *net.TCPConn:
		return tcpConn{c, p}
	case *net.UnixConn:
		return unixConn{c, p}
	}
	return otherConn{c, p}
}
