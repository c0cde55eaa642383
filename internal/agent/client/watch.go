package client

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strconv"
	"sync/atomic"
	"syscall"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// watchedFiles are files of an agent that can watch them.
type watchedFiles struct{ files }

// Watch watches a directory. See sandbar.FileWatcher.
func (f watchedFiles) Watch(ctx context.Context, path string, recursive bool) (sandbar.FileWatch, error) {
	if !validPath(path) {
		return nil, badPath("watch", path)
	}
	s := f.sandbox
	c := newChannels(s, 1)
	r := wire.Watch{Path: path, Recursive: recursive}
	resp, err := s.request(ctx, wire.TypeWatch, r.Append(nil), nil, &call{channels: c, undo: func(response) { c.closeAll() }})
	if err != nil {
		return nil, err
	}
	if resp.Failure != wire.OK {
		return nil, watchError(path, resp.Errno)
	}
	events := &chanReader{c: c, ch: channelOut}
	return &fileWatch{sandbox: s, path: path, channels: c, events: events, r: bufio.NewReader(events)}, nil
}

// watchError returns the error of a watch that could not begin.
func watchError(path string, n uint32) error {
	cause := errnoOf(n)
	if !errors.Is(cause, syscall.EMFILE) && !errors.Is(cause, syscall.ENOSPC) {
		return fileError("watch", path, n)
	}
	return &sandbar.Error{Code: sandbar.Exhausted, Field: "path", Err: cause,
		Message: "watch " + sandbar.Quote(path, 200) + ": at most " + strconv.Itoa(wire.MaxWatches) + " watches in a sandbox and " +
			strconv.Itoa(wire.MaxWatchedDirs) + " directories in a watch are possible, or fewer if the kernel's limits fs.inotify.max_user_instances and max_user_watches are lower",
		Fix: "close other watches, or watch a smaller directory"}
}

// fileWatch is a watch of the agent.
type fileWatch struct {
	sandbox  *Sandbox
	path     string
	channels *channels
	events   *chanReader
	r        *bufio.Reader
	closed   atomic.Bool
}

// Next returns the next event. The agent bounds paths, but a hostile one may send any text.
func (w *fileWatch) Next(ctx context.Context) (sandbar.FileEvent, error) {
	stop := context.AfterFunc(ctx, func() { w.Close() })
	e, err := wire.ReadFileEvent(w.r)
	stop()
	switch {
	case err == nil:
		return sandbar.FileEvent{Op: fileOps[e.Op], Path: e.Path}, nil
	case ctx.Err() != nil:
		return sandbar.FileEvent{}, sandbar.Errorf(sandbar.CodeOfContext(ctx), "watch %s: %w", sandbar.Quote(w.path, 200), ctx.Err())
	case w.closed.Load():
		return sandbar.FileEvent{}, sandbar.Errorf(sandbar.Canceled, "watch %s: closed", sandbar.Quote(w.path, 200))
	case w.sandbox.hasEnded():
		return sandbar.FileEvent{}, w.sandbox.gone()
	case err == io.EOF:
		return sandbar.FileEvent{}, err
	}
	return sandbar.FileEvent{}, w.sandbox.violated("watch " + sandbar.Quote(w.path, 200))
}

// fileOps are the kinds of events.
var fileOps = [...]sandbar.FileOp{
	wire.FileCreated: sandbar.FileCreated, wire.FileWritten: sandbar.FileWritten, wire.FileRemoved: sandbar.FileRemoved,
	wire.FileRenamed: sandbar.FileRenamed, wire.FileChmod: sandbar.FileChmod, wire.FileEventsLost: sandbar.FileEventsLost,
}

// Close ends the watch.
func (w *fileWatch) Close() error {
	w.closed.Store(true)
	w.channels.closeAll()
	return nil
}
