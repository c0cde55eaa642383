package executor

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// streamBuffer is how much of a stream waits while as much is being sent. A
// program that prints more is held back.
const streamBuffer = 128 << 10

// heartbeat is a comment: clients pass over it, and know that we are there.
const heartbeat = ": heartbeat\n\n"

// beginEvents makes an answer a stream of Server-Sent Events.
func beginEvents(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("Connection", "keep-alive")
	h.Set("X-Accel-Buffering", "no") // a proxy in between must not wait for more
	w.WriteHeader(http.StatusOK)
}

// events is the link of a stream: the out of an answer that also ends when the
// client has gone. stop releases it.
func (s *Server) events(w http.ResponseWriter, r *http.Request) (o *out, stop func() bool) {
	o = &out{ResponseWriter: w, link: newLink(w, r.Context()), stall: s.options.Stall}
	return o, context.AfterFunc(r.Context(), o.cut)
}

// send writes and sends b.
func (o *out) send(b []byte) error {
	if _, err := o.Write(b); err != nil {
		return err
	}
	return o.Flush()
}

// stream is a stream of events that a program's output is pushed into. What it
// holds is bounded: whoever adds waits until there is room. Only one goroutine
// adds at a time.
type stream struct {
	more chan struct{} // holds a token when there may be something to send
	room chan struct{} // holds a token when there may be room
	dead chan struct{} // closed when nothing will be sent any more

	mu     sync.Mutex
	front  []byte // to be sent next
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

// awaitRoom waits, with mu held, until there is room or nothing will be sent
// any more.
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

// end says that nothing more will be added.
func (s *stream) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	signal(s.more)
}

// fail says that nothing more will be sent.
func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
		close(s.dead)
	}
}

// take exchanges what is to be sent for an empty buffer.
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

// serve sends what is added until the end of the stream, or of the client's
// patience, or of ctx, and then takes nothing more. It sends as soon as there
// is something; what comes in the meantime goes together.
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
