package engine

import (
	"io"
	"sync"
	"sync/atomic"

	"github.com/sandbar-dev/sandbar"
)

// maxChunk is the most bytes a Sink gets in one call.
const maxChunk = 128 << 10

// outlet stands between a driver, which writes two streams from two goroutines,
// and a Sink, which is called from one goroutine at a time. It counts, cuts at
// the cap to the byte, and holds the driver back while the Sink is busy; it
// keeps no bytes of its own, so a slow Sink costs no memory.
type limitedWriter struct {
	sink  Sink
	limit int64 // of both streams together; negative: none

	// turn is held by whoever calls the sink. It is a channel and not a mutex
	// because a sink may keep it for as long as it likes.
	sem        chan struct{}
	started    chan struct{} // closed when the sink has been told of the start
	startOnce  sync.Once     // closes open
	exceeded   chan struct{} // closed at the first byte beyond the limit
	sinkFailed chan struct{} // closed when the sink has failed
	calls      atomic.Int64  // begun and ended calls of the sink: odd during one

	// guarded by turn
	sent    [3]int64 // by sandbar.Stream
	dropped int64
	failure error // of the sink
	closed  bool
}

func newLimitedWriter(sink Sink, limit int64) *limitedWriter {
	return &limitedWriter{sink: sink, limit: limit,
		sem: make(chan struct{}, 1), started: make(chan struct{}),
		exceeded: make(chan struct{}), sinkFailed: make(chan struct{})}
}

// writer returns the driver's end of one stream.
func (o *limitedWriter) writer(s sandbar.Stream) io.Writer { return limitedStream{o, s} }

type limitedStream struct {
	o *limitedWriter
	s sandbar.Stream
}

func (w limitedStream) Write(p []byte) (n int, err error) {
	for n < len(p) {
		piece := p[n:min(len(p), n+maxChunk)]
		if err := w.o.deliver(w.s, piece); err != nil {
			return n, err
		}
		n += len(piece)
	}
	return n, nil
}

// start tells the sink that the program runs and lets output through.
func (o *limitedWriter) start() {
	o.sem <- struct{}{}
	if !o.closed {
		_ = o.call(func() error { o.sink.Started(); return nil })
	}
	<-o.sem
	o.startOnce.Do(func() { close(o.started) })
}

// deliver hands p to the sink up to the limit. What is beyond it, or comes
// after the sink has failed, is taken and thrown away, so that the program is
// not held up on its way to its end.
func (o *limitedWriter) deliver(s sandbar.Stream, p []byte) error {
	<-o.started
	o.sem <- struct{}{}
	defer func() { <-o.sem }()
	if o.closed {
		return io.ErrClosedPipe
	}
	if o.failure != nil {
		return nil
	}
	if p = o.cut(p); len(p) == 0 {
		return nil
	}
	c := sandbar.Chunk{Stream: s, Offset: o.sent[s], Data: p}
	switch o.call(func() error { return o.sink.Output(c) }) {
	case nil:
		o.sent[s] += int64(len(p))
	case ErrFull:
		o.exceed(int64(len(p)))
	}
	return nil
}

// cut returns the part of p that is within the limit and counts the rest.
func (o *limitedWriter) cut(p []byte) []byte {
	if o.limit < 0 {
		return p
	}
	room := o.limit - o.sent[sandbar.Stdout] - o.sent[sandbar.Stderr]
	if int64(len(p)) <= room {
		return p
	}
	o.exceed(int64(len(p)) - room)
	return p[:room]
}

// exceed counts n bytes beyond the limit; the first end the program.
func (o *limitedWriter) exceed(n int64) {
	if o.dropped == 0 {
		close(o.exceeded)
	}
	o.dropped += n
}

// call calls the sink and returns its error. The first failure is the last call.
func (o *limitedWriter) call(f func() error) error {
	o.calls.Add(1)
	defer o.calls.Add(1)
	err := catchPanic(f)
	if err != nil {
		o.failure = err
		if err != ErrFull {
			close(o.sinkFailed)
		}
	}
	return err
}

// counts are an outlet's final numbers.
type counts struct {
	stdout, stderr, dropped int64
	failure                 error
}

// close ends the outlet: once it has returned the sink is not called again. It
// waits for a call under way.
func (o *limitedWriter) close() counts {
	o.sem <- struct{}{}
	o.closed = true
	c := counts{o.sent[sandbar.Stdout], o.sent[sandbar.Stderr], o.dropped, o.failure}
	<-o.sem
	o.startOnce.Do(func() { close(o.started) })
	return c
}
