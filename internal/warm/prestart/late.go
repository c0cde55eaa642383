package prestart

import (
	"errors"
	"io"
	"sync"

	"github.com/sandbar-dev/sandbar/driver"
)

// maxHeld is how much of each output is kept that comes before there is anybody
// to take it: the warnings of an interpreter about its environment.
const maxHeld = 64 << 10

var errAbandoned = errors.New("nobody will take this output")

// late is the input and the outputs of a process whose other ends are known only
// after its start.
type late struct {
	waits     chan struct{} // closed when the mark has come, if there is to be one
	given     chan struct{} // closed when the ends are known
	abandoned chan struct{} // closed when there will be none
	once      sync.Once     // closes abandoned
	marked    int           // bytes of the mark
	in        input
	out, err  output
}

func newLate(mark string) *late {
	l := &late{waits: make(chan struct{}), given: make(chan struct{}), abandoned: make(chan struct{}), marked: len(mark)}
	l.in.l, l.out.l, l.err.l = l, l, l
	l.out.mark = mark
	return l
}

func (l *late) stdio() driver.Stdio {
	return driver.Stdio{Stdin: &l.in, Stdout: &l.out, Stderr: &l.err}
}

// give connects the ends: what is read begins with header.
func (l *late) give(header string, std driver.Stdio) {
	l.in.header, l.in.from = header, std.Stdin
	l.out.give(std.Stdout)
	l.err.give(std.Stderr)
	close(l.given)
}

// abandon ends what waits for the ends to be given.
func (l *late) abandon() { l.once.Do(func() { close(l.abandoned) }) }

// input is what the process reads.
type input struct {
	l      *late
	header string    // what is left of it; written before given is closed
	from   io.Reader // nil is an empty input
}

func (i *input) Read(p []byte) (int, error) {
	select {
	case <-i.l.given:
	default:
		select {
		case <-i.l.given:
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
	l    *late
	mark string // what has yet to come first, and is not the program's

	first sync.WaitGroup // the delivery of what was held
	mu    sync.Mutex
	given bool
	to    io.Writer // nil discards
	held  []byte
}

func (o *output) Write(p []byte) (int, error) {
	n := len(p)
	if o.mark != "" {
		m := min(len(o.mark), len(p))
		if string(p[:m]) != o.mark[:m] {
			return 0, errors.New("the process writes before it waits")
		}
		if o.mark, p = o.mark[m:], p[m:]; o.mark == "" {
			close(o.l.waits)
		}
	}
	if len(p) == 0 {
		return n, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.given {
		if len(o.held)+len(p) > maxHeld {
			return 0, errAbandoned
		}
		o.held = append(o.held, p...)
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
func (o *output) give(w io.Writer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.given, o.to = true, w
	if len(o.held) > 0 {
		// The writer may block, and it is not this caller's to wait.
		o.first.Go(func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			_ = o.flush() // a writer that fails tells the next Write again
		})
	}
}

// flush delivers what is held, with mu held.
func (o *output) flush() error {
	held := o.held
	o.held = nil
	if len(held) == 0 || o.to == nil {
		return nil
	}
	_, err := o.to.Write(held)
	return err
}
