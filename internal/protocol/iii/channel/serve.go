package channel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// Path is the path of channels; the channel's id follows.
const Path = "/ws/channels/"

// ServeHTTP opens an end of a channel over a WebSocket: GET /ws/channels/{id}?key=K&dir=read|write.
// An unknown channel or a wrong key is 404, a missing parameter 400. An end that was already opened
// is upgraded and closed at once.
func (h *Hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, found := strings.CutPrefix(r.URL.Path, Path)
	key, dir := r.URL.Query().Get("key"), Direction(r.URL.Query().Get("dir"))
	switch {
	case !found || id == "" || strings.Contains(id, "/"):
		http.NotFound(w, r)
		return
	case key == "" || (dir != Read && dir != Write):
		http.Error(w, "a channel is opened with ?key=K&dir=read or ?key=K&dir=write", http.StatusBadRequest)
		return
	}
	if !h.enter() {
		http.Error(w, ErrClosed.Error(), http.StatusServiceUnavailable)
		return
	}
	defer h.serving.Done()
	s, err := h.claim(id, key, dir)
	if errors.Is(err, ErrUnknown) {
		http.Error(w, ErrUnknown.Error(), http.StatusNotFound)
		return
	}
	ws, uerr := websocket.Accept(w, r, &websocket.AcceptOptions{
		// The key in the URL authorizes the request, and a web page cannot know it.
		InsecureSkipVerify: true,
		CompressionMode:    websocket.CompressionDisabled,
	})
	switch {
	case uerr != nil && s != nil:
		h.giveUp(s, dir)
	case uerr != nil:
	case s == nil:
		ws.Close(websocket.StatusPolicyViolation, err.Error())
	case dir == Write:
		h.serveWriter(ws, s)
	default:
		h.serveReader(ws, s)
	}
}

// giveUp closes an end that was claimed and not used.
func (h *Hub) giveUp(s *stream, d Direction) {
	if s.src != nil {
		s.src.Close()
	}
	h.release(s, d, ErrAborted)
}

// serveWriter moves frames from a writer's socket to the queue. It does not read while the queue is
// full, which blocks the writer.
func (h *Hub) serveWriter(ws *websocket.Conn, s *stream) {
	defer ws.CloseNow()
	ws.SetReadLimit(maxMessage)
	err := receive(h.ctx, ws, func(m message) error { return s.q.put(h.ctx, m) })
	if errors.Is(err, ErrReaderGone) || errors.Is(err, ErrAborted) {
		ws.Close(websocket.StatusGoingAway, err.Error())
	}
	h.release(s, Write, ending(err))
}

// ending returns the end of a stream whose socket failed with err: io.EOF only after a Close frame,
// with any code and reason.
func ending(err error) error {
	if websocket.CloseStatus(err) == -1 {
		return ErrAborted
	}
	return io.EOF
}

// receive passes every frame of a socket to f until either fails. A Close frame is a
// websocket.CloseError.
func receive(ctx context.Context, ws *websocket.Conn, f func(message) error) error {
	for {
		kind, r, err := ws.Reader(ctx)
		if err != nil {
			return err
		}
		data, err := readMessage(r)
		if err != nil {
			return err
		}
		if err := f(message{text: kind == websocket.MessageText, data: data}); err != nil {
			return err
		}
	}
}

// readMessage reads one frame into new memory, because it is passed on.
func readMessage(r io.Reader) ([]byte, error) {
	b := make([]byte, 0, piece)
	for {
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF {
			if len(b) < piece/4 {
				// queued messages must not use more memory than they are counted for
				b = bytes.Clone(b)
			}
			return b, nil
		}
		if err != nil {
			return nil, err
		}
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
	}
}

// serveReader moves the queue, or the source, to a reader's socket. It reads the socket meanwhile,
// to detect its close.
func (h *Hub) serveReader(ws *websocket.Conn, s *stream) {
	ctx, cancel := context.WithCancel(h.ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		defer cancel()
		ws.SetReadLimit(maxMessage)
		for {
			_, r, err := ws.Reader(ctx)
			if err == nil {
				_, err = io.Copy(io.Discard, r)
			}
			if err != nil {
				return
			}
		}
	}()
	var err error
	if s.src != nil {
		err = sendSource(ctx, ws, s.src, h.opt.WriteTimeout)
	} else {
		err = h.sendQueue(ctx, ws, s.q)
	}
	h.hangUp(ws, err)
	cancel()
	<-watched
	h.giveUp(s, Read)
}

// sendQueue sends messages until the end of the stream, io.EOF.
func (h *Hub) sendQueue(ctx context.Context, ws *websocket.Conn, q *queue) error {
	for {
		m, err := q.take(ctx)
		if err != nil {
			return err
		}
		kind := websocket.MessageBinary
		if m.text {
			kind = websocket.MessageText
		}
		if err := write(ctx, ws, kind, m.data, h.opt.WriteTimeout); err != nil {
			return err
		}
	}
}

// sendSource sends a source in pieces until its end, io.EOF. A read error is reported in a side
// message.
func sendSource(ctx context.Context, ws *websocket.Conn, src io.Reader, timeout time.Duration) error {
	buf := make([]byte, piece)
	for {
		n, err := io.ReadFull(src, buf)
		if n > 0 {
			if err := write(ctx, ws, websocket.MessageBinary, buf[:n], timeout); err != nil {
				return err
			}
		}
		switch err {
		case nil:
		case io.EOF, io.ErrUnexpectedEOF:
			return io.EOF
		default:
			text, _ := json.Marshal(map[string]string{"error": "read from supervisor failed: " + err.Error()})
			if err := write(ctx, ws, websocket.MessageText, text, timeout); err != nil {
				return err
			}
			return ErrAborted
		}
	}
}

// write sends one frame. The end of ctx or of the timeout ends the connection.
func write(ctx context.Context, ws *websocket.Conn, kind websocket.MessageType, b []byte, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return ws.Write(ctx, kind, b)
}

// hangUp closes a socket with the stream's end. Clients take any close for the end; the status is
// informational.
func (h *Hub) hangUp(ws *websocket.Conn, err error) {
	switch {
	case errors.Is(err, io.EOF):
		ws.Close(websocket.StatusNormalClosure, "stream_complete")
	case errors.Is(err, ErrAborted):
		ws.Close(websocket.StatusInternalError, ErrAborted.Error())
	default:
		ws.CloseNow()
	}
}
