package httpd

import (
	"log/slog"
	"net"
	"net/http"
)

// Unguarded makes a Server of a listener, such as Bind makes, for a handler that
// checks tokens itself; connections wait until Serve. Host and Origin are not
// checked: see the package comment for when that is right. Header time and size
// are bounded as for every listener here, a panic is answered, and browsers are
// told to make nothing of an answer. A nil logger discards.
func Unguarded(ln net.Listener, h http.Handler, logger *slog.Logger) *Server {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{options: Options{Logger: logger}, listener: ln}
	s.http = newHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer s.rescue(w, r)
		secure(w.Header())
		h.ServeHTTP(w, r)
	}), logger)
	return s
}
