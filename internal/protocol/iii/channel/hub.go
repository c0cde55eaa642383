package channel

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"
)

// Options are the operator's settings. NewHub replaces zero fields with the defaults given here.
type Options struct {
	// TTL is the time after which an unopened end expires. Default 5 min.
	TTL time.Duration
	// Max is the most open channels. Default 1024. Further offers replace the oldest unopened
	// offer.
	Max int
	// MaxHeld bounds the memory of all unopened offers, in bytes. Default 64 MiB. Beyond it the
	// oldest is dropped.
	MaxHeld int64
	// WriteTimeout bounds the write of one frame: a reader that does not read for that long counts
	// as gone. Default 5 min.
	WriteTimeout time.Duration
	// Logger receives structured logs, never contents or keys. Default: discards.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.TTL == 0 {
		o.TTL = 5 * time.Minute
	}
	if o.Max == 0 {
		o.Max = 1024
	}
	if o.MaxHeld == 0 {
		o.MaxHeld = 64 << 20
	}
	if o.WriteTimeout == 0 {
		o.WriteTimeout = 5 * time.Minute
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Hub has the channels of one server. Its methods may be called concurrently.
type Hub struct {
	opt     Options
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	serving sync.WaitGroup // sockets

	mu     sync.Mutex
	closed bool
	all    map[string]*stream
	offers []*stream // unopened, oldest first
	held   int64     // by offers
}

// NewHub returns a Hub. Close ends it.
func NewHub(o Options) *Hub {
	h := &Hub{opt: o.withDefaults(), all: map[string]*stream{}}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

// stream is one channel. Hub.mu guards its fields, except q.
type stream struct {
	id, key string
	q       *queue        // nil for an offer
	src     io.ReadCloser // of an offer
	held    int64
	expiry  *time.Timer

	writerTaken, readerTaken bool
	writerDone, readerDone   bool
}

// Create creates a channel with a queue of buffer messages, within MinBuffer and MaxBuffer; 0 is
// DefaultBuffer. Errors: ErrTooMany and ErrClosed.
func (h *Hub) Create(buffer int) (reader, writer Ref, err error) {
	if buffer == 0 {
		buffer = DefaultBuffer
	}
	s := &stream{q: newQueue(min(max(buffer, MinBuffer), MaxBuffer))}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.add(s); err != nil {
		return Ref{}, Ref{}, err
	}
	return Ref{s.key, s.id, Read}, Ref{s.key, s.id, Write}, nil
}

// Offer implements Ends. It reads from src after the reading end was opened.
func (h *Hub) Offer(_ context.Context, src io.ReadCloser, held int64) (Ref, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &stream{src: src, held: held, writerTaken: true, writerDone: true}
	for len(h.offers) > 0 && (len(h.all) >= h.opt.Max || h.held+held > h.opt.MaxHeld) {
		h.drop(h.offers[0])
	}
	if err := h.add(s); err != nil {
		src.Close()
		return Ref{}, err
	}
	h.offers = append(h.offers, s)
	h.held += held
	return Ref{s.key, s.id, Read}, nil
}

// add registers a channel. The caller holds mu.
func (h *Hub) add(s *stream) error {
	switch {
	case h.closed:
		return ErrClosed
	case len(h.all) >= h.opt.Max:
		return ErrTooMany
	}
	s.id, s.key = NewUUID(), NewUUID()
	h.all[s.id] = s
	s.expiry = time.AfterFunc(h.opt.TTL, func() { h.expire(s) })
	return nil
}

// expire drops a channel with an end that was not opened in time.
func (h *Hub) expire(s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !s.readerTaken || !s.writerTaken {
		h.drop(s)
	}
}

// drop removes a channel and wakes its ends. The caller holds mu. It may be called more than once.
func (h *Hub) drop(s *stream) {
	s.expiry.Stop()
	delete(h.all, s.id)
	if s.q != nil {
		s.q.finish(ErrAborted)
		s.q.leave()
		return
	}
	h.unlist(s)
	if !s.readerTaken { // otherwise the reader closes it
		s.readerTaken = true
		s.src.Close()
	}
}

// unlist removes an offer from the list of unopened ones. The caller holds mu.
func (h *Hub) unlist(s *stream) {
	for i, o := range h.offers {
		if o == s {
			h.offers = append(h.offers[:i], h.offers[i+1:]...)
			h.held -= s.held
			return
		}
	}
}

// claim opens an end. The caller must release it.
func (h *Hub) claim(id, key string, d Direction) (*stream, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, ok := h.all[id]
	if !ok || subtle.ConstantTimeCompare([]byte(key), []byte(s.key)) != 1 {
		return nil, ErrUnknown
	}
	taken := &s.readerTaken
	if d == Write {
		taken = &s.writerTaken
	}
	if *taken {
		return nil, ErrTaken
	}
	*taken = true
	if s.q == nil {
		h.unlist(s)
	}
	return s, nil
}

// release closes an end; err is the writer's result. A reader that leaves removes the channel.
func (h *Hub) release(s *stream, d Direction, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d == Write {
		s.writerDone = true
		s.q.finish(err)
	} else {
		s.readerDone = true
		if s.q != nil {
			s.q.leave()
		}
	}
	if s.readerDone {
		s.expiry.Stop()
		delete(h.all, s.id)
	}
}

// Reader implements Ends: it opens a reading end in this process.
func (h *Hub) Reader(_ context.Context, ref Ref) (Reader, error) {
	s, err := h.claim(ref.ChannelID, ref.AccessKey, Read)
	if err != nil {
		return nil, err
	}
	done := sync.OnceFunc(func() {
		if s.src != nil {
			s.src.Close()
		}
		h.release(s, Read, nil)
	})
	if s.src != nil {
		return &sourceReader{src: s.src, done: done}, nil
	}
	return &queueReader{s.q, done}, nil
}

// Len returns the number of channels.
func (h *Hub) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.all)
}

// Close cuts all channels off and waits until nothing of them is left.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	for _, s := range h.all {
		h.drop(s)
	}
	h.mu.Unlock()
	h.cancel()
	h.serving.Wait()
}

// enter counts a socket. It returns false during Close.
func (h *Hub) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.serving.Add(1)
	return true
}

// NewUUID returns a random UUID (version 4) in its usual form.
func NewUUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand crashes the process instead
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
