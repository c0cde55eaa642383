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

// linger bounds the wait for the client to read the last message and to close the connection.
const linger = 5 * time.Second

// upgraded is a connection after its upgrade from HTTP.
type upgraded struct {
	net.Conn
	in *bufio.Reader // the client's bytes, including those that were read already
}

// wants reports whether the client requests this protocol, and no other.
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

// refuseUpgrade responds to a request that lacks the upgrade.
func refuseUpgrade(w http.ResponseWriter, protocol string) {
	w.Header().Set("Upgrade", protocol)
	w.Header().Set("Connection", "Upgrade")
	failWith(w, http.StatusUpgradeRequired, &sandbar.Error{Code: sandbar.Invalid, Field: "Upgrade", Message: "this is reached by an upgrade of the connection",
		Fix: "send \"Connection: Upgrade\" and \"Upgrade: " + protocol + "\""})
}

// upgrade takes over the connection. On an error the response has been sent, or the client is gone.
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

// pending returns the bytes that were read from the connection and not used yet.
func (u *upgraded) pending() []byte {
	b, _ := u.in.Peek(u.in.Buffered()) // never fails for buffered bytes
	return b
}

// closeWrite half-closes a connection, or closes it if half-close is not possible.
func closeWrite(c io.Closer) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
