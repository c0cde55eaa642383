package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"

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

// errLogEnd marks a complete log.
var errLogEnd = errors.New("the end of the log")

// Logs delivers the log of a background process: the kept lines and, with follow, new lines until
// the process ends. It reconnects after a broken connection without loss or repetition. An error of
// fn ends Logs and is returned.
func (c *Client) Logs(ctx context.Context, id, process string, follow bool, fn func(Line) error) error {
	query := url.Values{"id": {process}}
	if !follow {
		query.Set("follow", "false")
	}
	l := &logReader{c: c, fn: fn}
	s := &stream{c: c, path: path(id, "executor", "process_logs_streaming"), query: query, take: l.take}
	if err := s.run(ctx); !errors.Is(err, errLogEnd) {
		return err
	}
	return nil
}

// logReader reads one log.
type logReader struct {
	c  *Client
	fn func(Line) error
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
