package httpd

import (
	"log/slog"
	"net"
	"net/http"
)

// Unguarded makes a Server of a listener, such as Bind makes, for a handler that
// checks tokens itself; connections wait until Serve. Of the options it heeds
// Certificate, Key, MaxConnections and Logger. Host and Origin are not checked: see
// the package comment for when that is right. Header time and size are bounded as
// for every listener here, a panic is answered, and browsers are told to make
// nothing of an answer. A warning is logged where tokens travel in the clear.
// Errors: Invalid for a certificate that cannot be used; ln stays the caller's then.
func Unguarded(ln net.Listener, h http.Handler, o Options) (*Server, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.TokenChosen = true // or the handler would be none for this
	if err := mayListen(ln.Addr(), o); err != nil {
		return nil, err
	}
	s := &Server{options: o, listener: ln}
	if err := s.wrap(); err != nil {
		return nil, err
	}
	s.http = newHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer s.rescue(w, r)
		secure(w.Header())
		h.ServeHTTP(w, r)
	}), o.Logger)
	return s, nil
}
