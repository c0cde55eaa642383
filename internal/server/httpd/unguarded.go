package httpd

import (
	"log/slog"
	"net"
	"net/http"

	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/engine"
)

// Unguarded creates a Server on a listener, such as Bind returns, for a handler that checks tokens
// itself; connections wait until Serve. It uses the options Certificate, Key, MaxConnections and
// Logger. It does not check Host and Origin: see the package comment. As on every listener here,
// header time and size are bounded, panics are answered, and responses have the security headers.
// It logs a warning if tokens are sent unencrypted. Invalid: the certificate is unusable; the
// caller then keeps ln.
func Unguarded(ln net.Listener, h http.Handler, o Options) (*Server, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.TokenChosen = true // otherwise the handler could not serve this address
	if err := mayListen(ln.Addr(), o); err != nil {
		return nil, err
	}
	s := &Server{options: o, listener: ln}
	if err := s.wrap(); err != nil {
		return nil, err
	}
	s.http = newHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer s.recoverPanic(w, r)
		setSecurityHeaders(w.Header())
		w.Header().Set(wire.RequestHeader, engine.NewRequest())
		h.ServeHTTP(w, r)
	}), o.Logger)
	return s, nil
}
