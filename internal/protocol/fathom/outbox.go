package fathom

import (
	"sync"
	"sync/atomic"
	"time"
)

// Sizes of a connection's outgoing side. They bound its memory, whatever the
// client reads or does not read: runFrames of at most about 6 × maxData bytes
// each, and replyFrames of a few kilobytes.
const (
	// maxData is the most bytes of output in one message. Escaped, they are
	// at most six times as many.
	maxData = 128 << 10
	// runFrames is how many messages of executions may wait to be written.
	runFrames = 4
	// replyFrames is how many answers to requests may wait to be written;
	// while so many wait nothing more is read from the client.
	replyFrames = 64
)

// frame is one outgoing message, or none when it is a flush mark.
type frame struct {
	b    []byte
	home chan *frame   // where it goes when it has been written
	mark chan struct{} // closed when everything before has been written
}

// outbox is the outgoing side of a connection. One goroutine writes; what
// waits for it waits in one queue, so that messages leave in the order in which
// they were sent. There are two supplies of frames, one for executions and one
// for answers: a client that does not read the output of its programs, and so
// holds them back, can still cancel them. Whoever waits for a frame is served
// in the order of asking, so executions share the connection evenly.
//
// Frames are reused: streaming allocates nothing.
type outbox struct {
	queue   chan *frame // has room for every frame there is, and one mark
	runs    chan *frame // free frames of executions
	replies chan *frame // free frames of answers

	gone chan struct{} // closed when nothing can be written any more
	stop sync.Once

	flushing sync.Mutex // held while a mark is queued

	// busy is when the write that is under way began, as nanoseconds since
	// start; 0 when there is none.
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

// take waits for a free frame from one of the two supplies. It returns nil
// when the connection is gone. The frame must be sent or given back.
func (o *outbox) take(supply chan *frame) *frame {
	select {
	case f := <-supply:
		return f
	case <-o.gone:
		return nil
	}
}

// send queues a frame. It never blocks: every frame has its place.
func (o *outbox) send(f *frame) { o.queue <- f }

// giveBack returns a frame that is not needed after all.
func (o *outbox) giveBack(f *frame) { f.home <- f }

// flush waits until everything sent before has been written, or the connection
// is gone.
func (o *outbox) flush() {
	o.flushing.Lock()
	defer o.flushing.Unlock()
	select {
	case <-o.gone: // a mark that nobody takes would keep its place for ever
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

// close ends the outbox; frames that are still queued are dropped.
func (o *outbox) close() { o.stop.Do(func() { close(o.gone) }) }

// stalled reports whether a write has been under way for longer than d.
func (o *outbox) stalled(d time.Duration) bool {
	began := o.busy.Load()
	return began != 0 && time.Since(o.start)-time.Duration(began) > d
}

// run writes what is sent until the outbox is closed or a write fails, and
// then closes it. A write that takes longer than timeout is ended by calling
// abort, which must make it fail.
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
			o.giveBack(f)
		}
	}
}
