package control

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
)

// statusOf returns the HTTP status of each code of the platform's errors.
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
		return http.StatusUnprocessableEntity
	case sandbar.NoSpace:
		return http.StatusInsufficientStorage
	case sandbar.Timeout:
		return http.StatusGatewayTimeout
	case sandbar.Canceled:
		return http.StatusRequestTimeout // the client has left and does not read it
	case sandbar.Exhausted, sandbar.Unavailable:
		return http.StatusServiceUnavailable
	case sandbar.Gone:
		return http.StatusGone
	}
	return http.StatusInternalServerError
}

// fail responds with an error.
func fail(w http.ResponseWriter, err error) {
	status := statusOf(sandbar.CodeOf(err))
	if wait := sandbar.AsError(err).RetryAfter; wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((wait+time.Second-1)/time.Second)))
		status = http.StatusTooManyRequests
	}
	failWith(w, status, err)
}

// failWith is fail with a given status.
func failWith(w http.ResponseWriter, status int, err error) {
	if status == http.StatusServiceUnavailable && w.Header().Get("Retry-After") == "" {
		w.Header().Set("Retry-After", "1")
	}
	body := wire.ProblemOf(status, err)
	body.Request = w.Header().Get(wire.RequestHeader)
	if d := &body.Error.Error; d.Fix == "" {
		d.Fix = fixOf(d.Code, d.Field)
	}
	answerAs(w, status, wire.MediaProblem, body)
}

// fixOf returns the fix of an error that has none.
func fixOf(c sandbar.Code, field string) string {
	switch c {
	case sandbar.Gone:
		return "create another sandbox"
	case sandbar.NotFound:
		if field == "id" {
			return "`sandbar list` lists the sandboxes"
		}
		return "change the request, or create the missing object"
	case sandbar.Invalid, sandbar.TooLarge, sandbar.Exists, sandbar.Conflict, sandbar.Denied:
		return "change the request; docs/sandboxes.md says what is allowed"
	case sandbar.Unauthenticated:
		return "send the daemon's token, or the sandbox's secret"
	case sandbar.Unsupported:
		return "see what this host can do: sandbar doctor"
	case sandbar.NoSpace:
		return "remove files, or create a sandbox with a larger limits.disk"
	case sandbar.Exhausted, sandbar.Timeout, sandbar.Unavailable, sandbar.Canceled:
		return "try again later"
	}
	return "the daemon's log has more; try again, and report it"
}

// answer responds with JSON.
func answer(w http.ResponseWriter, status int, v any) {
	answerAs(w, status, "application/json; charset=utf-8", v)
}

// answerAs responds with JSON of a media type.
func answerAs(w http.ResponseWriter, status int, media string, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error":{"code":"internal","message":"the response could not be encoded","fix":"report it"}}`)
	}
	w.Header().Set("Content-Type", media)
	w.WriteHeader(status)
	w.Write(append(body, '\n'))
}

// notAllowed responds with 405.
func notAllowed(w http.ResponseWriter, r *http.Request, allow string) {
	w.Header().Set("Allow", allow)
	failWith(w, http.StatusMethodNotAllowed, &sandbar.Error{Code: sandbar.Invalid, Field: "method",
		Message: "method " + sandbar.Quote(r.Method, 20) + " is not allowed for " + sandbar.Quote(r.URL.Path, 100), Fix: "allowed: " + allow})
}

func pathNotFound(r *http.Request) error {
	return &sandbar.Error{Code: sandbar.NotFound, Message: "there is nothing at " + sandbar.Quote(r.URL.Path, 100)}
}
