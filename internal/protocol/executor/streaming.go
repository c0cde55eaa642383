package executor

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
)

// maxLine is the longest line in one event of /run_streaming, in bytes. A longer one is sent in
// pieces.
const maxLine = 4 << 20

// runStreaming serves POST /run_streaming (docs/protocols.md, Executor: "Run Command (Streaming)").
func (s *Server) runStreaming(w http.ResponseWriter, r *http.Request) {
	c, lim, ok := s.readCommand(w, r, extras{timeout: true})
	if !ok {
		return
	}
	printer := newPrinter()
	p, err := s.sandbox.StartSink(r.Context(), c.shell(), nil, lim, printer)
	if err != nil && s.badDir(r.Context(), c, err) {
		refuseDir(w, c)
		return
	}
	o, stop := s.events(w, r)
	defer stop()
	beginEvents(w)
	if err != nil {
		o.send(event("error", object(member{"error", sandbar.AsError(err).Error()})))
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		// Not bounded: a cancelled program always ends.
		res, err := p.Wait(context.Background())
		printer.complete(res, err, lim.Timeout)
	}()
	// send the headers before the first output
	if err := o.Flush(); err != nil {
		printer.out.fail(err)
	}
	if err := printer.out.serve(r.Context(), o, s.options.Heartbeat); err != nil {
		s.options.Logger.DebugContext(r.Context(), "a stream was cut", "sandbox", s.sandbox.ID(), "process", p.ID())
		p.Cancel()
	}
	<-ended
}

// event encodes an event.
func event(name string, data []byte) []byte {
	b := append([]byte("event: "), name...)
	b = append(b, "\ndata: "...)
	return append(append(b, data...), "\n\n"...)
}

// printer is the engine's Sink of /run_streaming: it splits output into lines and adds them to a
// stream. It blocks if the client does not read, which blocks the program (back-pressure).
type printer struct {
	out   *stream
	lines [3]lines // by sandbar.Stream
	emits [3]func(line []byte, partial bool) error
}

var _ engine.Sink = (*printer)(nil)

func newPrinter() *printer {
	p := &printer{out: newStream()}
	for _, s := range []sandbar.Stream{sandbar.Stdout, sandbar.Stderr} {
		p.lines[s].most = maxLine
		head := "event: output\ndata: {\"stream\":\"" + s.String() + "\",\"data\":\""
		p.emits[s] = func(line []byte, partial bool) error { return p.emit(head, line, partial) }
	}
	return p
}

// Started implements engine.Sink.
func (*printer) Started() {}

// Output implements engine.Sink.
func (p *printer) Output(c sandbar.Chunk) error {
	p.out.mu.Lock()
	err := p.out.err
	if err == nil {
		err = p.lines[c.Stream].add(c.Data, p.emits[c.Stream])
	}
	some := len(p.out.front) > 0
	p.out.mu.Unlock()
	if some {
		signal(p.out.more)
	}
	return err
}

// emit adds one event, with the stream's mu held. It adds a long line in parts, as there is room.
func (p *printer) emit(head string, line []byte, partial bool) error {
	s := p.out
	if err := s.awaitRoom(); err != nil {
		return err
	}
	s.front = append(s.front, head...)
	for len(line) > bufferSize {
		piece := cutText(line, bufferSize)
		s.front = appendText(s.front, piece)
		line = line[len(piece):]
		s.within = true
		if err := s.awaitRoom(); err != nil {
			return err
		}
	}
	s.within = false
	s.front = appendText(s.front, line)
	if partial {
		s.front = append(s.front, "\",\"partial\":true}\n\n"...)
	} else {
		s.front = append(s.front, "\"}\n\n"...)
	}
	return nil
}

// complete adds the last lines and the final event of a program.
func (p *printer) complete(res sandbar.Result, failure error, timeout time.Duration) {
	p.out.mu.Lock()
	var err error
	for _, s := range []sandbar.Stream{sandbar.Stdout, sandbar.Stderr} {
		if err == nil {
			err = p.lines[s].finish(p.emits[s])
		}
	}
	if err == nil {
		p.out.front = append(p.out.front, event("complete", completion(res, failure, timeout))...)
	}
	p.out.mu.Unlock()
	p.out.end()
}

// completion returns the data of the event complete. If the program did not end by itself it has a
// member message, an extension, with the reason.
func completion(res sandbar.Result, failure error, timeout time.Duration) []byte {
	e := endingOf(res, timeout)
	if failure != nil {
		e = ending{code: -1, reason: sandbar.AsError(failure).Error()}
	}
	b := []byte(`{"code":` + strconv.Itoa(e.code) + `,"error":` + strconv.FormatBool(e.code != 0))
	if e.reason != "" && e.reason != nonZero {
		b = appendString(append(b, `,"message":`...), e.reason)
	}
	return append(b, '}')
}
