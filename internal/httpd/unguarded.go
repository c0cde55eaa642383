package httpd

import (
	"log/slog"
	"net/http"
)

// ListenUnguarded makes a Server for a handler that checks tokens itself, and
// binds its address ("HOST:PORT" or "unix:/path"); connections wait until Serve.
// Host and Origin are not checked: see the package comment for when that is
// right. Header time and size are bounded as for every listener here, a panic
// is answered, and browsers are told to make nothing of an answer. A nil logger
// discards. The error is Unavailable or Exists when the address cannot be had.
func ListenUnguarded(listen string, h http.Handler, logger *slog.Logger) (*Server, error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	ln, err := bind(listen)
	if err != nil {
		return nil, err
	}
	s := &Server{options: Options{Listen: listen, Logger: logger}, listener: ln}
	s.http = newHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer s.rescue(w, r)
		secure(w.Header())
		h.ServeHTTP(w, r)
	}), logger)
	return s, nil
}
