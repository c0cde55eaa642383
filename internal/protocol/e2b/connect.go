package e2b

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
)

const (
	// maxMessage bounds a message of a Connect call, and maxBody any other body in memory, in
	// bytes.
	maxMessage = 4 << 20
	maxBody    = 1 << 20
	// bodyTime bounds the wait for such a body.
	bodyTime = 30 * time.Second

	// flagCompressed and flagEnd are flags of an envelope.
	flagCompressed = 1
	flagEnd        = 2
	// headLen is the length of an envelope's head: flags, and the length of the message.
	headLen = 5

	// defaultKeepalive is the longest silence of a stream, if the client does not ask for another.
	defaultKeepalive = 90 * time.Second
)

// readEnvelope reads one envelope with a message of at most most bytes. It allocates only for bytes
// that arrive. io.EOF: there is no further envelope.
func readEnvelope(r io.Reader, most int64) ([]byte, error) {
	var head [headLen]byte
	if n, err := io.ReadFull(r, head[:]); n == 0 && err == io.EOF {
		return nil, io.EOF
	} else if err != nil {
		return nil, invalid("", "the envelope is incomplete", "send 5 bytes of head, and the message")
	}
	size := int64(binary.BigEndian.Uint32(head[1:]))
	switch {
	case head[0]&flagCompressed != 0:
		return nil, unsupported("", "compressed messages are not supported")
	case head[0] != 0:
		return nil, invalid("", "an envelope of a request has no flags; this one has "+strconv.Itoa(int(head[0])), "")
	case size > most:
		return nil, sandbar.Errorf(sandbar.TooLarge, "the message has %d bytes, and at most %d are allowed", size, most)
	}
	var b bytes.Buffer
	n, err := io.Copy(&b, io.LimitReader(r, size))
	if err != nil || n < size {
		return nil, invalid("", "the message has "+strconv.FormatInt(n, 10)+" of the "+strconv.FormatInt(size, 10)+" bytes that its envelope names", "")
	}
	return b.Bytes(), nil
}

// appendEnvelope appends an envelope.
func appendEnvelope(b []byte, flags byte, message []byte) []byte {
	b = append(b, flags)
	b = binary.BigEndian.AppendUint32(b, uint32(len(message)))
	return append(b, message...)
}

// decode decodes a message. Unknown members are ignored, as everywhere in Connect.
func decode(raw []byte, v any) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil
	}
	if err := json.Unmarshal(raw, v); err != nil {
		if t, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && t.Field != "" {
			return invalid(t.Field, t.Field+" must not be "+t.Value, "")
		}
		return invalid("", "the message is not valid JSON", "")
	}
	return nil
}

// readBody reads a request's body of at most most bytes.
func readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	var b []byte
	err := withinBodyTime(w, func() (err error) {
		b, err = io.ReadAll(http.MaxBytesReader(w, r.Body, most))
		return err
	})
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, sandbar.Errorf(sandbar.TooLarge, "the body is larger than %d bytes, which is all that is read", most)
	}
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Invalid, "the body could not be read to its end: %w", err)
	}
	return b, nil
}

// withinBodyTime bounds the time of reading a body. If it was not read to its end, the listener
// will try to read the rest, so the deadline stays.
func withinBodyTime(w http.ResponseWriter, read func() error) error {
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Now().Add(bodyTime))
	if err := read(); err != nil {
		return err
	}
	control.SetReadDeadline(time.Time{})
	return nil
}

// unary serves a unary call: decode the request, call, encode the response.
func unary[Q, A any](w http.ResponseWriter, r *http.Request, call func(Q) (A, error)) {
	var q Q
	raw, err := readBody(w, r, maxMessage)
	if err == nil {
		err = decode(raw, &q)
	}
	var a A
	if err == nil {
		a, err = call(q)
	}
	if err != nil {
		failUnary(w, err)
		return
	}
	answer(w, http.StatusOK, a)
}

// connectError is an error of a Connect call.
type connectError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func failUnary(w http.ResponseWriter, err error) {
	code, status := connectOf(sandbar.CodeOf(err))
	answer(w, status, connectError{code, messageOf(err)})
}

// dataLost is the error of a stream that has missed something. Its Connect code is data_loss.
type dataLost struct{ message string }

// Error implements error.
func (e dataLost) Error() string { return e.message }

// stream is the response of a streaming call. Its methods may be called concurrently.
type stream struct {
	w         http.ResponseWriter
	control   *http.ResponseController
	stall     time.Duration
	keepalive time.Duration

	mu    sync.Mutex
	buf   []byte
	timer *time.Timer
	over  bool
	err   error // of writing; nothing is written any more
}

// serveStream serves a call with one request and a stream of responses, unless it is refused. The
// error of call is the error in the end envelope.
func serveStream[Q any](l *life, w http.ResponseWriter, r *http.Request, refusal error, call func(Q, *stream) error) {
	w.Header().Set("Content-Type", "application/connect+json")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	s := &stream{w: w, control: http.NewResponseController(w), stall: l.server.options.StallTimeout, keepalive: keepaliveOf(r)}
	var q Q
	var raw []byte
	err := withinBodyTime(w, func() (err error) {
		raw, err = readEnvelope(r.Body, maxMessage)
		return err
	})
	if err == io.EOF {
		err = invalid("", "the request has no envelope", "")
	}
	if err == nil {
		err = decode(raw, &q)
	}
	if err == nil {
		err = refusal
	}
	if err == nil {
		err = call(q, s)
	}
	s.end(err)
}

// keepaliveOf returns the longest silence that a client wants.
func keepaliveOf(r *http.Request) time.Duration {
	n, err := strconv.Atoi(r.Header.Get("Keepalive-Ping-Interval"))
	if err != nil || n < 1 || n > 3600 {
		return defaultKeepalive
	}
	return time.Duration(n) * time.Second
}

// timeoutOf returns the time limit of a stream; 0 for none.
func timeoutOf(r *http.Request) (time.Duration, error) {
	text := r.Header.Get("Connect-Timeout-Ms")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || len(text) > 10 {
		return 0, invalid("Connect-Timeout-Ms", "Connect-Timeout-Ms must be a number of at most 10 digits", "")
	}
	return time.Duration(n) * time.Millisecond, nil
}

// pings makes the stream send ping after each silence.
func (s *stream) pings(ping any) {
	b, err := json.Marshal(ping)
	if err != nil {
		return // a bug: these types can be encoded
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(s.keepalive, func() { s.write(0, b, true) })
}

// send sends one message. An error means that the client is gone or does not read.
func (s *stream) send(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.write(0, b, true)
}

// sendLast sends the last message, which goes out together with the end of the stream.
func (s *stream) sendLast(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.write(0, b, false)
}

// write writes an envelope. Without flush it goes out with the next one, or at the end of the call.
func (s *stream) write(flags byte, message []byte, flush bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return s.err
	}
	if s.timer != nil {
		s.timer.Reset(s.keepalive)
	}
	s.buf = appendEnvelope(s.buf[:0], flags, message)
	s.control.SetWriteDeadline(time.Now().Add(s.stall))
	_, err := s.w.Write(s.buf)
	if err == nil && flush {
		err = s.control.Flush()
	}
	if s.err = err; err != nil {
		s.over = true
	}
	return err
}

// end sends the end envelope. The server flushes it with the end of the response, within the
// deadline of this write; the next request on the connection has its own.
func (s *stream) end(err error) {
	var e struct {
		Error *connectError `json:"error,omitempty"`
	}
	if lost, ok := errors.AsType[dataLost](err); ok {
		e.Error = &connectError{"data_loss", lost.message}
	} else if err != nil {
		code, _ := connectOf(sandbar.CodeOf(err))
		e.Error = &connectError{code, messageOf(err)}
	}
	b, _ := json.Marshal(e) // two strings can be encoded
	s.write(flagEnd, b, false)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.timer != nil {
		s.timer.Stop()
	}
}
