package engine

import (
	"context"
	"sync"

	"github.com/sandbar-dev/sandbar"
)

// ring keeps the last bytes of a stream, max at most, and their offsets. It grows as it fills.
type ring struct {
	max    int
	buf    []byte // the byte at offset o is at index o % len(buf)
	end    int64  // the offset after the last byte
	length int    // number of kept bytes
}

// start is the offset of the first kept byte.
func (r *ring) start() int64 { return r.end - int64(r.length) }

func (r *ring) write(p []byte) {
	if skip := len(p) - r.max; skip > 0 {
		p = p[skip:]
		r.end += int64(skip)
		r.length = 0
	}
	r.grow(r.length + len(p))
	for len(p) > 0 {
		n := copy(r.buf[r.end%int64(len(r.buf)):], p)
		p = p[n:]
		r.end += int64(n)
		r.length = min(r.length+n, len(r.buf))
	}
}

// grow enlarges buf to at least need bytes, up to max, and keeps its content.
func (r *ring) grow(need int) {
	if need <= len(r.buf) || len(r.buf) == r.max {
		return
	}
	old := *r
	r.buf = make([]byte, min(r.max, max(need, 2*len(old.buf), 4<<10)))
	for at := old.start(); at < old.end; {
		n := copy(r.buf[at%int64(len(r.buf)):], old.span(at))
		at += int64(n)
	}
}

// span returns the kept bytes from offset at to the end of buf at most.
func (r *ring) span(at int64) []byte {
	i := at % int64(len(r.buf))
	n := min(r.end-at, int64(len(r.buf))-i)
	return r.buf[i : i+n]
}

// read copies kept bytes into p. It starts at offset from, or at the first kept byte if that is
// later. It returns the offset and the number of the copied bytes.
func (r *ring) read(from int64, p []byte) (at int64, n int) {
	at = max(from, r.start())
	for next := at; next < r.end && n < len(p); {
		c := copy(p[n:], r.span(next))
		n += c
		next += int64(c)
	}
	return at, n
}

// replay keeps the output of one process for any number of followers. As a Sink it never blocks and
// never fails.
type replay struct {
	mu      sync.Mutex
	streams [3]ring       // indexed by sandbar.Stream
	ended   bool          // no more output will come
	changed chan struct{} // made by a waiting follower; closed and set to nil by notify
}

func newReplay(keep int) *replay {
	r := &replay{}
	r.streams[sandbar.Stdout].max = keep
	r.streams[sandbar.Stderr].max = keep
	return r
}

// Started implements Sink.
func (r *replay) Started() {}

// Output implements Sink. It keeps a chunk and wakes the followers.
func (r *replay) Output(c sandbar.Chunk) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.streams[c.Stream].write(c.Data)
	r.notify()
	return nil
}

// end marks the end of the output and wakes the followers.
func (r *replay) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	r.notify()
}

func (r *replay) notify() {
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// next copies kept output at the offsets into buf, from stream first if it has any. It returns the
// chunk. If there is none yet, it returns a channel that closes on new output; at the end it
// returns neither.
func (r *replay) next(at *[3]int64, first sandbar.Stream, buf []byte) (c sandbar.Chunk, more <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range []sandbar.Stream{first, other(first)} {
		if from, n := r.streams[s].read(at[s], buf); n > 0 {
			at[s] = from + int64(n)
			return sandbar.Chunk{Stream: s, Offset: from, Data: buf[:n]}, nil
		}
	}
	if r.ended {
		return sandbar.Chunk{}, nil
	}
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	return sandbar.Chunk{}, r.changed
}

func other(s sandbar.Stream) sandbar.Stream {
	if s == sandbar.Stdout {
		return sandbar.Stderr
	}
	return sandbar.Stdout
}

// followChunk is the largest size of one chunk to a follower and of its buffer, in bytes.
const followChunk = 32 << 10

// follow delivers output from the given offsets, alternating between the streams. Each follower has
// its own buffer, so it never blocks the process.
func (r *replay) follow(ctx context.Context, from Offsets, fn func(sandbar.Chunk) error) error {
	at := [3]int64{sandbar.Stdout: from.Stdout, sandbar.Stderr: from.Stderr}
	buf := make([]byte, followChunk)
	turn := sandbar.Stdout
	for {
		if ctx.Err() != nil {
			return sandbar.Errorf(sandbar.Canceled, "following was cancelled: %w", context.Cause(ctx))
		}
		c, more := r.next(&at, turn, buf)
		switch {
		case len(c.Data) > 0:
			turn = other(c.Stream)
			if err := fn(c); err != nil {
				return err
			}
		case more == nil:
			return nil
		default:
			select {
			case <-more:
			case <-ctx.Done():
			}
		}
	}
}
