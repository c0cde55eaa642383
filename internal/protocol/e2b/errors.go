package e2b

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// statusOf returns the HTTP status of each code of the platform's errors. At the control plane 501
// means that this server, host or driver cannot do it.
func statusOf(c sandbar.Code) int {
	switch c {
	case sandbar.Invalid:
		return http.StatusBadRequest
	case sandbar.Unauthenticated:
		return http.StatusUnauthorized
	case sandbar.Denied:
		return http.StatusForbidden
	case sandbar.NotFound:
		return http.StatusNotFound
	case sandbar.Exists, sandbar.Conflict:
		return http.StatusConflict
	case sandbar.TooLarge:
		return http.StatusRequestEntityTooLarge
	case sandbar.Unsupported:
		return http.StatusNotImplemented
	case sandbar.NoSpace:
		return http.StatusInsufficientStorage
	case sandbar.Timeout:
		return http.StatusGatewayTimeout
	case sandbar.Canceled:
		return http.StatusRequestTimeout // the client has left and does not read it
	case sandbar.Exhausted, sandbar.Unavailable:
		return http.StatusServiceUnavailable
	case sandbar.Gone:
		return http.StatusBadGateway
	}
	return http.StatusInternalServerError
}

// connectOf returns the Connect code of each code of the platform's errors, and its HTTP status in
// a unary call. https://connectrpc.com/docs/protocol/#error-codes
func connectOf(c sandbar.Code) (code string, status int) {
	switch c {
	case sandbar.Invalid, sandbar.TooLarge:
		return "invalid_argument", http.StatusBadRequest
	case sandbar.Unauthenticated:
		return "unauthenticated", http.StatusUnauthorized
	case sandbar.Denied:
		return "permission_denied", http.StatusForbidden
	case sandbar.NotFound:
		return "not_found", http.StatusNotFound
	case sandbar.Exists:
		return "already_exists", http.StatusConflict
	case sandbar.Conflict:
		return "failed_precondition", http.StatusBadRequest
	case sandbar.Unsupported:
		return "unimplemented", http.StatusNotImplemented
	case sandbar.Exhausted, sandbar.NoSpace:
		return "resource_exhausted", http.StatusTooManyRequests
	case sandbar.Timeout:
		return "deadline_exceeded", http.StatusGatewayTimeout
	case sandbar.Canceled:
		return "canceled", 499
	case sandbar.Unavailable, sandbar.Gone:
		return "unavailable", http.StatusServiceUnavailable
	}
	return "internal", http.StatusInternalServerError
}

// errorBody is an error of REST.
type errorBody struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// messageOf returns an error's message with its fix.
func messageOf(err error) string { return sandbar.AsError(err).Error() }

// fail responds with an error of REST.
func fail(w http.ResponseWriter, err error) {
	e := sandbar.AsError(err)
	status := statusOf(e.Code)
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((e.RetryAfter+time.Second-1)/time.Second)))
		status = http.StatusTooManyRequests
	}
	answer(w, status, errorBody{status, messageOf(err)})
}

// Refuse implements httpd.Overlay.
func (s *Server) Refuse(w http.ResponseWriter, status int, err *sandbar.Error) {
	answer(w, status, errorBody{status, messageOf(err)})
}

// answer responds with JSON.
func answer(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"code":500,"message":"the response could not be encoded"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	w.Write(b)
}

// proxyError is the response for a sandbox or a port that does not exist. SDKs recognize both
// messages.
type proxyError struct {
	SandboxID string `json:"sandboxId"`
	Message   string `json:"message"`
	Port      int    `json:"port,omitempty"`
	Code      int    `json:"code"`
}

func sandboxGone(w http.ResponseWriter, label string) {
	answer(w, http.StatusBadGateway, proxyError{SandboxID: label, Message: "The sandbox was not found", Code: http.StatusBadGateway})
}

func portClosed(w http.ResponseWriter, label string, port int) {
	answer(w, http.StatusBadGateway, proxyError{SandboxID: label, Message: "The sandbox is running but port is not open", Port: port, Code: http.StatusBadGateway})
}

// unsupported is the error for a part of the protocol that is not served.
func unsupported(field, what string) error {
	return &sandbar.Error{Code: sandbar.Unsupported, Field: field, Message: what, Fix: "see docs/e2b.md for what is served"}
}

func invalid(field, message, fix string) error {
	return &sandbar.Error{Code: sandbar.Invalid, Field: field, Message: message, Fix: fix}
}

func notAllowed(w http.ResponseWriter, r *http.Request, allow string) {
	w.Header().Set("Allow", allow)
	answer(w, http.StatusMethodNotAllowed, errorBody{http.StatusMethodNotAllowed,
		"method " + sandbar.Quote(r.Method, 20) + " is not allowed for " + sandbar.Quote(r.URL.Path, 100) + "; allowed: " + allow})
}

func pathNotFound(r *http.Request) error {
	return &sandbar.Error{Code: sandbar.NotFound, Message: "there is nothing at " + sandbar.Quote(r.URL.Path, 100), Fix: "see docs/e2b.md for what is served"}
}
