package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
)

// maxFileEvent is the most bytes of an event: a path of 4095 bytes, each escaped, and an error.
const maxFileEvent = 64 << 10

// Watch is a watch of a sandbox's files. The caller must close it.
type Watch struct {
	c    *Client
	ctx  context.Context
	body io.ReadCloser
	in   *bufio.Scanner
}

// Watch watches a directory of a sandbox, and with recursive all directories below it. See
// sandbar.FileWatcher for its limits and errors. The watch ends with ctx. When Watch returns, no
// later change is missed.
func (c *Client) Watch(ctx context.Context, id, dir string, recursive bool) (*Watch, error) {
	query := url.Values{"path": {dir}, "recursive": {strconv.FormatBool(recursive)}}
	r, err := c.request(ctx, http.MethodGet, path(id, "watch"), query, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.do(r)
	if err != nil {
		return nil, err
	}
	w := &Watch{c: c, ctx: ctx, body: resp.Body, in: bufio.NewScanner(resp.Body)}
	w.in.Buffer(nil, maxFileEvent)
	return w, nil
}

// Next waits for the next event. io.EOF: the directory itself was removed or renamed. Unavailable:
// the connection is broken; watch again, and list the files.
func (w *Watch) Next() (sandbar.FileEvent, error) {
	if !w.in.Scan() {
		if err := w.in.Err(); err != nil {
			return sandbar.FileEvent{}, w.c.unreachable(w.ctx, err)
		}
		return sandbar.FileEvent{}, io.EOF
	}
	var e wire.FileEvent
	switch err := json.Unmarshal(w.in.Bytes(), &e); {
	case err != nil:
		return sandbar.FileEvent{}, w.c.badAnswer(err)
	case e.Error != nil:
		return sandbar.FileEvent{}, wire.Error{Error: *e.Error}.Err()
	case e.Op == "":
		return sandbar.FileEvent{}, w.c.badAnswer(errors.New("an event without a kind"))
	}
	return sandbar.FileEvent{Op: e.Op, Path: e.Path}, nil
}

// Close ends the watch, and a Next in progress.
func (w *Watch) Close() error { return w.body.Close() }
