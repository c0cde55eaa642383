package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/sandbar-dev/sandbar"
)

const (
	maxEvent     = 16 << 20 // bytes of one event
	retries      = 8        // consecutive failures without an event between them
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
)

// stream is a stream of events that continues on another connection after a broken one.
type stream struct {
	c     *Client
	path  string
	query url.Values
	take  func(event) error // its error ends the stream
	last  string            // the id of the last event
	final bool              // the last error is not a connection error
}

// run reads until an error of take, a refusal, or several failed connections in sequence.
func (s *stream) run(ctx context.Context) error {
	pause, failures := firstPause, 0
	for {
		before := s.last
		err := s.read(ctx)
		switch {
		case s.final || ctx.Err() != nil:
			return err
		case s.last != before:
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

// read reads from one connection. The error is never nil.
func (s *stream) read(ctx context.Context) error {
	r, err := s.c.request(ctx, http.MethodGet, s.path, s.query, nil)
	if err != nil {
		return err
	}
	if s.last != "" {
		r.Header.Set("Last-Event-ID", s.last)
	}
	resp, err := s.c.do(r)
	if err != nil {
		code := sandbar.CodeOf(err)
		s.final = code != sandbar.Unavailable && code != sandbar.Exhausted
		return err
	}
	defer resp.Body.Close()
	in := newEvents(resp.Body)
	for {
		e, err := in.next()
		if err != nil {
			return s.c.unreachable(ctx, err)
		}
		if err := s.take(e); err != nil {
			s.final = true
			return err
		}
		if e.id != "" {
			s.last = e.id
		}
	}
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
