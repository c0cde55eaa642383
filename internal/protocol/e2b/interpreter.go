package e2b

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/text/strictjson"
)

const (
	// cellKeepalive is the longest silence of a cell.
	cellKeepalive = 5 * time.Second
	// maxCell bounds the body with a cell's code, in bytes. The engine bounds the code.
	maxCell = 8 << 20
)

// interpreterContext describes a context.
type interpreterContext struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Dir      string `json:"cwd"`
}

// serveInterpreter serves a request to the code interpreter. Whoever can name the sandbox may
// manage its contexts, because SDKs send no token there; running code needs the access token.
func (l *life) serveInterpreter(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var err error
	switch {
	case r.URL.Path == "/health" && r.Method == http.MethodGet:
		w.Header().Set("Content-Type", "text/plain")
		w.Write([]byte("OK"))
	case r.URL.Path == "/execute" && r.Method == http.MethodPost:
		if err = l.authorize(r); err == nil {
			err = l.execute(w, r)
		}
	case r.URL.Path == "/contexts" && r.Method == http.MethodPost:
		err = l.createContext(w, r)
	case r.URL.Path == "/contexts" && r.Method == http.MethodGet:
		all := []interpreterContext{}
		for _, c := range l.sandbox.Contexts() {
			all = append(all, describeContext(c))
		}
		answer(w, http.StatusOK, all)
	case parts[0] == "contexts" && len(parts) == 3 && parts[2] == "restart" && r.Method == http.MethodPost:
		var c *engine.Context
		if c, err = l.context(parts[1]); err == nil {
			if err = c.Restart(r.Context()); err == nil {
				answer(w, http.StatusOK, describeContext(c))
			}
		}
	case parts[0] == "contexts" && len(parts) == 2 && r.Method == http.MethodDelete:
		var c *engine.Context
		if c, err = l.context(parts[1]); err == nil {
			c.Remove()
			answer(w, http.StatusOK, none{})
		}
	default:
		err = pathNotFound(r)
	}
	if err != nil {
		fail(w, err)
	}
}

func describeContext(c *engine.Context) interpreterContext {
	i := c.Info()
	return interpreterContext{i.ID, i.Language, i.Dir}
}

func (l *life) context(id string) (*engine.Context, error) {
	c, err := l.sandbox.Context(id)
	if err != nil {
		return nil, &sandbar.Error{Code: sandbar.NotFound, Field: "context_id", Message: "Context " + sandbar.Quote(id, 40) + " not found", Err: err}
	}
	return c, nil
}

// languageOf returns the engine's name of a language.
func languageOf(name string) string {
	switch name = strings.ToLower(name); name {
	case "":
		return "python"
	case "js":
		return "javascript"
	case "ts":
		return "typescript"
	}
	return name
}

func (l *life) createContext(w http.ResponseWriter, r *http.Request) error {
	raw, err := readBody(w, r, maxBody)
	if err != nil {
		return err
	}
	var language, dir string
	if len(bytes.TrimSpace(raw)) > 0 {
		if err := strictjson.Object("the body", raw, strictjson.Text("language", &language), strictjson.Text("cwd", &dir)); err != nil {
			return err
		}
	}
	c, err := l.newContext(r.Context(), languageOf(language), dir)
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, describeContext(c))
	return nil
}

func (l *life) newContext(ctx context.Context, language, dir string) (*engine.Context, error) {
	dir, err := l.resolve(dir)
	if err != nil {
		return nil, err
	}
	return l.sandbox.CreateContext(ctx, engine.ContextSpec{Language: language, Dir: dir, Env: l.environment(nil)})
}

// defaultContext returns the context of cells of a language that name none.
func (l *life) defaultContext(ctx context.Context, language string) (*engine.Context, error) {
	l.starting.Lock()
	defer l.starting.Unlock()
	if c := l.defaults[language]; c != nil {
		if _, err := l.sandbox.Context(c.ID()); err == nil {
			return c, nil
		}
	}
	c, err := l.newContext(ctx, language, "")
	if err == nil {
		l.defaults[language] = c
	}
	return c, err
}

// execute runs a cell and streams its events. An error is one before the first event.
func (l *life) execute(w http.ResponseWriter, r *http.Request) error {
	raw, err := readBody(w, r, maxCell)
	if err != nil {
		return err
	}
	var code, id, language string
	var env map[string]string
	if err := strictjson.Object("the body", raw, strictjson.Text("code", &code), strictjson.Text("context_id", &id),
		strictjson.Text("language", &language), strictjson.Texts("env_vars", &env)); err != nil {
		return err
	}
	var c *engine.Context
	switch {
	case id != "" && language != "":
		return invalid("language", "only one of context_id or language can be provided", "")
	case id != "":
		c, err = l.context(id)
	default:
		c, err = l.defaultContext(r.Context(), languageOf(language))
	}
	if err != nil {
		return err
	}
	s := &cellStream{w: w, control: http.NewResponseController(w), stall: l.server.options.StallTimeout}
	defer s.close()
	end, err := c.Run(r.Context(), engine.Cell{Code: code, Env: env}, s)
	switch {
	case err != nil && !s.begun():
		return err
	case err != nil:
		s.Error(sandbar.CellError{Name: "SandboxError", Value: messageOf(err)})
	case end.Outcome == sandbar.TimedOut:
		s.Error(sandbar.CellError{Name: "TimeoutError", Value: "the cell reached its time limit and was interrupted"})
	case end.Outcome == sandbar.OutputLimit:
		s.Error(sandbar.CellError{Name: "OutputLimitError", Value: "the cell reached its output limit and was interrupted"})
	}
	s.send(endOfCell{"end_of_execution"}, false)
	return nil
}

// The lines of a cell's response.
type (
	cellCount struct {
		Type  string `json:"type"`
		Count int    `json:"execution_count"`
	}
	cellOutput struct {
		Type      string `json:"type"`
		Text      string `json:"text"`
		Timestamp int64  `json:"timestamp"` // nanoseconds since 1970
	}
	cellResult struct {
		Type       string                     `json:"type"`
		Text       string                     `json:"text,omitempty"`
		HTML       string                     `json:"html,omitempty"`
		Markdown   string                     `json:"markdown,omitempty"`
		SVG        string                     `json:"svg,omitempty"`
		PNG        []byte                     `json:"png,omitempty"`
		JPEG       []byte                     `json:"jpeg,omitempty"`
		PDF        []byte                     `json:"pdf,omitempty"`
		LaTeX      string                     `json:"latex,omitempty"`
		JSON       json.RawMessage            `json:"json,omitempty"`
		JavaScript string                     `json:"javascript,omitempty"`
		Data       json.RawMessage            `json:"data,omitempty"`
		Chart      json.RawMessage            `json:"chart,omitempty"`
		Extra      map[string]json.RawMessage `json:"extra,omitempty"`
		Main       bool                       `json:"is_main_result"`
	}
	cellError struct {
		Type      string `json:"type"`
		Name      string `json:"name"`
		Value     string `json:"value"`
		Traceback string `json:"traceback"`
	}
	endOfCell struct {
		Type string `json:"type"`
	}
)

// cellStream writes the events of a cell as lines of JSON. It implements engine.CellSink.
type cellStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
	tails   [3][]byte // the beginning of a character at the end of a stream's last piece

	mu     sync.Mutex // guards writing
	timer  *time.Timer
	closed bool
}

func (s *cellStream) begun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.timer != nil
}

// Started implements engine.CellSink. The response begins here.
func (s *cellStream) Started(count int) error {
	s.w.Header().Set("Content-Type", "application/x-ndjson")
	s.w.Header().Set("X-Accel-Buffering", "no")
	s.mu.Lock()
	s.timer = time.AfterFunc(cellKeepalive, func() { s.write(endOfCell{"keepalive"}) })
	s.mu.Unlock()
	return s.send(cellCount{"number_of_executions", count}, false) // goes out with the next event, or the keepalive
}

// Output implements engine.CellSink. A character that is cut is sent with its other part.
func (s *cellStream) Output(c sandbar.Chunk) error {
	data := append(s.tails[c.Stream], c.Data...)
	n := len(data) - incomplete(data)
	s.tails[c.Stream] = bytes.Clone(data[n:])
	return s.text(c.Stream, data[:n])
}

func (s *cellStream) text(of sandbar.Stream, text []byte) error {
	if len(text) == 0 {
		return nil
	}
	now := time.Now() // the client shows it
	return s.write(cellOutput{of.String(), string(text), now.UnixNano()})
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

// flush sends the rest of the outputs.
func (s *cellStream) flush() error {
	for _, of := range []sandbar.Stream{sandbar.Stdout, sandbar.Stderr} {
		tail := s.tails[of]
		s.tails[of] = nil
		if err := s.text(of, tail); err != nil {
			return err
		}
	}
	return nil
}

// Display implements engine.CellSink.
func (s *cellStream) Display(d sandbar.Display) error {
	return cmp.Or(s.flush(), s.write(cellResult{Type: "result", Text: unquoted(d.Text), HTML: d.HTML, Markdown: d.Markdown, SVG: d.SVG, PNG: d.PNG, JPEG: d.JPEG, PDF: d.PDF,
		LaTeX: d.LaTeX, JSON: d.JSON, JavaScript: d.JavaScript, Data: d.Data, Chart: d.Chart, Extra: d.Extra, Main: d.Main}))
}

// unquoted returns the text of a value. That of a string has no quotes in this protocol.
func unquoted(text string) string {
	if n := len(text); n >= 2 && (text[0] == '\'' || text[0] == '"') && text[n-1] == text[0] {
		return text[1 : n-1]
	}
	return text
}

// Error implements engine.CellSink.
func (s *cellStream) Error(e sandbar.CellError) error {
	return cmp.Or(s.flush(), s.write(cellError{"error", e.Name, e.Value, e.Traceback}))
}

// write writes one line and sends it.
func (s *cellStream) write(v any) error { return s.send(v, true) }

// send writes one line, in ASCII: some clients decode each piece of the response by itself. Without
// flush it goes out with the next one, or at the end of the response.
func (s *cellStream) send(v any, flush bool) error {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.timer.Reset(cellKeepalive)
	s.control.SetWriteDeadline(time.Now().Add(s.stall))
	if _, err := s.w.Write(ascii(line.Bytes())); err != nil || !flush {
		return err
	}
	return s.control.Flush()
}

// ascii escapes the characters of a JSON text that are not ASCII.
func ascii(text []byte) []byte {
	if !slices.ContainsFunc(text, func(b byte) bool { return b >= utf8.RuneSelf }) {
		return text
	}
	var out []byte
	for _, c := range string(text) {
		switch {
		case c < utf8.RuneSelf:
			out = append(out, byte(c))
		case c > 0xffff:
			a, b := utf16.EncodeRune(c)
			out = appendUnit(appendUnit(out, a), b)
		default:
			out = appendUnit(out, c)
		}
	}
	return out
}

func appendUnit(b []byte, unit rune) []byte {
	text := strconv.FormatInt(int64(unit), 16)
	return append(append(b, `\u0000`[:6-len(text)]...), text...)
}

// close ends the stream.
func (s *cellStream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop() // the deadline stays for the flush at the end of the response
	}
}
