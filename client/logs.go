package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// Line is a line of a process's log, without its line end.
type Line struct {
	Time   string `json:"timestamp"` // RFC 3339
	Stream string `json:"stream"`    // "stdout" or "stderr"
	Data   string `json:"data"`
	// Partial: the line continues in the next Line of the stream.
	Partial bool `json:"partial"`
	// Lost, if not 0: this is not a line; this number of the stream's lines is no longer kept.
	Lost int `json:"-"`
}

const (
	maxEvent     = 16 << 20 // bytes of one event
	retries      = 8        // consecutive failures without an event between them
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
)

// errLogEnd marks a complete log.
var errLogEnd = errors.New("the end of the log")

// Logs delivers the log of a background process: the kept lines and, with follow, new lines until
// the process ends. It reconnects after a broken connection without loss or repetition. An error of
// fn ends Logs and is returned.
func (c *Client) Logs(ctx context.Context, id, process string, follow bool, fn func(Line) error) error {
	l := &logReader{c: c, id: id, process: process, follow: follow, fn: fn}
	pause, failures := firstPause, 0
	for {
		before := l.last
		err := l.read(ctx)
		switch {
		case errors.Is(err, errLogEnd):
			return nil
		case l.final || ctx.Err() != nil:
			return err
		case l.last != before:
			pause, failures = firstPause, 0
		}
		if failures++; failures > retries {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return sandbar.Errorf(sandbar.Canceled, "cancelled: %w", context.Cause(ctx))
		}
		pause = min(2*pause, longestPause)
	}
}

// logReader reads one log.
type logReader struct {
	c           *Client
	id, process string
	follow      bool
	fn          func(Line) error
	last        string // the id of the last event
	final       bool   // the last error is not a connection error
}

// read reads from one connection. The error is never nil.
func (l *logReader) read(ctx context.Context) error {
	query := url.Values{"id": {l.process}}
	if !l.follow {
		query.Set("follow", "false")
	}
	r, err := l.c.request(ctx, http.MethodGet, path(l.id, "executor", "process_logs_streaming"), query, nil)
	if err != nil {
		return err
	}
	if l.last != "" {
		r.Header.Set("Last-Event-ID", l.last)
	}
	resp, err := l.c.do(r)
	if err != nil {
		code := sandbar.CodeOf(err)
		l.final = code != sandbar.Unavailable && code != sandbar.Exhausted
		return err
	}
	defer resp.Body.Close()
	s := newEvents(resp.Body)
	for {
		e, err := s.next()
		if err != nil {
			return l.c.unreachable(ctx, err)
		}
		if err := l.take(e); err != nil {
			l.final = true
			return err
		}
		if e.id != "" {
			l.last = e.id
		}
	}
}

// take handles one event.
func (l *logReader) take(e event) error {
	switch e.name {
	case "log":
		var line Line
		if err := json.Unmarshal(e.data, &line); err != nil {
			return l.c.badAnswer(err)
		}
		return l.fn(line)
	case "gap":
		var gap struct {
			Lost int
			Of   string
		}
		if err := json.Unmarshal(e.data, &gap); err != nil {
			return l.c.badAnswer(err)
		}
		return l.fn(Line{Stream: gap.Of, Lost: gap.Lost})
	case "complete":
		return errLogEnd
	case "error":
		var failed struct{ Error string }
		if err := json.Unmarshal(e.data, &failed); err != nil {
			return l.c.badAnswer(err)
		}
		return &sandbar.Error{Code: sandbar.NotFound, Message: failed.Error}
	}
	return nil // a later version may send other events
}

// event is one event of a stream (HTML, "Server-sent events").
type event struct {
	name, id string
	data     []byte
}

// events reads a stream of events. It supports only the format that daemons send: lines that end
// with a line feed.
type events struct{ r *bufio.Reader }

func newEvents(r io.Reader) *events { return &events{bufio.NewReaderSize(r, 64<<10)} }

var errLarge = errors.New("an event is larger than any daemon sends")

// next reads one event. An incomplete event is an error, also at io.EOF.
func (s *events) next() (event, error) {
	var e event
	some := false
	for size := 0; ; {
		line, err := s.line(maxEvent - size)
		if err != nil {
			return event{}, err
		}
		size += len(line)
		if len(line) == 0 {
			if some {
				return e, nil
			}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "event":
			e.name, some = string(value), true
		case "id":
			e.id, some = string(value), true
		case "data":
			e.data, some = append(e.data, value...), true
		}
	}
}

// line reads a line of at most max bytes, without its line end.
func (s *events) line(max int) ([]byte, error) {
	var whole []byte
	for {
		part, err := s.r.ReadSlice('\n')
		if len(whole)+len(part) > max {
			return nil, errLarge
		}
		switch err {
		case nil:
			return append(whole, part[:len(part)-1]...), nil
		case bufio.ErrBufferFull:
			whole = append(whole, part...)
		default:
			return nil, err
		}
	}
}
