package prestart

import (
	"errors"
	"io"
	"sync"

	"github.com/sandbar-dev/sandbar/driver"
)

// maxBuffer bounds the bytes of each output that are kept until connect. An interpreter may print
// warnings about its environment.
const maxBuffer = 64 << 10

var errFull = errors.New("the output before there is a program is too large")

// deferredStdio is the standard streams of a process whose reader and writers are known only after
// its start.
type deferredStdio struct {
	ready     chan struct{} // closed when the marker has been read, if there is one
	connected chan struct{} // closed by connect
	abandoned chan struct{} // closed by abandon
	once      sync.Once     // closes abandoned
	marker    int           // length of the marker in bytes
	in        input
	out, err  output
}

// newDeferredStdio makes streams that expect marker first in the standard output.
func newDeferredStdio(marker string) *deferredStdio {
	l := &deferredStdio{ready: make(chan struct{}), connected: make(chan struct{}), abandoned: make(chan struct{}), marker: len(marker)}
	l.in.l, l.out.l, l.err.l = l, l, l
	l.out.marker = marker
	return l
}

func (l *deferredStdio) stdio() driver.Stdio {
	return driver.Stdio{Stdin: &l.in, Stdout: &l.out, Stderr: &l.err}
}

// connect connects the streams to std. The input begins with header.
func (l *deferredStdio) connect(header string, std driver.Stdio) {
	l.in.header, l.in.from = header, std.Stdin
	l.out.connect(std.Stdout)
	l.err.connect(std.Stderr)
	close(l.connected)
}

// abandon ends the input if connect has not been called.
func (l *deferredStdio) abandon() { l.once.Do(func() { close(l.abandoned) }) }

// input is the standard input of the process.
type input struct {
	l      *deferredStdio
	header string    // not yet read; set before connected is closed
	from   io.Reader // nil is an empty input
}

func (i *input) Read(p []byte) (int, error) {
	select {
	case <-i.l.connected:
	default:
		select {
		case <-i.l.connected:
		case <-i.l.abandoned:
			return 0, io.EOF
		}
	}
	if i.header != "" {
		n := copy(p, i.header)
		i.header = i.header[n:]
		return n, nil
	}
	if i.from == nil {
		return 0, io.EOF
	}
	return i.from.Read(p)
}

// output is the standard output or error of the process.
type output struct {
	l      *deferredStdio
	marker string // the part of the marker that has not come yet

	flushing  sync.WaitGroup // the delivery of buffer by connect
	mu        sync.Mutex
	connected bool
	to        io.Writer // nil discards
	buffer    []byte
}

func (o *output) Write(p []byte) (int, error) {
	n := len(p)
	if o.marker != "" {
		m := min(len(o.marker), len(p))
		if string(p[:m]) != o.marker[:m] {
			return 0, errors.New("the process writes before it is ready")
		}
		if o.marker, p = o.marker[m:], p[m:]; o.marker == "" {
			close(o.l.ready)
		}
	}
	if len(p) == 0 {
		return n, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.connected {
		if len(o.buffer)+len(p) > maxBuffer {
			return 0, errFull
		}
		o.buffer = append(o.buffer, p...)
		return n, nil
	}
	if err := o.flush(); err != nil {
		return 0, err
	}
	if o.to == nil {
		return n, nil
	}
	if m, err := o.to.Write(p); err != nil {
		return n - len(p) + m, err
	}
	return n, nil
}

// connect sets the writer and delivers the buffer to it.
func (o *output) connect(w io.Writer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.connected, o.to = true, w
	if len(o.buffer) > 0 {
		// In a goroutine, because the writer may block.
		o.flushing.Go(func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			_ = o.flush() // a writer that fails returns the error to the next Write too
		})
	}
}

// flush delivers the buffer. The caller holds mu.
func (o *output) flush() error {
	buffer := o.buffer
	o.buffer = nil
	if len(buffer) == 0 || o.to == nil {
		return nil
	}
	_, err := o.to.Write(buffer)
	return err
}
