package prestart

import (
	"errors"
	"io"
	"sync"

	"github.com/sandbar-dev/sandbar/driver"
)

// maxHeld is how much of each output is kept that comes before there is anybody
// to take it: the warnings of an interpreter about its environment.
const maxBuffer = 64 << 10

var errAbandoned = errors.New("nobody will take this output")

// late is the input and the outputs of a process whose other ends are known only
// after its start.
type deferredStdio struct {
	ready     chan struct{} // closed when the mark has come, if there is to be one
	connected chan struct{} // closed when the ends are known
	abandoned chan struct{} // closed when there will be none
	once      sync.Once     // closes abandoned
	marker    int           // bytes of the mark
	in        input
	out, err  output
}

func newDeferredStdio(mark string) *deferredStdio {
	l := &deferredStdio{ready: make(chan struct{}), connected: make(chan struct{}), abandoned: make(chan struct{}), marker: len(mark)}
	l.in.l, l.out.l, l.err.l = l, l, l
	l.out.marker = mark
	return l
}

func (l *deferredStdio) stdio() driver.Stdio {
	return driver.Stdio{Stdin: &l.in, Stdout: &l.out, Stderr: &l.err}
}

// give connects the ends: what is read begins with header.
func (l *deferredStdio) connect(header string, std driver.Stdio) {
	l.in.header, l.in.from = header, std.Stdin
	l.out.connect(std.Stdout)
	l.err.connect(std.Stderr)
	close(l.connected)
}

// abandon ends what waits for the ends to be given.
func (l *deferredStdio) abandon() { l.once.Do(func() { close(l.abandoned) }) }

// input is what the process reads.
type input struct {
	l      *deferredStdio
	header string    // what is left of it; written before given is closed
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

// output is where the process writes.
type output struct {
	l      *deferredStdio
	marker string // what has yet to come first, and is not the program's

	flushing  sync.WaitGroup // the delivery of what was held
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
			return 0, errors.New("the process writes before it waits")
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
			return 0, errAbandoned
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

// give connects the output. What is held comes first.
func (o *output) connect(w io.Writer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.connected, o.to = true, w
	if len(o.buffer) > 0 {
		// The writer may block, and it is not this caller's to wait.
		o.flushing.Go(func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			_ = o.flush() // a writer that fails tells the next Write again
		})
	}
}

// flush delivers what is held, with mu held.
func (o *output) flush() error {
	held := o.buffer
	o.buffer = nil
	if len(held) == 0 || o.to == nil {
		return nil
	}
	_, err := o.to.Write(held)
	return err
}
