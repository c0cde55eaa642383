package kernel

import (
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/sandbar-dev/sandbar"
)

// Cell is one request to a kernel.
type Cell struct {
	Count int               `json:"count"` // the number of the execution, from 1
	Code  string            `json:"code"`
	Env   map[string]string `json:"env,omitempty"` // for this cell only
	// Strict: the code is plain code of the language, without additions such as !COMMAND.
	Strict bool `json:"strict,omitempty"`
}

// Handler receives what a cell sends, from one goroutine at a time. A Handler that blocks also
// blocks the cell.
type Handler interface {
	Output(s sandbar.Stream, p []byte) // p is valid during the call
	Display(d sandbar.Display, size int)
	Error(e sandbar.CellError)
}

// Conn is the host's side of the connection to one kernel. The driver, in its own goroutines, reads
// Stdin and writes to Stdout and Stderr. The caller calls Close when the kernel has ended.
type Conn struct {
	ready   chan struct{} // closed when the kernel can run cells
	in      *io.PipeReader
	out     *io.PipeWriter
	stdout  io.Writer
	stderr  io.Writer
	writing sync.Mutex // held while an output of the kernel is handled
	// marks are those of a shell, by stream; nil for a kernel that writes frames.
	marks [3]*marked

	mu      sync.Mutex
	handler Handler       // of the running cell; nil if none runs
	ended   chan struct{} // of the running cell; closed at its end
	isReady bool
	broken  error
	early   []byte // the beginning of the standard error
	missing int    // marks of the running cell
	status  int    // exit status of the running cell
}

// maxEarly bounds Conn.early, in bytes.
const maxEarly = 2 << 10

// NewConn returns the connection to a kernel that is started afterwards.
func (l Language) NewConn() *Conn {
	c := &Conn{ready: make(chan struct{})}
	c.in, c.out = io.Pipe()
	boot := l.boot
	if l.shell {
		boot += c.useMarks()
	} else {
		c.stdout, c.stderr = &decoder{frame: c.frame}, writer(c.keepEarly)
	}
	go c.out.Write([]byte(boot)) // ends at Close at the latest
	return c
}

// useMarks prepares a shell's connection. It returns the line that makes the shell ready.
func (c *Conn) useMarks() string {
	for _, s := range []sandbar.Stream{sandbar.Stdout, sandbar.Stderr} {
		c.marks[s] = &marked{output: func(p []byte) { c.output(s, p) }, found: c.mark}
	}
	c.stdout, c.stderr = c.marks[sandbar.Stdout], c.marks[sandbar.Stderr]
	return markLine(c.expect())
}

// expect makes the next marks end what runs, and returns their token. c.mu is held, or the kernel
// does not run yet.
func (c *Conn) expect() string {
	token := newToken()
	c.missing, c.status = 2, 0
	c.marks[sandbar.Stdout].expect(token)
	c.marks[sandbar.Stderr].expect(token)
	return token
}

// output handles output of a shell.
func (c *Conn) output(s sandbar.Stream, p []byte) {
	c.mu.Lock()
	h, known := c.handler, c.isReady
	c.mu.Unlock()
	switch {
	case h != nil:
		h.Output(s, p)
	case !known && s == sandbar.Stderr:
		c.keepEarly(p)
	}
}

// mark handles a mark of a shell. The second one is the end of a cell.
func (c *Conn) mark(status int) {
	c.mu.Lock()
	c.missing--
	c.status = max(c.status, status)
	last, known, h, ended := c.missing == 0, c.isReady, c.handler, c.ended
	if last {
		c.isReady, c.handler, c.ended = true, nil, nil
	}
	c.mu.Unlock()
	switch {
	case !last:
	case !known:
		close(c.ready)
	default:
		if c.status != 0 {
			h.Error(statusError(c.status))
		}
		close(ended)
	}
}

// writer is a function as an io.Writer that never fails.
type writer func(p []byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

// locked is a writer of one stream that excludes the other one.
type locked struct {
	c *Conn
	w io.Writer
}

func (l locked) Write(p []byte) (int, error) {
	l.c.writing.Lock()
	defer l.c.writing.Unlock()
	n, err := l.w.Write(p)
	if err != nil {
		l.c.mu.Lock()
		l.c.broken = err
		l.c.mu.Unlock()
	}
	return n, err
}

// Stdin is the kernel's standard input.
func (c *Conn) Stdin() io.Reader { return c.in }

// Stdout receives the kernel's standard output. A write fails if the kernel broke a rule.
func (c *Conn) Stdout() io.Writer { return locked{c, c.stdout} }

// Stderr receives the kernel's standard error. Before the kernel is ready, its beginning is kept
// for Early.
func (c *Conn) Stderr() io.Writer { return locked{c, c.stderr} }

func (c *Conn) keepEarly(p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.early = append(c.early, p[:min(len(p), maxEarly-len(c.early))]...)
}

// Early returns what an interpreter that could not start has printed.
func (c *Conn) Early() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.TrimSpace(strings.ToValidUTF8(string(c.early), "\ufffd"))
}

// Ready is closed when the kernel can run cells.
func (c *Conn) Ready() <-chan struct{} { return c.ready }

// Broken returns which rule the kernel broke, or nil.
func (c *Conn) Broken() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}

// Close releases the connection after the kernel's end.
func (c *Conn) Close() {
	c.in.Close()
	c.out.Close()
}

// Run sends a cell. The returned channel is closed at the cell's end, after the last call of h. It
// is never closed if the kernel ends before. At most one cell may run. Run does not block. Invalid:
// the language cannot have such code or environment.
func (c *Conn) Run(cell Cell, h Handler) (<-chan struct{}, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	request, err := c.request(cell)
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	c.mu.Lock()
	c.handler, c.ended = h, ended
	c.mu.Unlock()
	go c.out.Write(request) // ends at Close at the latest
	return ended, nil
}

// request encodes a cell.
func (c *Conn) request(cell Cell) ([]byte, error) {
	if c.marks[sandbar.Stdout] == nil {
		return appendRequest(nil, cell)
	}
	lines, err := shellCell(cell, c.expect())
	return []byte(lines), err
}

// frame handles a frame of the kernel.
func (c *Conn) frame(kind byte, data []byte) error {
	c.mu.Lock()
	h, ended, known := c.handler, c.ended, c.isReady
	c.mu.Unlock()
	switch {
	case kind == ready && known || kind == done && h == nil || kind != ready && !known:
		return errors.New("it sent frames in the wrong order")
	case kind == ready:
		c.mu.Lock()
		c.isReady = true
		c.mu.Unlock()
		close(c.ready)
	case h == nil: // between two cells
	case kind == stdout:
		h.Output(sandbar.Stdout, data)
	case kind == stderr:
		h.Output(sandbar.Stderr, data)
	case kind == result:
		d, err := decodeDisplay(data)
		if err != nil {
			return err
		}
		h.Display(d, len(data))
	case kind == failure:
		e, err := decodeError(data)
		if err != nil {
			return err
		}
		h.Error(e)
	case kind == done:
		c.mu.Lock()
		c.handler, c.ended = nil, nil
		c.mu.Unlock()
		close(ended)
	}
	return nil
}
