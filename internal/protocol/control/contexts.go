package control

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/text/strictjson"
)

// keepalive is the longest time between two events of a cell.
const keepalive = 15 * time.Second

// maxCellBody bounds the body with a cell's code, in bytes. The engine bounds the code.
const maxCellBody = 8 << 20

// serveContexts serves the contexts of a sandbox. rest is the path below: "", "{context}" or
// "{context}/{what}".
func (e *entry) serveContexts(w http.ResponseWriter, r *http.Request, rest string) {
	id, what, below := strings.Cut(rest, "/")
	var err error
	switch {
	case rest == "" && r.Method == http.MethodGet:
		all := wire.Contexts{Contexts: []wire.Context{}}
		for _, c := range e.sandbox.Contexts() {
			all.Contexts = append(all.Contexts, describeContext(c))
		}
		answer(w, http.StatusOK, all)
	case rest == "" && r.Method == http.MethodPost:
		err = e.createContext(w, r)
	case rest == "":
		notAllowed(w, r, "GET, POST")
	case !below && r.Method == http.MethodDelete:
		var c *engine.Context
		if c, err = e.sandbox.Context(id); err == nil {
			c.Remove()
			w.WriteHeader(http.StatusNoContent)
		}
	case !below:
		notAllowed(w, r, http.MethodDelete)
	case !slices.Contains(contextActions(), what):
		err = pathNotFound(r)
	case r.Method != http.MethodPost:
		notAllowed(w, r, http.MethodPost)
	default:
		err = e.useContext(w, r, id, what)
	}
	if err != nil {
		fail(w, err)
	}
}

// contextActions returns the actions on a context: the last part of their paths.
func contextActions() []string { return []string{"run", "interrupt", "restart"} }

func describeContext(c *engine.Context) wire.Context {
	i := c.Info()
	return wire.Context{ID: i.ID, Language: i.Language, Dir: i.Dir, Created: i.Created.UTC(), ExecutionCount: i.Count, Busy: i.Busy}
}

func (e *entry) createContext(w http.ResponseWriter, r *http.Request) error {
	raw, err := readBody(w, r)
	if err != nil {
		return err
	}
	x, err := decodeContext(raw)
	if err != nil {
		return err
	}
	c, err := e.sandbox.CreateContext(r.Context(), engine.ContextSpec{Language: x.Language, Dir: x.Dir, Env: x.Env})
	if err != nil {
		return err
	}
	answer(w, http.StatusCreated, describeContext(c))
	return nil
}

func decodeContext(raw []byte) (wire.CreateContext, error) {
	var x wire.CreateContext
	if len(bytes.TrimSpace(raw)) == 0 {
		return x, nil
	}
	return x, strictjson.Object(body, raw, strictjson.Text("language", &x.Language), strictjson.Text("dir", &x.Dir), strictjson.Texts("env", &x.Env))
}

func decodeCell(raw []byte) (wire.Cell, error) {
	var x wire.Cell
	return x, strictjson.Object(body, raw, strictjson.Text("code", &x.Code), strictjson.Texts("env", &x.Env),
		amount("timeout", "seconds", false, &x.Timeout), amount("output", "bytes", true, &x.Output))
}

// useContext serves an action on one context.
func (e *entry) useContext(w http.ResponseWriter, r *http.Request, id, what string) error {
	c, err := e.sandbox.Context(id)
	if err != nil {
		return err
	}
	raw, err := readSized(w, r, maxCellBody)
	if err != nil {
		return err
	}
	if what == "run" {
		x, err := decodeCell(raw)
		if err != nil {
			return err
		}
		return e.runCell(w, r, c, x)
	}
	if len(bytes.TrimSpace(raw)) > 0 {
		if err := strictjson.Object(body, raw); err != nil {
			return err
		}
	}
	if what == "restart" {
		err = c.Restart(r.Context())
	} else {
		err = c.Interrupt()
	}
	if err == nil {
		answer(w, http.StatusOK, describeContext(c))
	}
	return err
}

// runCell runs a cell and streams its events. An error is one before the first event.
func (e *entry) runCell(w http.ResponseWriter, r *http.Request, c *engine.Context, x wire.Cell) error {
	release, err := e.reserveConn()
	if err != nil {
		return err
	}
	defer release()
	s := &eventStream{w: w, control: http.NewResponseController(w), stall: e.server.options.StallTimeout}
	end, err := c.Run(r.Context(), engine.Cell{Code: x.Code, Env: x.Env, Timeout: x.Timeout.Duration(), Output: int64(x.Output)}, s)
	defer s.close()
	switch {
	case err != nil && !s.begun():
		return err
	case err != nil:
		detail := wire.ErrorOf(err).Error
		s.send(wire.Event{Type: wire.EventFailed, Failure: &detail})
	default:
		s.send(wire.Event{Type: wire.EventEnd, ExecutionCount: end.Count, End: &wire.End{Outcome: end.Outcome.String(), Failed: end.Failed, Lost: end.Lost,
			DurationMS: float64(end.Duration.Microseconds()) / 1000}})
	}
	return nil
}

// eventStream writes the events of a cell as lines of JSON. It implements engine.CellSink.
type eventStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
	tails   [3][]byte // the beginning of a character at the end of a stream's last piece

	mu     sync.Mutex // guards writing
	timer  *time.Timer
	closed bool
}

func (s *eventStream) begun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.timer != nil
}

// Started implements engine.CellSink. The response begins here.
func (s *eventStream) Started(count int) error {
	s.w.Header().Set("Content-Type", "application/x-ndjson; charset=utf-8")
	s.w.Header().Set("X-Accel-Buffering", "no")
	s.mu.Lock()
	s.timer = time.AfterFunc(keepalive, func() { s.write(wire.Event{Type: wire.EventKeepalive}) })
	s.mu.Unlock()
	return s.write(wire.Event{Type: wire.EventStarted, ExecutionCount: count})
}

// Output implements engine.CellSink. A character that is cut is sent with its other part.
func (s *eventStream) Output(c sandbar.Chunk) error {
	data := append(s.tails[c.Stream], c.Data...)
	n := len(data) - incomplete(data)
	s.tails[c.Stream] = bytes.Clone(data[n:])
	return s.sendText(c.Stream, data[:n])
}

func (s *eventStream) sendText(of sandbar.Stream, text []byte) error {
	if len(text) == 0 {
		return nil
	}
	e := wire.Event{Type: of.String()}
	e.Text = strings.ToValidUTF8(string(text), "\ufffd")
	return s.write(e)
}

// incomplete returns the number of bytes at the end of p that begin a character.
func incomplete(p []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		if b := p[len(p)-n:]; utf8.RuneStart(b[0]) {
			if utf8.FullRune(b) {
				return 0
			}
			return n
		}
	}
	return 0
}

// Display implements engine.CellSink.
func (s *eventStream) Display(d sandbar.Display) error {
	return s.send(wire.Event{Type: wire.EventResult, Display: d})
}

// Error implements engine.CellSink.
func (s *eventStream) Error(e sandbar.CellError) error {
	return s.send(wire.Event{Type: wire.EventError, CellError: e})
}

// send sends an event after the rest of the outputs.
func (s *eventStream) send(e wire.Event) error {
	for _, of := range []sandbar.Stream{sandbar.Stdout, sandbar.Stderr} {
		if err := s.sendText(of, s.tails[of]); err != nil {
			return err
		}
		s.tails[of] = nil
	}
	return s.write(e)
}

func (s *eventStream) write(e wire.Event) error {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false) // it makes HTML up to 6 times as large
	if err := encoder.Encode(e); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.timer.Reset(keepalive)
	s.control.SetWriteDeadline(time.Now().Add(s.stall))
	if _, err := s.w.Write(line.Bytes()); err != nil {
		return err
	}
	return s.control.Flush()
}

// close ends the stream.
func (s *eventStream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
		s.control.SetWriteDeadline(time.Time{})
	}
}
