package client

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/sandbar-dev/sandbar/client/wire"
)

// upgradeTime bounds the upgrade of a connection; for a port, the daemon connects to it in that
// time.
const upgradeTime = time.Minute

// upgraded is a connection after an HTTP upgrade.
type upgraded struct {
	net.Conn
	in *bufio.Reader
}

// Read implements io.Reader. It starts with the bytes that arrived with the answer.
func (u *upgraded) Read(p []byte) (int, error) { return u.in.Read(p) }

// CloseWrite half-closes the connection: it ends the write side.
func (u *upgraded) CloseWrite() error {
	if half, ok := u.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return u.Conn.Close()
}

// upgrade opens a new upgraded connection. ctx bounds the upgrade only.
func (c *Client) upgrade(ctx context.Context, path, protocol string) (*upgraded, error) {
	r, err := c.request(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", protocol)
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	conn.SetDeadline(time.Now().Add(upgradeTime))
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	u, err := c.handshake(conn, r)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	conn.SetDeadline(time.Time{})
	return u, nil
}

func (c *Client) handshake(conn net.Conn, r *http.Request) (*upgraded, error) {
	if err := r.Write(conn); err != nil {
		return nil, c.unreachable(r.Context(), err)
	}
	in := bufio.NewReaderSize(conn, 64<<10)
	resp, err := http.ReadResponse(in, r)
	if err != nil {
		return nil, c.unreachable(r.Context(), err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer resp.Body.Close()
		return nil, refusalOf(resp)
	}
	return &upgraded{conn, in}, nil
}

// Conn is a connection to a port inside a sandbox.
type Conn interface {
	net.Conn
	// CloseWrite half-closes the connection: it ends the write side.
	CloseWrite() error
}

// Port connects to a port inside a sandbox.
func (c *Client) Port(ctx context.Context, id string, port int) (Conn, error) {
	u, err := c.upgrade(ctx, path(id, "ports", strconv.Itoa(port)), wire.UpgradeTCP)
	if err != nil {
		return nil, err // a nil *upgraded in an interface would not be nil
	}
	return u, nil
}
