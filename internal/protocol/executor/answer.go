package executor

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/protocol/bulk"
)

// response is the response to a request. streams: it may have begun and not be complete.
type response struct {
	http.ResponseWriter
	streams bool
}

// Unwrap implements the interface of http.ResponseController.
func (r *response) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// newOut makes a response one of any length, with a deadline for each write. The end of ctx ends
// it.
func newOut(w http.ResponseWriter, ctx context.Context, stall time.Duration) *out {
	if r, ok := w.(*response); ok {
		r.streams = true
		w = r.ResponseWriter
	}
	return &out{ResponseWriter: w, link: newLink(w, ctx), stall: stall}
}

// answerText responds in the form of the protocol's error bodies.
func answerText(w http.ResponseWriter, status int, text string) {
	http.Error(w, text, status)
}

// answerJSON responds with JSON. It ignores a broken connection.
func answerJSON(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(status)
	w.Write(append(body, '\n'))
}

// A member is one member of a JSON object that is an answer.
type member struct {
	name  string
	value any // string, int or bool
}

// object encodes a JSON object.
func object(members ...member) []byte {
	b := []byte{'{'}
	for i, m := range members {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, m.name), ':')
		switch v := m.value.(type) {
		case string:
			b = appendString(b, v)
		case int:
			b = strconv.AppendInt(b, int64(v), 10)
		case bool:
			b = strconv.AppendBool(b, v)
		}
	}
	return append(b, '}')
}

// link is the connection of a request, with a deadline for each step. A ResponseWriter without
// deadline support is a test's and has none.
type link struct {
	control *http.ResponseController
	ctx     context.Context // its end ends every step
}

func newLink(w http.ResponseWriter, ctx context.Context) link {
	return link{control: http.NewResponseController(w), ctx: ctx}
}

// expired is a deadline in the past.
var expired = time.Unix(1, 0)

// cut ends the steps in progress. It runs after the end of ctx, so a step that begins at the same
// time sees one of the two.
func (l link) cut() {
	_ = l.control.SetReadDeadline(expired)
	_ = l.control.SetWriteDeadline(expired)
}

func (l link) readWithin(d time.Duration) error {
	_ = l.control.SetReadDeadline(time.Now().Add(d))
	return l.ctx.Err()
}

func (l link) writeWithin(d time.Duration) error {
	_ = l.control.SetWriteDeadline(time.Now().Add(d))
	return l.ctx.Err()
}

// body is a request's body with a deadline for each read.
type body struct {
	link
	r    io.Reader
	wait time.Duration
	err  error // of r, except io.EOF

	stopped atomic.Bool
}

// Read waits for the next bytes.
func (b *body) Read(p []byte) (int, error) {
	if b.err = b.readWithin(b.wait); b.err == nil && b.stopped.Load() {
		b.err = errEnded
	}
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.r.Read(p)
	if err != io.EOF {
		b.err = err
	} else {
		// Reset the deadline: the server's background read, which detects that the client leaves,
		// must not see it expire.
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// stop ends a Read in progress and all later ones.
func (b *body) stop() {
	b.stopped.Store(true)
	_ = b.control.SetReadDeadline(expired)
}

func (s *Server) body(w http.ResponseWriter, r *http.Request) *body {
	return &body{link: newLink(w, s.ctx), r: r.Body, wait: s.options.BodyTimeout}
}

// read reads a request's body with f, and responds if that fails.
func (s *Server) read(w http.ResponseWriter, r *http.Request, f func(*jsonReader) error) bool {
	buf := s.buffers.Get().(*[bufferSize]byte)
	defer s.buffers.Put(buf)
	err := f(newJSONReader(s.body(w, r), buf[:], s.options.MaxJSON))
	if err != nil {
		s.refuseBody(w, err)
	}
	return err == nil
}

// refuseBody responds to a body that could not be read.
func (s *Server) refuseBody(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, errTooLarge):
		// The rest of the body is not read.
		w.Header().Set("Connection", "close")
		answerText(w, http.StatusRequestEntityTooLarge, "Request too large: at most "+strconv.FormatInt(s.options.MaxJSON, 10)+
			" bytes of a request, content aside, are accepted (executor.max_json)")
	case errors.Is(err, errContent):
		w.Header().Set("Connection", "close")
		answerText(w, http.StatusRequestEntityTooLarge, "Request too large: at most "+strconv.FormatInt(s.options.MaxContent, 10)+
			" bytes of content are accepted (executor.max_content)")
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		answerText(w, http.StatusRequestTimeout, "Request timeout")
	default:
		answerText(w, http.StatusBadRequest, "Invalid request")
	}
}

// out is a response of any length, with a deadline for each write.
type out struct {
	http.ResponseWriter
	link
	stall time.Duration
}

func (s *Server) out(w http.ResponseWriter) *out {
	return newOut(w, s.ctx, s.options.Stall)
}

// Write writes p. It fails if the client reads nothing for Options.Stall.
func (o *out) Write(p []byte) (int, error) {
	if err := o.writeWithin(o.stall); err != nil {
		return 0, err
	}
	return o.ResponseWriter.Write(p)
}

// ReadFrom writes all of r, in steps with a deadline each; see bulk.ReadFrom.
func (o *out) ReadFrom(r io.Reader) (n int64, err error) {
	return bulk.ReadFrom(o.ResponseWriter, r, func() error { return o.writeWithin(o.stall) })
}

// Flush sends what has been written.
func (o *out) Flush() error {
	if err := o.writeWithin(o.stall); err != nil {
		return err
	}
	return o.control.Flush()
}

// failure responds to an error of the platform, for which the protocol has only a status and a
// text.
func (s *Server) failure(w http.ResponseWriter, r *http.Request, status int, err error) {
	e := sandbar.AsError(err)
	if status >= http.StatusInternalServerError {
		s.options.Logger.WarnContext(r.Context(), "a request failed", "sandbox", s.sandbox.ID(), "code", e.Code, "status", status)
	}
	answerText(w, status, e.Error())
}
