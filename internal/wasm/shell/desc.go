package shell

import (
	"bytes"
	"context"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/sandbar-dev/sandbar/internal/wasm/memfs"
)

// handle is an open file, pipe or stream. Reads and writes end with the context.
type handle interface {
	read(ctx context.Context, p []byte) (int, error)
	write(ctx context.Context, p []byte) (int, error)
	close()
}

// desc is an open handle, shared by all duplicates of a descriptor in all processes. The last close
// closes the handle.
type desc struct {
	handle
	refs atomic.Int32
}

func newDesc(h handle) *desc {
	d := &desc{handle: h}
	d.refs.Store(1)
	return d
}

func (d *desc) dup() *desc {
	d.refs.Add(1)
	return d
}

func (d *desc) release() {
	if d.refs.Add(-1) == 0 {
		d.handle.close()
	}
}

// descs maps descriptor numbers of a process to open handles.
type descs map[int]*desc

// set makes d descriptor n and takes ownership of d.
func (t descs) set(n int, d *desc) {
	if old := t[n]; old != nil {
		old.release()
	}
	t[n] = d
}

// unset closes descriptor n.
func (t descs) unset(n int) {
	if old := t[n]; old != nil {
		old.release()
		delete(t, n)
	}
}

// clone duplicates all descriptors.
func (t descs) clone() descs {
	c := maps.Clone(t)
	for _, d := range c {
		d.dup()
	}
	return c
}

func (t descs) closeAll() {
	for _, n := range slices.Collect(maps.Keys(t)) {
		t.unset(n)
	}
}

// fileHandle is an open file of the file system.
type fileHandle struct{ *memfs.File }

func (h fileHandle) read(_ context.Context, p []byte) (int, error)  { return h.Read(p) }
func (h fileHandle) write(_ context.Context, p []byte) (int, error) { return h.Write(p) }
func (h fileHandle) close()                                         { _ = h.Close() }

// noHandle is /dev/null. It does not need a device in the file system.
type noHandle struct{}

func (noHandle) read(context.Context, []byte) (int, error)      { return 0, io.EOF }
func (noHandle) write(_ context.Context, p []byte) (int, error) { return len(p), nil }
func (noHandle) close()                                         {}

// inputHandle is a reader of the caller. Processes share it: what was read and not consumed is
// buffered. A Read in progress continues after its context has ended.
type inputHandle struct {
	r io.Reader

	mu      sync.Mutex
	buf     []byte
	err     error
	reading chan struct{} // closed when the Read in progress has returned
}

func (h *inputHandle) read(ctx context.Context, p []byte) (int, error) {
	for {
		h.mu.Lock()
		if len(h.buf) > 0 || h.err != nil || len(p) == 0 {
			n := copy(p, h.buf)
			h.buf = h.buf[n:]
			err := h.err
			h.mu.Unlock()
			if n > 0 || len(p) == 0 {
				return n, nil
			}
			return 0, err
		}
		if h.reading == nil {
			h.reading = make(chan struct{})
			go h.fill(h.reading)
		}
		reading := h.reading
		h.mu.Unlock()
		select {
		case <-reading:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

func (h *inputHandle) fill(done chan struct{}) {
	buf := make([]byte, 32<<10)
	n, err := h.r.Read(buf)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.buf, h.err, h.reading = buf[:n], err, nil
	close(done)
}

func (h *inputHandle) write(context.Context, []byte) (int, error) { return 0, syscall.EBADF }
func (h *inputHandle) close()                                     {}

// outputHandle is a writer of the caller. Calls of it are serialized. An error of it is treated as
// a closed pipe.
type outputHandle struct {
	w  io.Writer
	mu *sync.Mutex
}

func (h outputHandle) read(context.Context, []byte) (int, error) { return 0, syscall.EBADF }

func (h outputHandle) write(_ context.Context, p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, err := h.w.Write(p)
	if err != nil {
		return n, syscall.EPIPE
	}
	return n, nil
}

func (h outputHandle) close() {}

// bufferHandle collects the output of a command substitution.
type bufferHandle struct {
	max  int
	done chan struct{}

	mu  sync.Mutex
	buf bytes.Buffer
}

func (h *bufferHandle) read(context.Context, []byte) (int, error) { return 0, syscall.EBADF }

func (h *bufferHandle) write(_ context.Context, p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.buf.Len()+len(p) > h.max {
		return 0, syscall.ENOMEM
	}
	return h.buf.Write(p)
}

func (h *bufferHandle) close() { close(h.done) }

// textHandle is the content of a here-document.
type textHandle struct {
	mu   sync.Mutex
	text []byte
}

func (h *textHandle) read(_ context.Context, p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.text) == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	n := copy(p, h.text)
	h.text = h.text[n:]
	return n, nil
}

func (h *textHandle) write(context.Context, []byte) (int, error) { return 0, syscall.EBADF }
func (h *textHandle) close()                                     {}
