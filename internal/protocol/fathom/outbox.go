package fathom

import (
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of a connection's outgoing queue: runFrames of at most about 6 × maxData bytes each, and
// replyFrames of a few kilobytes. They bound its memory if the client does not read.
const (
	// maxData is the most bytes of output in one message. Escaped, they can be six times as many.
	maxData = 128 << 10
	// runFrames is the number of queued messages of executions.
	runFrames = 4
	// replyFrames is the number of queued answers to requests. While all are in use, no further
	// request is read.
	replyFrames = 64
)

// frame is an outgoing message, or a flush mark.
type frame struct {
	b    []byte
	home chan *frame   // the supply to which it returns after the write
	mark chan struct{} // closed when everything before it has been written
}

// outbox is the outgoing side of a connection. One goroutine writes; all messages wait in one queue
// and leave in the order of send. There are two supplies of frames, one for executions and one for
// answers: a client that blocks its programs by not reading their output can still cancel them.
// Goroutines that wait for a frame get one in the order of their requests, so executions share the
// connection evenly.
//
// Frames are reused, so streaming allocates nothing.
type outbox struct {
	queue   chan *frame // has room for every frame and one mark
	runs    chan *frame // free frames of executions
	replies chan *frame // free frames of answers

	gone chan struct{} // closed when nothing can be written any more
	stop sync.Once

	flushing sync.Mutex // held while a mark is queued

	// busy is the start of the write in progress, in nanoseconds since start; 0 if there is none.
	busy  atomic.Int64
	start time.Time
}

func newOutbox() *outbox {
	o := &outbox{
		queue:   make(chan *frame, runFrames+replyFrames+1),
		runs:    make(chan *frame, runFrames),
		replies: make(chan *frame, replyFrames),
		gone:    make(chan struct{}),
		start:   time.Now(),
	}
	for range runFrames {
		o.runs <- &frame{home: o.runs}
	}
	for range replyFrames {
		o.replies <- &frame{home: o.replies}
	}
	return o
}

// take waits for a free frame of a supply. It returns nil if the connection is gone. The caller
// must send the frame or give it back.
func (o *outbox) take(supply chan *frame) *frame {
	select {
	case f := <-supply:
		return f
	case <-o.gone:
		return nil
	}
}

// send queues a frame. It never blocks, because the queue has room for every frame.
func (o *outbox) send(f *frame) { o.queue <- f }

// release returns an unused frame.
func (o *outbox) release(f *frame) { f.home <- f }

// flush waits until everything sent before has been written, or the connection is gone.
func (o *outbox) flush() {
	o.flushing.Lock()
	defer o.flushing.Unlock()
	select {
	case <-o.gone: // a mark that is never taken would occupy the queue for ever
		return
	default:
	}
	f := &frame{mark: make(chan struct{})}
	o.queue <- f
	select {
	case <-f.mark:
	case <-o.gone:
	}
}

// close ends the outbox and drops queued frames.
func (o *outbox) close() { o.stop.Do(func() { close(o.gone) }) }

// stalled reports whether the write in progress has taken longer than d.
func (o *outbox) stalled(d time.Duration) bool {
	began := o.busy.Load()
	return began != 0 && time.Since(o.start)-time.Duration(began) > d
}

// run writes queued frames until the outbox is closed or a write fails, and then closes it. If a
// write takes longer than timeout, it calls abort, which must make the write fail.
func (o *outbox) run(write func([]byte) error, timeout time.Duration, abort func()) error {
	defer o.close()
	watchdog := time.AfterFunc(timeout, abort)
	watchdog.Stop()
	for {
		select {
		case <-o.gone:
			return nil
		case f := <-o.queue:
			if f.mark != nil {
				close(f.mark)
				continue
			}
			o.busy.Store(max(1, int64(time.Since(o.start))))
			watchdog.Reset(timeout)
			err := write(f.b)
			watchdog.Stop()
			o.busy.Store(0)
			if err != nil {
				return err
			}
			o.release(f)
		}
	}
}
