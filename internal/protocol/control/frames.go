package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/internal/protocol/ports"
)

// frames is a connection that carries the frames of a command.
type frames interface {
	// next reads one frame, like wire.Reader.
	next() (wire.Kind, []byte, error)
	// write writes one frame.
	write(k wire.Kind, data []byte) error
	// finish says that no frame follows. The client can still send.
	finish() error
	SetDeadline(time.Time) error
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
	io.Closer
}

// openFrames takes over the connection of a request for a command. On an error the response has
// been sent, or the client is gone.
func openFrames(w http.ResponseWriter, r *http.Request) (frames, error) {
	if wants(r, "websocket") {
		return newSocket(w, r)
	}
	conn, err := upgrade(w, wire.UpgradeExec)
	if err != nil {
		return nil, err
	}
	return &bareFrames{upgraded: conn, in: wire.NewReader(conn.in)}, nil
}

// bareFrames are frames one after another on an upgraded connection.
type bareFrames struct {
	*upgraded
	in  *wire.Reader
	buf []byte
}

func (f *bareFrames) next() (wire.Kind, []byte, error) { return f.in.Next() }

func (f *bareFrames) write(k wire.Kind, data []byte) error {
	f.buf = wire.AppendHeader(f.buf[:0], k, len(data))
	both := net.Buffers{f.buf, data}
	_, err := both.WriteTo(f.Conn)
	return err
}

func (f *bareFrames) finish() error { return closeWrite(f.Conn) }

// maxMessage is the largest message of a WebSocket, in bytes.
const maxMessage = 2 * wire.MaxFrame

// socket are frames in the messages of a WebSocket, for browsers. A binary message has a whole
// number of frames.
type socket struct {
	net.Conn // under the WebSocket: its deadlines apply to the WebSocket too
	ws       *websocket.Conn
	in       *wire.Reader
	buf      []byte
}

// newSocket accepts a WebSocket. A page of another origin is refused, also one of allowed_origins.
func newSocket(w http.ResponseWriter, r *http.Request) (frames, error) {
	if err := checkSocket(r); err != nil {
		fail(w, err)
		return nil, err
	}
	hj := &hijacker{ResponseWriter: w}
	ws, err := websocket.Accept(hj, r, &websocket.AcceptOptions{
		Subprotocols:       []string{wire.UpgradeExec},
		InsecureSkipVerify: true, // checkSocket has checked Origin
		CompressionMode:    websocket.CompressionDisabled,
	})
	if err != nil {
		return nil, err // Accept has sent a response
	}
	ws.SetReadLimit(maxMessage)
	return &socket{Conn: hj.conn, ws: ws, in: wire.NewReader(&messages{ws: ws})}, nil
}

// checkSocket returns nil for a request for a WebSocket that carries frames.
func checkSocket(r *http.Request) error {
	for _, origin := range r.Header.Values("Origin") {
		if u, err := url.Parse(origin); err != nil || !ports.SameHost(u.Host, r.Host) {
			return &sandbar.Error{Code: sandbar.Denied, Field: "Origin", Message: "a page of " + sandbar.Quote(origin, 100) + " may not open a terminal",
				Fix: "open it from a page of this daemon"}
		}
	}
	for _, v := range r.Header.Values("Sec-WebSocket-Protocol") {
		if slices.ContainsFunc(strings.Split(v, ","), func(p string) bool { return strings.TrimSpace(p) == wire.UpgradeExec }) {
			return nil
		}
	}
	return &sandbar.Error{Code: sandbar.Invalid, Field: "Sec-WebSocket-Protocol", Message: "the WebSocket has no subprotocol that this path serves",
		Fix: "open it with the subprotocol " + wire.UpgradeExec}
}

// hijacker is a ResponseWriter that records the connection under the WebSocket.
type hijacker struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack implements http.Hijacker.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	h.conn = conn
	return conn, rw, err
}

func (s *socket) next() (wire.Kind, []byte, error) {
	for {
		k, data, err := s.in.Next()
		if err != io.EOF { // between frames that is the end of a message
			return k, data, err
		}
	}
}

func (s *socket) write(k wire.Kind, data []byte) error {
	s.buf = append(wire.AppendHeader(s.buf[:0], k, len(data)), data...)
	return s.ws.Write(context.Background(), websocket.MessageBinary, s.buf)
}

// finish closes the WebSocket, and waits for the client's close frame for some seconds.
func (s *socket) finish() error { return s.ws.Close(websocket.StatusNormalClosure, "") }

// Close closes the connection at once.
func (s *socket) Close() error { return s.ws.CloseNow() }

// messages reads the messages of a WebSocket. Each ends with io.EOF, and the next read begins the
// next one. The end of the connection is another error.
type messages struct {
	ws    *websocket.Conn
	now   io.Reader // the current message; nil between two
	ended bool      // the current message has ended, which was not reported yet
}

var errText = errors.New("a message is text; it must be binary")

// Read implements io.Reader.
func (m *messages) Read(p []byte) (int, error) {
	if m.ended {
		m.ended = false
		return 0, io.EOF
	}
	if m.now == nil {
		kind, now, err := m.ws.Reader(context.Background())
		switch {
		case err != nil:
			return 0, fmt.Errorf("the WebSocket has ended: %w", err)
		case kind != websocket.MessageBinary:
			return 0, errText
		}
		m.now = now
	}
	n, err := m.now.Read(p)
	switch {
	case err == io.EOF:
		m.now = nil
		if n > 0 {
			m.ended = true
			err = nil
		}
	case err != nil:
		err = fmt.Errorf("a message is cut: %w", err)
	}
	return n, err
}
