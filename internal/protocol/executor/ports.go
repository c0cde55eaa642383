package executor

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// probeWait is how long a connection is kept open while no port is bound: health checks take an
// immediate close for a failure.
const probeWait = 100 * time.Millisecond

// dialWait bounds the connect to a port of the sandbox.
const dialWait = 10 * time.Second

// Bound returns the port to which connections are forwarded, false if there is none.
func (s *Server) Bound() (port int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.port, s.port != 0
}

// bindPort serves POST /bind_port (docs/protocols.md, Executor: "Bind Port").
func (s *Server) bindPort(w http.ResponseWriter, r *http.Request) {
	var text string
	ok := s.read(w, r, func(j *jsonReader) (err error) {
		text, err = readOne(j, "port")
		return err
	})
	if !ok {
		return
	}
	if text == "" {
		answerText(w, http.StatusBadRequest, "Port is required")
		return
	}
	port, ok := parsePort(text)
	if !ok {
		answerText(w, http.StatusBadRequest, "Invalid port: "+sandbar.Quote(text, 40)+" (a number from 1 to 65535)")
		return
	}
	if current := s.bind(port); current != 0 {
		answerJSON(w, http.StatusConflict, object(member{"success", false}, member{"error", "Port already bound"},
			member{"current_port", strconv.Itoa(current)}))
		return
	}
	answerJSON(w, http.StatusOK, object(member{"success", true}, member{"message", "Port binding configured"},
		member{"port", strconv.Itoa(port)}))
}

// parsePort parses a port in decimal digits.
func parsePort(text string) (int, bool) {
	n, err := strconv.ParseUint(text, 10, 16)
	return int(n), err == nil && n > 0
}

// bind binds a port, or returns the one that is already bound.
func (s *Server) bind(port int) (current int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.port == 0 {
		s.port = port
		return 0
	}
	return s.port
}

// unbindPort serves POST /unbind_port (docs/protocols.md, Executor: "Unbind Port"). It does not
// read the body. Open connections stay open.
func (s *Server) unbindPort(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	s.port = 0
	s.mu.Unlock()
	answerJSON(w, http.StatusOK, object(member{"success", true}, member{"message", "Port binding removed"}))
}

// ServeProxy accepts connections and forwards them to the currently bound port, raw bytes in both
// directions, until Close, which also closes l. If no port is bound, or nothing answers there, it
// closes them. It returns nil after Close, otherwise the listener's error.
func (s *Server) ServeProxy(l net.Listener) error {
	if !s.listen(l) {
		l.Close()
		return nil
	}
	defer s.unlisten(l)
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			s.accept(conn)
		case s.ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		default:
			// out of descriptors, or an aborted connection: the next Accept may succeed
			s.options.Logger.Warn("a connection could not be accepted", "error", err)
			select {
			case <-time.After(probeWait):
			case <-s.ctx.Done():
			}
		}
	}
}

func (s *Server) listen(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.busy.Add(1)
	s.listeners[l] = struct{}{}
	return true
}

func (s *Server) unlisten(l net.Listener) {
	l.Close()
	s.mu.Lock()
	delete(s.listeners, l)
	s.mu.Unlock()
	s.busy.Done()
}

// accept serves a connection in a goroutine, within MaxProxied.
func (s *Server) accept(conn net.Conn) {
	s.mu.Lock()
	full := s.closed || s.proxied >= s.options.MaxProxied
	if !full {
		s.proxied++
		s.busy.Add(1)
	}
	s.mu.Unlock()
	if full {
		conn.Close()
		return
	}
	go func() {
		defer s.busy.Done()
		s.proxy(conn)
		s.mu.Lock()
		s.proxied--
		s.mu.Unlock()
	}()
}

// proxy serves one connection to its end.
func (s *Server) proxy(conn net.Conn) {
	defer conn.Close()
	defer context.AfterFunc(s.ctx, func() { conn.Close() })()
	port, ok := s.Bound()
	if !ok {
		conn.SetReadDeadline(time.Now().Add(probeWait))
		conn.Read(make([]byte, 1))
		return
	}
	release := s.sandbox.Hold()
	defer release()
	ctx, cancel := context.WithTimeout(s.ctx, dialWait)
	inside, err := s.sandbox.DialPort(ctx, port)
	cancel()
	if err != nil {
		s.options.Logger.DebugContext(ctx, "a connection was not passed on", "sandbox", s.sandbox.ID(), "port", port, "code", sandbar.CodeOf(err))
		return
	}
	defer inside.Close()
	defer context.AfterFunc(s.ctx, func() { inside.Close() })()
	join(conn, inside)
}

// join copies in both directions. It passes on a half-close as such; an error ends both directions.
func join(a, b net.Conn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		oneWay(a, b)
	}()
	oneWay(b, a)
	<-done
}

// oneWay copies from src to dst. Between TCP connections it uses splice(2).
func oneWay(dst, src net.Conn) {
	_, err := io.Copy(dst, src)
	half, ok := dst.(interface{ CloseWrite() error })
	if err == nil && ok && half.CloseWrite() == nil {
		return
	}
	dst.Close()
	src.Close()
}
