package engine

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// maxChunk is the largest size of one call of Sink.Output, in bytes.
const maxChunk = 128 << 10

// limitedWriter connects a driver, which writes two streams from two goroutines, to a Sink, which
// is called from one goroutine at a time. It counts bytes and cuts the output exactly at the limit.
// A Sink that blocks also blocks the driver's writes. It has no buffer, so a slow Sink costs no
// memory.
type limitedWriter struct {
	sink  Sink
	limit int64 // of both streams together; negative: no limit
	timed bool  // first and last are recorded

	// sem is held during a call of the sink. It is a channel and not a mutex because a sink may
	// block for any time.
	sem        chan struct{}
	started    chan struct{} // closed after the sink's Started has returned
	startOnce  sync.Once     // closes started
	exceeded   chan struct{} // closed at the first byte beyond the limit
	sinkFailed chan struct{} // closed when the sink has failed
	calls      atomic.Int64  // started plus ended calls of the sink: odd during a call

	// Guarded by sem.
	sent    [3]int64 // bytes, indexed by sandbar.Stream
	dropped int64
	failure error // of the sink
	closed  bool
	// first is the time of the first output, before the sink's call, and last that of the last one,
	// after it; zero for none.
	first, last time.Time
}

func newLimitedWriter(sink Sink, limit int64) *limitedWriter {
	return &limitedWriter{sink: sink, limit: limit,
		sem: make(chan struct{}, 1), started: make(chan struct{}),
		exceeded: make(chan struct{}), sinkFailed: make(chan struct{})}
}

// writer returns the writer of one stream for the driver.
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

// start calls the sink's Started and lets output through.
func (o *limitedWriter) start() {
	o.sem <- struct{}{}
	if !o.closed {
		_ = o.call(func() error { o.sink.Started(); return nil })
	}
	<-o.sem
	o.startOnce.Do(func() { close(o.started) })
}

// deliver passes p to the sink up to the limit. It discards bytes beyond the limit or after a
// failure of the sink without an error, so that the program does not block while the engine ends
// it.
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
	if o.timed {
		if o.first.IsZero() {
			o.first = time.Now()
		}
		defer func() { o.last = time.Now() }()
	}
	switch o.call(func() error { return o.sink.Output(c) }) {
	case nil:
		o.sent[s] += int64(len(p))
	case ErrFull:
		o.exceed(int64(len(p)))
	}
	return nil
}

// cut returns the part of p within the limit and counts the rest.
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

// exceed counts n bytes beyond the limit. The first call closes exceeded.
func (o *limitedWriter) exceed(n int64) {
	if o.dropped == 0 {
		close(o.exceeded)
	}
	o.dropped += n
}

// call calls the sink and returns its error. After an error the sink is not called again.
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

// counts are the final counters of a limitedWriter.
type counts struct {
	stdout, stderr, dropped int64
	failure                 error
}

// close waits for a running call of the sink. After it returns the sink is not called again.
func (o *limitedWriter) close() counts {
	o.sem <- struct{}{}
	o.closed = true
	c := counts{o.sent[sandbar.Stdout], o.sent[sandbar.Stderr], o.dropped, o.failure}
	<-o.sem
	o.startOnce.Do(func() { close(o.started) })
	return c
}
