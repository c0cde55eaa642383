package httpd

import (
	"encoding/json"
	"net/http"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
)

// WriteError writes an error as the response, as every error of the listener.
func WriteError(w http.ResponseWriter, status int, e *sandbar.Error) {
	body := wire.ProblemOf(status, e)
	body.Request = w.Header().Get(wire.RequestHeader)
	writeAs(w, status, wire.MediaProblem, body)
}

// writeJSON writes v as the response. It ignores a broken connection.
func writeJSON(w http.ResponseWriter, status int, v any) {
	writeAs(w, status, "application/json; charset=utf-8", v)
}

// writeAs writes v as JSON of a media type.
func writeAs(w http.ResponseWriter, status int, media string, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error":{"code":"internal","message":"the answer could not be written as JSON","fix":"report it"}}`)
	}
	w.Header().Set("Content-Type", media)
	w.WriteHeader(status)
	w.Write(append(body, '\n'))
}

// refuse answers a request that failed a check, and counts it.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, why *refusal) {
	s.count(r, why)
	if why.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="sandbar"`)
	}
	if why.allow != "" {
		w.Header().Set("Allow", why.allow)
	}
	// The rest of this connection is not read.
	w.Header().Set("Connection", "close")
	WriteError(w, why.status, why.err)
}

// count counts and logs a refusal.
func (s *Server) count(r *http.Request, why *refusal) {
	s.options.Metrics.refused(why.reason)
	s.options.Logger.DebugContext(r.Context(), "request refused", "reason", why.reason, "status", why.status, "method", clip(r.Method), "path", clip(r.URL.Path), "remote", r.RemoteAddr)
}

// noRoute is the refusal of a request that matches no pattern. The mux's own handler tells whether
// another method would match.
func noRoute(h http.Handler, r *http.Request) *refusal {
	answer := &headerOnly{header: http.Header{}}
	h.ServeHTTP(answer, r)
	if answer.status == http.StatusMethodNotAllowed {
		return &refusal{status: answer.status, reason: reasonRoute, allow: answer.header.Get("Allow"), err: &sandbar.Error{Code: sandbar.Invalid,
			Message: "method " + sandbar.Quote(r.Method, 20) + " is not allowed for " + sandbar.Quote(r.URL.Path, 100), Fix: "allowed: " + answer.header.Get("Allow")}}
	}
	return &refusal{status: http.StatusNotFound, reason: reasonRoute, err: &sandbar.Error{Code: sandbar.NotFound,
		Message: "there is nothing at " + sandbar.Quote(r.URL.Path, 100), Fix: "see docs/sandboxes.md for the paths"}}
}

// headerOnly is a ResponseWriter that records status and header.
type headerOnly struct {
	header http.Header
	status int
}

// Header implements http.ResponseWriter.
func (h *headerOnly) Header() http.Header { return h.header }

// WriteHeader implements http.ResponseWriter.
func (h *headerOnly) WriteHeader(status int) { h.status = status }

// Write implements http.ResponseWriter.
func (h *headerOnly) Write(p []byte) (int, error) { return len(p), nil }

// healthBody is the response of GET /health.
type healthBody struct {
	Status  string    `json:"status"`
	Version string    `json:"version"`
	Load    *loadBody `json:"load,omitempty"`
}

type loadBody struct {
	Active    int `json:"active"`
	Queued    int `json:"queued"`
	Sandboxes int `json:"sandboxes"`
	Capacity  int `json:"capacity"`
	Removing  int `json:"removing"`
}

// health answers GET /health. With the operator's token the response includes the load.
func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	body := healthBody{Status: "ok", Version: s.options.Version}
	if who, err := s.guard.Load().bearer(r); err == nil && who.client.Operator() && s.options.Load != nil {
		l := s.options.Load()
		body.Load = &loadBody{Active: l.Active, Queued: l.Queued, Sandboxes: l.Sandboxes, Capacity: l.Capacity, Removing: l.Removing}
	}
	writeJSON(w, http.StatusOK, body)
}
