// Package wiretest plays golden transcripts of a protocol against a server, and compares its error
// tables with golden ones (see [Tables]).
//
// A transcript is a txtar file. Its introduction, which is required, says what the transcript
// tests. The sections are played in order:
//
//	-- setup --          at most once, first: the server's setup, in words that the test of the
//	                     protocol defines
//	-- client --         each line is a message, sent unchanged
//	-- server --         each line is the next message to be received
//	-- client NAME --    the same over a further connection, which is opened when
//	-- server NAME --    its name is first used
//
// Empty lines and lines that begin with "#" are ignored. Lines that begin with "@" are events of
// the transport, which defines them (see [WebSocket]), except for the pair "@unordered" and "@end"
// in a server section: messages between these may arrive in any order.
//
// Messages of a server section are JSON and are compared as JSON values: the order of fields and
// the escapes of strings do not matter; a missing or additional field does, and numbers must have
// the same notation. A string in an expected message may be a placeholder:
//
//	"$time"        a time in ISO 8601, in UTC, with three decimals and a Z
//	"$int"         a non-negative integer
//	"$any"         any value
//	"$like REGEXP" a string that the regular expression matches as a whole
//	"$$…"          the string "$…"
//
// Transcripts are written by hand from the protocol's specification. There is no way to record one,
// so no transcript can be a copy of a server's mistakes.
package wiretest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
)

// Conn is the client's end of a connection. Lines are messages, or begin with "@" and are events of
// the transport.
type Conn interface {
	// Send sends one line of a client section.
	Send(ctx context.Context, line string) error
	// Receive waits for the next message or event. The end of the connection is first an event, and
	// an error on the next call.
	Receive(ctx context.Context) (line string, err error)
	// Close closes the connection without a handshake.
	Close() error
}

// Dial opens a connection.
type Dial func(ctx context.Context) (Conn, error)

// Protocol describes a protocol to wiretest.
type Protocol struct {
	// Serve starts a server for one transcript and returns a Dial to it. setup is the text of the
	// setup section, or empty. The server must end in t.Cleanup.
	Serve func(t *testing.T, setup string) Dial
	// Split returns the field of an expected message whose string may arrive in several otherwise
	// equal messages: the data of a stream. Nil: no field.
	Split func(message map[string]any) (field string)
	// Rewrite changes the text of a transcript before it is played, for a server with other
	// programs than those of the transcript. It may return nil to skip the transcript. Nil: no
	// changes.
	Rewrite func(t *testing.T, name string, text []byte) []byte
	// Patience bounds the wait for one message. Default 20 s. It matters only for failing tests.
	Patience time.Duration
}

// Run plays every transcript that matches the glob pattern, each as a subtest.
func (p Protocol) Run(t *testing.T, pattern string) {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("no transcript matches %s (%v)", pattern, err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if p.Rewrite != nil {
				if data = p.Rewrite(t, filepath.Base(name), data); data == nil {
					return
				}
			}
			s, err := Parse(name, data)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Play(t.Context(), s, p.Serve(t, s.Setup)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Script is a parsed transcript.
type Script struct {
	Prose string
	Setup string
	steps []step
}

// step is one line, or the lines between @unordered and @end.
type step struct {
	conn   string // name of the connection, "" for the first
	send   bool
	lines  []string
	expect []template // of a server's step
	where  string     // file and section, for errors
}

// Parse parses a transcript. name is for errors.
func Parse(name string, data []byte) (Script, error) {
	archive := txtar.Parse(data)
	s := Script{Prose: strings.TrimSpace(string(archive.Comment))}
	if s.Prose == "" {
		return s, fmt.Errorf("%s: there is no introduction that says what the transcript tests", name)
	}
	for i, f := range archive.Files {
		side, conn, _ := strings.Cut(f.Name, " ")
		where := fmt.Sprintf("%s, section %d (%s)", name, i+1, f.Name)
		var err error
		switch {
		case f.Name == "setup" && i == 0:
			s.Setup = string(f.Data)
		case side == "client":
			s.clientSteps(where, conn, lines(f.Data))
		case side == "server":
			err = s.serverSteps(where, conn, lines(f.Data))
		default:
			err = fmt.Errorf("%s: a section is client or server, with or without a name, or first of all setup", where)
		}
		if err != nil {
			return s, err
		}
	}
	if len(s.steps) == 0 {
		return s, fmt.Errorf("%s: there is nothing to play", name)
	}
	return s, nil
}

func lines(data []byte) []string {
	var out []string
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out
}

func (s *Script) clientSteps(where, conn string, lines []string) {
	for _, line := range lines {
		s.steps = append(s.steps, step{conn: conn, send: true, lines: []string{line}, where: where})
	}
}

func (s *Script) serverSteps(where, conn string, lines []string) error {
	unordered := false
	for _, line := range lines {
		switch line {
		case "@unordered":
			if unordered {
				return fmt.Errorf("%s: @unordered within @unordered", where)
			}
			unordered = true
			s.steps = append(s.steps, step{conn: conn, where: where})
			continue
		case "@end":
			if !unordered {
				return fmt.Errorf("%s: @end without @unordered", where)
			}
			unordered = false
			continue
		}
		want, err := newTemplate(line)
		if err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		if !unordered {
			s.steps = append(s.steps, step{conn: conn, where: where})
		}
		last := &s.steps[len(s.steps)-1]
		last.lines = append(last.lines, line)
		last.expect = append(last.expect, want)
	}
	if unordered {
		return fmt.Errorf("%s: @unordered without @end", where)
	}
	return nil
}

// Play plays a transcript. The error says where it stopped, what was expected, what arrived, and
// everything before.
func (p Protocol) Play(ctx context.Context, s Script, dial Dial) error {
	if p.Patience == 0 {
		p.Patience = 20 * time.Second
	}
	g := &player{protocol: p, dial: dial, conns: map[string]Conn{}}
	defer g.close()
	for _, st := range s.steps {
		if err := g.step(ctx, st); err != nil {
			return fmt.Errorf("%s: %w\n\nthe conversation:\n%s", st.where, err, g.record.String())
		}
	}
	return nil
}

// player is one transcript being played.
type player struct {
	protocol Protocol
	dial     Dial
	conns    map[string]Conn
	record   strings.Builder
}

func (g *player) close() {
	for _, c := range g.conns {
		c.Close()
	}
}

func (g *player) conn(ctx context.Context, name string) (Conn, error) {
	if c, ok := g.conns[name]; ok {
		return c, nil
	}
	c, err := g.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("connection %q: %w", name, err)
	}
	g.conns[name] = c
	return c, nil
}

func (g *player) step(ctx context.Context, st step) error {
	ctx, cancel := context.WithTimeout(ctx, g.protocol.Patience)
	defer cancel()
	c, err := g.conn(ctx, st.conn)
	if err != nil {
		return err
	}
	if st.send {
		g.note(st.conn, "→", st.lines[0])
		return c.Send(ctx, st.lines[0])
	}
	return g.receive(ctx, c, st)
}

// receive receives messages until each expected one has arrived.
func (g *player) receive(ctx context.Context, c Conn, st step) error {
	pending := make([]*expectation, len(st.expect))
	for i, t := range st.expect {
		pending[i] = newExpectation(st.lines[i], t, g.protocol.Split)
	}
	for len(pending) > 0 {
		line, err := c.Receive(ctx)
		if err != nil {
			return fmt.Errorf("expected\n%sbut received nothing: %w", list(pending), err)
		}
		g.note(st.conn, "←", line)
		i := firstMatch(pending, line)
		if i < 0 {
			return fmt.Errorf("expected\n%sbut received\n  %s", list(pending), line)
		}
		if pending[i].done() {
			pending = append(pending[:i], pending[i+1:]...)
		}
	}
	return nil
}

func firstMatch(pending []*expectation, line string) int {
	for i, e := range pending {
		if e.take(line) {
			return i
		}
	}
	return -1
}

func list(pending []*expectation) string {
	var b strings.Builder
	for _, e := range pending {
		fmt.Fprintf(&b, "  %s\n", e.line)
		if e.field != "" {
			fmt.Fprintf(&b, "    (of its %s is still missing: %q)\n", e.field, e.rest)
		}
	}
	return b.String()
}

func (g *player) note(conn, arrow, line string) {
	const most = 2000
	if len(line) > most {
		line = line[:most] + "…"
	}
	fmt.Fprintf(&g.record, "%s %s %s\n", conn, arrow, line)
}
