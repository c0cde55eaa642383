package control

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/internal/protocol/ports"
)

// dialTimeout bounds the connect to a port inside.
const dialTimeout = 30 * time.Second

// serveTunnel connects a client to a port inside, byte for byte.
func (e *entry) serveTunnel(w http.ResponseWriter, r *http.Request, text string) {
	number, err := ports.Parse(text)
	if err != nil {
		fail(w, err)
		return
	}
	if !wants(r, wire.UpgradeTCP) {
		refuseUpgrade(w, wire.UpgradeTCP)
		return
	}
	release, err := e.reserveConn()
	if err != nil {
		fail(w, err)
		return
	}
	defer release()
	inside, err := e.dial(r.Context(), number)
	if err != nil {
		fail(w, err)
		return
	}
	defer inside.Close()
	outside, err := upgrade(w, wire.UpgradeTCP)
	if err != nil {
		return
	}
	defer outside.Close()
	defer e.sandbox.Hold()()
	defer e.track(inside)()
	// After the upgrade, the request's context ends only with the server.
	defer context.AfterFunc(r.Context(), func() { inside.Close(); outside.Close() })()
	join(outside, inside)
}

// dial connects to a port inside.
func (e *entry) dial(ctx context.Context, number int) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return e.sandbox.DialPort(ctx, number)
}

// join copies in both directions until both have ended. It passes on a half-close as such. An error
// of one direction ends the other too.
func join(outside *upgraded, inside net.Conn) {
	var ways sync.WaitGroup
	broken := func() { inside.Close(); outside.Close() }
	ways.Go(func() {
		_, err := inside.Write(outside.pending())
		if err == nil {
			_, err = io.Copy(inside, outside.Conn)
		}
		if err != nil || closeWrite(inside) != nil {
			broken()
		}
	})
	ways.Go(func() {
		_, err := io.Copy(outside.Conn, inside)
		if err != nil || closeWrite(outside.Conn) != nil {
			broken()
		}
	})
	ways.Wait()
}
