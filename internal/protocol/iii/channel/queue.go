package channel

import (
	"context"
	"io"
	"sync"
)

// message is one frame.
type message struct {
	text bool
	data []byte
}

// queue connects one writer and one reader.
type queue struct {
	most int           // messages
	room chan struct{} // wakes the writer
	data chan struct{} // wakes the reader

	mu    sync.Mutex
	msgs  []message
	bytes int
	end   error // set once: io.EOF or ErrAborted
	gone  bool  // the reader has left
}

func newQueue(most int) *queue {
	return &queue{most: most, room: make(chan struct{}, 1), data: make(chan struct{}, 1)}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// put waits for room and adds a message. Errors: ErrReaderGone, ErrAborted after an abort, or
// ctx's.
func (q *queue) put(ctx context.Context, m message) error {
	for {
		done, err := q.tryPut(m)
		if done {
			return err
		}
		select {
		case <-q.room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (q *queue) tryPut(m message) (done bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.gone:
		return true, ErrReaderGone
	case q.end != nil:
		return true, ErrAborted
	case len(q.msgs) > 0 && (len(q.msgs) >= q.most || q.bytes+len(m.data) > maxQueued):
		return false, nil
	}
	q.msgs = append(q.msgs, m)
	q.bytes += len(m.data)
	wake(q.data)
	return true, nil
}

// take waits for a message. After the last one it returns the stream's end.
func (q *queue) take(ctx context.Context) (message, error) {
	for {
		m, done, err := q.tryTake()
		if done {
			return m, err
		}
		select {
		case <-q.data:
		case <-ctx.Done():
			return message{}, ctx.Err()
		}
	}
}

func (q *queue) tryTake() (m message, done bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.msgs) == 0 {
		return m, q.end != nil, q.end
	}
	m = q.msgs[0]
	q.msgs[0] = message{}
	if q.msgs = q.msgs[1:]; len(q.msgs) == 0 {
		q.msgs = nil
	}
	q.bytes -= len(m.data)
	wake(q.room)
	return m, true, nil
}

// finish ends the stream. Only the first call has an effect.
func (q *queue) finish(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.end == nil {
		q.end = err
	}
	wake(q.data)
	wake(q.room)
}

// leave handles the end of the reader: it drops queued messages.
func (q *queue) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.gone, q.msgs, q.bytes = true, nil, 0
	wake(q.room)
}

// queueReader is a direct reading end.
type queueReader struct {
	q    *queue
	done func()
}

// Next implements Reader.
func (r *queueReader) Next(ctx context.Context) ([]byte, error) {
	for {
		m, err := r.q.take(ctx)
		if err != nil {
			return nil, err
		}
		if !m.text && len(m.data) > 0 {
			return m.data, nil
		}
	}
}

// Close implements Reader.
func (r *queueReader) Close() error {
	r.done()
	return nil
}

// sourceReader is a direct reading end of an offered channel.
type sourceReader struct {
	src  io.Reader
	buf  []byte
	done func()
}

// Next implements Reader. It ignores ctx, since reads of a file do not block.
func (r *sourceReader) Next(ctx context.Context) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if r.buf == nil {
		r.buf = make([]byte, piece)
	}
	n, err := io.ReadFull(r.src, r.buf)
	switch {
	case n > 0:
		return r.buf[:n], nil // an error is returned by the next call
	case err == io.EOF:
		return nil, io.EOF
	}
	return nil, ErrAborted
}

// Close implements Reader.
func (r *sourceReader) Close() error {
	r.done()
	return nil
}
