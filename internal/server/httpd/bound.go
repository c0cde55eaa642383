package httpd

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// boundListener has at most a number of connections open at once. Those beyond it
// are answered without a look at what they ask, so that who is turned away knows
// it at once and what is accepted stays served.
type boundListener struct {
	net.Listener
	places chan struct{}
	mute   bool // nothing can be said to a connection that waits for TLS
	busy   atomic.Int64
}

func bound(ln net.Listener, most int, mute bool) *boundListener {
	return &boundListener{Listener: ln, places: make(chan struct{}, most), mute: mute}
}

// tooMany is the whole answer to a connection that is one too many.
const tooMany = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Type: application/json; charset=utf-8\r\nConnection: close\r\n" +
	"Content-Length: 180\r\n\r\n" +
	`{"error":{"code":"exhausted","message":"there are as many connections as there may be (max_connections)","fix":"try again in a second, or let the operator raise max_connections"}}` + "\n"

// turnedAway is how many refusals may be under way; those beyond it are silent.
const turnedAway = 64

// Accept returns the next connection that has a place.
func (l *boundListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.places <- struct{}{}:
			return placed(c, &place{leave: func() { <-l.places }}), nil
		default:
			l.refuse(c)
		}
	}
}

// refuse tells a connection that it is one too many and closes it. What the peer
// has sent is read for a moment: closing over unread bytes would take the answer
// back.
func (l *boundListener) refuse(c net.Conn) {
	if l.mute || l.busy.Add(1) > turnedAway {
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

// place is a connection's place, which it gives back when it is closed.
type place struct {
	leave func()
	once  sync.Once
}

// The connections have all abilities of what they are, which net/http and those
// who take connections over use to copy without a buffer.
type (
	tcpConn struct {
		*net.TCPConn
		*place
	}
	unixConn struct {
		*net.UnixConn
		*place
	}
	otherConn struct {
		net.Conn
		*place
	}
)

// Close closes the connection.
func (c tcpConn) Close() error { defer c.once.Do(c.leave); return c.TCPConn.Close() }

// Close closes the connection.
func (c unixConn) Close() error { defer c.once.Do(c.leave); return c.UnixConn.Close() }

// Close closes the connection.
func (c otherConn) Close() error { defer c.once.Do(c.leave); return c.Conn.Close() }

func placed(c net.Conn, p *place) net.Conn {
	switch c := c.(type) {
	case *net.TCPConn:
		return tcpConn{c, p}
	case *net.UnixConn:
		return unixConn{c, p}
	}
	return otherConn{c, p}
}
