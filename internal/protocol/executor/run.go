package executor

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
)

// errEnded: the stream has ended and accepts nothing more.
var errEnded = errors.New("the stream has ended")

// errOutput ends a program that prints more than /run stores.
var errOutput = errors.New("more output than is kept")

// shell returns the shell command line of a command.
func (c command) shell() sandbar.Cmd {
	return sandbar.Cmd{Args: []string{"sh", "-c", c.cmd}, Env: c.env, Dir: c.cwd}
}

// limits returns the command's limits; zero means the sandbox's.
func (c command) limits() (sandbar.Limits, error) {
	if !c.timed {
		return sandbar.Limits{}, nil
	}
	const most = float64(math.MaxInt64 / time.Second)
	if c.timeout <= 0 || c.timeout > most {
		return sandbar.Limits{}, &sandbar.Error{Code: sandbar.Invalid, Field: "timeout",
			Message: "Invalid timeout: " + strconv.FormatFloat(c.timeout, 'g', -1, 64) + " (a number of seconds greater than 0)"}
	}
	// At least 1 ns, because zero would mean no timeout.
	return sandbar.Limits{Timeout: max(1, time.Duration(c.timeout*float64(time.Second)))}, nil
}

// readCommand decodes the body of a request that runs a command, and responds if that fails.
func (s *Server) readCommand(w http.ResponseWriter, r *http.Request, with extras) (c command, lim sandbar.Limits, ok bool) {
	ok = s.read(w, r, func(j *jsonReader) (err error) {
		c, err = readCommand(j, with)
		return err
	})
	if !ok {
		return c, lim, false
	}
	lim, err := c.limits()
	if err != nil {
		s.failure(w, r, http.StatusBadRequest, err)
	}
	return c, lim, err == nil
}

// badDir reports whether a program could not be started because its working directory is not a
// directory.
func (s *Server) badDir(ctx context.Context, c command, err error) bool {
	if c.cwd == "" {
		return false
	}
	switch sandbar.CodeOf(err) {
	case sandbar.NotFound, sandbar.Denied, sandbar.Invalid, sandbar.Conflict, sandbar.TooLarge:
	default:
		return false
	}
	// With "/." the kernel follows a link at the end and asks for a directory.
	info, err := s.sandbox.FS().Stat(ctx, c.cwd+"/.")
	switch sandbar.CodeOf(err) {
	case "":
		return !info.Mode.IsDir()
	case sandbar.NotFound, sandbar.Denied, sandbar.Invalid, sandbar.Conflict:
		return true
	}
	return false
}

// refuseDir responds to an invalid working directory.
func refuseDir(w http.ResponseWriter, c command) {
	answerText(w, http.StatusBadRequest, "Invalid working directory: "+clip(c.cwd, 4096))
}

// clip shortens a client's text for a response.
func clip(s string, most int) string {
	return string(cutText([]byte(s), most))
}

// run serves POST /run (docs/protocols.md, Executor: "Run Command").
func (s *Server) run(w http.ResponseWriter, r *http.Request) {
	c, lim, ok := s.readCommand(w, r, extras{timeout: true, encoding: true})
	if !ok {
		return
	}
	if c.encoding != "" && c.encoding != "utf-8" && c.encoding != "base64" {
		answerText(w, http.StatusBadRequest, "Invalid encoding: "+sandbar.Quote(c.encoding, 40)+` ("utf-8" or "base64")`)
		return
	}
	got := captured{most: s.options.MaxOutput, buffers: &s.buffers}
	defer got.free()
	res, err := s.sandbox.Exec(r.Context(), c.shell(), nil, lim, &got)
	switch {
	case err == nil:
		s.answerRun(w, c, &got, res, lim.Timeout)
	case s.badDir(r.Context(), c, err):
		refuseDir(w, c)
	case got.started:
		s.failure(w, r, http.StatusInternalServerError, err)
	default:
		s.failure(w, r, startStatusOf(sandbar.CodeOf(err)), err)
	}
}

// captured stores the output of a program for a single response.
type captured struct {
	most           int64 // bytes of both streams together
	buffers        *sync.Pool
	stdout, stderr blocks
	started, over  bool
}

var _ engine.Sink = (*captured)(nil)

// Started implements engine.Sink.
func (c *captured) Started() { c.started = true }

// Output implements engine.Sink.
func (c *captured) Output(chunk sandbar.Chunk) error {
	room := c.most - c.stdout.size - c.stderr.size
	data := chunk.Data
	if int64(len(data)) > room {
		data, c.over = data[:room], true
	}
	if chunk.Stream == sandbar.Stderr {
		c.stderr.add(data, c.buffers)
	} else {
		c.stdout.add(data, c.buffers)
	}
	if c.over {
		return errOutput
	}
	return nil
}

// free releases the memory.
func (c *captured) free() {
	c.stdout.free(c.buffers)
	c.stderr.free(c.buffers)
}

// blocks is a text in blocks of one size. Unlike a growing slice it stores each byte once, and its
// memory is reused for later requests.
type blocks struct {
	all  []*[bufferSize]byte // all full except the last
	size int64
}

func (b *blocks) add(p []byte, buffers *sync.Pool) {
	for len(p) > 0 {
		at := int(b.size % bufferSize)
		if at == 0 {
			b.all = append(b.all, buffers.Get().(*[bufferSize]byte))
		}
		n := copy(b.all[len(b.all)-1][at:], p)
		b.size += int64(n)
		p = p[n:]
	}
}

// reader reads the text.
func (b *blocks) reader() io.Reader { return &blockReader{of: b} }

type blockReader struct {
	of *blocks
	at int64
}

// Read implements io.Reader.
func (r *blockReader) Read(p []byte) (int, error) {
	left := r.of.size - r.at
	if left == 0 {
		return 0, io.EOF
	}
	start := r.at % bufferSize
	n := copy(p, r.of.all[r.at/bufferSize][start:min(bufferSize, start+left)])
	r.at += int64(n)
	return n, nil
}

func (b *blocks) free(buffers *sync.Pool) {
	for _, block := range b.all {
		buffers.Put(block)
	}
	*b = blocks{}
}

// answerRun responds to /run after the program has ended.
func (s *Server) answerRun(w http.ResponseWriter, c command, got *captured, res sandbar.Result, timeout time.Duration) {
	if got.over {
		res.Outcome = sandbar.OutputLimit
	}
	// The platform failed. Not 503: the program was started, and clients must not retry by
	// themselves.
	switch res.Outcome {
	case sandbar.Lost:
		answerText(w, http.StatusInternalServerError, endingOf(res, timeout).reason)
		return
	case sandbar.Cancelled:
		answerText(w, http.StatusInternalServerError, "the command was cancelled: its client has gone, or the sandbox is being stopped")
		return
	}
	e := endingOf(res, timeout)
	if res.Outcome == sandbar.OutputLimit {
		e.reason += " after " + strconv.FormatInt(got.stdout.size+got.stderr.size, 10) + " bytes; /run_streaming has no limit"
	}
	w.Header().Set("Content-Type", "application/json")
	b := newBatch(s.out(w))
	b.raw(`{"stdout":`)
	s.output(b, c.encoding, &got.stdout)
	b.raw(`,"stderr":`)
	s.output(b, c.encoding, &got.stderr)
	b.raw(`,"code":` + strconv.Itoa(e.code))
	if e.reason != "" {
		b.raw(`,"error":"` + e.reason + `"`)
	}
	if res.Outcome == sandbar.OutputLimit {
		b.raw(`,"truncated":true`)
	}
	if c.encoding == "base64" {
		b.raw(`,"encoding":"base64"`)
	}
	b.raw("}\n")
	b.flush()
}

// batch collects a response and writes it in large pieces.
type batch struct {
	w   io.Writer
	b   []byte
	err error
}

func newBatch(w io.Writer) *batch { return &batch{w: w} }

func (b *batch) raw(s string) { b.b = append(b.b, s...) }

// flush writes the collected bytes.
func (b *batch) flush() {
	if b.err == nil && len(b.b) > 0 {
		_, b.err = b.w.Write(b.b)
	}
	b.b = b.b[:0]
}

// text adds a part of the content of a JSON string. p ends between characters.
func (b *batch) text(p []byte) {
	for len(p) > 0 && b.err == nil {
		piece := cutText(p, bufferSize)
		p = p[len(piece):]
		b.b = appendText(b.b, piece)
		if len(b.b) >= bufferSize {
			b.flush()
		}
	}
}

// output adds a program's output as a JSON string.
func (s *Server) output(b *batch, encoding string, p *blocks) {
	b.raw(`"`)
	if encoding == "base64" {
		e := base64.NewEncoder(base64.StdEncoding, b)
		io.Copy(e, p.reader())
		e.Close()
	} else {
		_ = s.copyText(b, p.reader()) // reading memory does not fail
	}
	b.raw(`"`)
}

// Write adds p unchanged.
func (b *batch) Write(p []byte) (int, error) {
	b.b = append(b.b, p...)
	if len(b.b) >= bufferSize {
		b.flush()
	}
	return len(p), b.err
}
