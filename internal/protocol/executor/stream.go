package executor

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// streamBuffer bounds the queued part of a stream, in bytes, while as much is being sent. A program
// that prints more blocks.
const streamBuffer = 128 << 10

// heartbeat is a comment that keeps the connection alive; clients ignore it.
const heartbeat = ": heartbeat\n\n"

// beginEvents starts a response of Server-Sent Events.
func beginEvents(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("Connection", "keep-alive")
	h.Set("X-Accel-Buffering", "no") // proxies must not buffer
	w.WriteHeader(http.StatusOK)
}

// events returns the out of a stream, which also ends when the client leaves. stop releases it.
func (s *Server) events(w http.ResponseWriter, r *http.Request) (o *out, stop func() bool) {
	o = newOut(w, r.Context(), s.options.Stall)
	return o, context.AfterFunc(r.Context(), o.cut)
}

// send writes and flushes b.
func (o *out) send(b []byte) error {
	if _, err := o.Write(b); err != nil {
		return err
	}
	return o.Flush()
}

// stream is a stream of events with a bounded buffer: adding blocks until there is room. Only one
// goroutine adds at a time.
type stream struct {
	more chan struct{} // has a token if there may be something to send
	room chan struct{} // has a token if there may be room
	dead chan struct{} // closed when nothing will be sent any more

	mu     sync.Mutex
	front  []byte // next bytes to send
	within bool   // front ends within an event
	ended  bool   // nothing more will be added
	err    error  // why nothing will be sent any more
}

func newStream() *stream {
	return &stream{more: make(chan struct{}, 1), room: make(chan struct{}, 1), dead: make(chan struct{})}
}

// signal puts a token into c.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// awaitRoom waits, with mu held, until there is room or nothing will be sent any more.
func (s *stream) awaitRoom() error {
	for len(s.front) >= streamBuffer && s.err == nil {
		s.mu.Unlock()
		signal(s.more)
		select {
		case <-s.room:
		case <-s.dead:
		}
		s.mu.Lock()
	}
	return s.err
}

// end marks the end of the stream.
func (s *stream) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	signal(s.more)
}

// fail ends the sending with an error.
func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
		close(s.dead)
	}
}

// take swaps the queued bytes for an empty buffer.
func (s *stream) take(empty []byte) (full []byte, within, ended bool) {
	s.mu.Lock()
	full, s.front = s.front, empty[:0]
	within, ended = s.within, s.ended
	s.mu.Unlock()
	if len(full) > 0 {
		signal(s.room)
	}
	return full, within, ended
}

// serve sends queued events until the end of the stream, a stalled client, or the end of ctx, after
// which the stream accepts nothing more. It sends at once; events that arrive during a send are
// sent together.
func (s *stream) serve(ctx context.Context, o *out, beat time.Duration) (err error) {
	defer func() { s.fail(or(err, errEnded)) }()
	t := time.NewTimer(beat)
	defer t.Stop()
	var b []byte
	for {
		var within, ended bool
		if b, within, ended = s.take(b); len(b) > 0 {
			if err := o.send(b); err != nil {
				return err
			}
			t.Reset(beat)
			continue
		}
		if ended {
			return nil
		}
		select {
		case <-s.more:
		case <-t.C:
			t.Reset(beat)
			if !within {
				b = append(b, heartbeat...)
				if err := o.send(b); err != nil {
					return err
				}
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
