package control

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// linger is how long a connection whose last word is said waits for the
// client to take it and to hang up.
const linger = 5 * time.Second

// upgraded is a connection that speaks something else than HTTP from now on.
type upgraded struct {
	net.Conn
	in *bufio.Reader // what the client has sent; first what was read already
}

// wants reports whether the client asks for the protocol, and for no other.
func wants(r *http.Request, protocol string) bool {
	if !strings.EqualFold(r.Header.Get("Upgrade"), protocol) || len(r.Header.Values("Upgrade")) != 1 {
		return false
	}
	for _, v := range r.Header.Values("Connection") {
		for token := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(token), "upgrade") {
				return true
			}
		}
	}
	return false
}

// refuseUpgrade answers a request that should have asked for an upgrade.
func refuseUpgrade(w http.ResponseWriter, protocol string) {
	w.Header().Set("Upgrade", protocol)
	w.Header().Set("Connection", "Upgrade")
	failWith(w, http.StatusUpgradeRequired, &sandbar.Error{Code: sandbar.Invalid, Field: "Upgrade", Message: "this is reached by an upgrade of the connection",
		Fix: "send \"Connection: Upgrade\" and \"Upgrade: " + protocol + "\""})
}

// upgrade takes the connection over. After an error all has been answered, or
// nobody is there.
func upgrade(w http.ResponseWriter, protocol string) (*upgraded, error) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		fail(w, sandbar.Errorf(sandbar.Internal, "the connection cannot be taken over: %w", err))
		return nil, err
	}
	conn.SetDeadline(time.Now().Add(linger))
	if _, err := fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", protocol); err != nil {
		conn.Close()
		return nil, err
	}
	conn.SetDeadline(time.Time{})
	return &upgraded{conn, rw.Reader}, nil
}

// pending is what has been read from the connection and not yet been used.
func (u *upgraded) pending() []byte {
	b, _ := u.in.Peek(u.in.Buffered()) // what is buffered can be had
	return b
}

// closeWrite ends one direction, or where that cannot be, both.
func closeWrite(c io.Closer) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
