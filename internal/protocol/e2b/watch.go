package e2b

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"

	"github.com/sandbar-dev/sandbar"
)

const (
	// maxWatchers bounds the polled watchers of a sandbox, and maxEvents the events that wait in
	// one.
	maxWatchers = 64
	maxEvents   = 10_000
)

// The messages of watches.
type (
	watchRequest struct {
		Path      string `json:"path"`
		Recursive bool   `json:"recursive"`
		Entry     bool   `json:"includeEntry"`
	}
	fileEvent struct {
		Name  string     `json:"name"`
		Type  string     `json:"type"`
		Entry *fileEntry `json:"entry,omitempty"`
	}
	// watchEvent is one message of a stream. Exactly one member is set.
	watchEvent struct {
		Start     *none      `json:"start,omitempty"`
		File      *fileEvent `json:"filesystem,omitempty"`
		Keepalive *none      `json:"keepalive,omitempty"`
	}
	watcherRequest struct {
		ID string `json:"watcherId"`
	}
	watcherAnswer struct {
		ID string `json:"watcherId"`
	}
	eventsAnswer struct {
		Events []fileEvent `json:"events,omitempty"`
	}
)

// watchFiles begins a watch.
func (l *life) watchFiles(ctx context.Context, q watchRequest) (*watch, error) {
	name, err := l.resolve(q.Path)
	if err != nil {
		return nil, err
	}
	w, ok := l.sandbox.FS().(sandbar.FileWatcher)
	if !ok {
		return nil, unsupported("", "the driver cannot watch files")
	}
	files, err := w.Watch(ctx, name, q.Recursive)
	if err != nil {
		return nil, explainPath(name, err)
	}
	return &watch{FileWatch: files, life: l, root: name, withEntry: q.Entry}, nil
}

// watch is a watch with its request.
type watch struct {
	sandbar.FileWatch
	life      *life
	root      string
	withEntry bool
	replacing bool // the last event was the renaming of a temporary file
	written   string
}

// next returns the next event.
//
// The platform writes a file under a temporary name and renames it. A client gets what E2B's envd
// reports, which writes in place: that the file was created and written.
func (w *watch) next(ctx context.Context) (fileEvent, error) {
	if name := w.written; name != "" {
		w.written = ""
		return w.event(ctx, name, "EVENT_TYPE_WRITE"), nil
	}
	for {
		e, err := w.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return fileEvent{}, &sandbar.Error{Code: sandbar.NotFound, Field: "path", Message: "the watched directory '" + printable(w.root) + "' was removed or renamed"}
		case err != nil && ctx.Err() != nil:
			return fileEvent{}, endOf(ctx)
		case err != nil:
			return fileEvent{}, err
		}
		kind := eventType(e.Op)
		replaced := w.replacing && e.Op == sandbar.FileCreated
		w.replacing = temporary(e.Path) && e.Op == sandbar.FileRenamed
		switch {
		case kind == "":
			return fileEvent{}, dataLost{"changes came faster than they were read, and some are missing: list the files, and watch again"}
		case e.Path == "" || temporary(e.Path): // the end of the directory itself follows
			continue
		case replaced:
			w.written = e.Path
		}
		return w.event(ctx, e.Path, kind), nil
	}
}

func eventType(op sandbar.FileOp) string {
	switch op {
	case sandbar.FileCreated:
		return "EVENT_TYPE_CREATE"
	case sandbar.FileWritten:
		return "EVENT_TYPE_WRITE"
	case sandbar.FileRemoved:
		return "EVENT_TYPE_REMOVE"
	case sandbar.FileRenamed:
		return "EVENT_TYPE_RENAME"
	case sandbar.FileChmod:
		return "EVENT_TYPE_CHMOD"
	}
	return ""
}

// temporary reports whether a name is one under which the platform writes a file.
func temporary(name string) bool {
	digits, ok := strings.CutPrefix(path.Base(name), ".sandbar-")
	return ok && len(digits) == 16 && strings.Trim(digits, "0123456789abcdef") == ""
}

func (w *watch) event(ctx context.Context, name, kind string) fileEvent {
	f := fileEvent{Name: name, Type: kind}
	if at := path.Join(w.root, name); w.withEntry {
		if i, err := w.life.sandbox.FS().Stat(ctx, at); err == nil {
			entry := w.life.describe(ctx, at, i)
			f.Entry = &entry
		}
	}
	return f
}

// watchDir sends the changes of a directory until the client leaves.
func (l *life) watchDir(r *http.Request, q watchRequest, s *stream) error {
	timeout, err := timeoutOf(r)
	if err != nil {
		return err
	}
	ctx := r.Context()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	w, err := l.watchFiles(ctx, q)
	if err != nil {
		return err
	}
	defer w.Close()
	if err := s.send(watchEvent{Start: &none{}}); err != nil {
		return err
	}
	s.pings(watchEvent{Keepalive: &none{}})
	for {
		e, err := w.next(ctx)
		if err != nil {
			return err
		}
		if err := s.send(watchEvent{File: &e}); err != nil {
			return err
		}
	}
}

// watcher collects the changes of a directory for a client that asks for them.
type watcher struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when no event comes any more

	mu     sync.Mutex
	events []fileEvent
	err    error // why no event comes any more
}

func (w *watcher) close() {
	w.cancel()
	<-w.done
}

// createWatcher begins a watch whose events the client asks for.
func (l *life) createWatcher(ctx context.Context, q watchRequest) (watcherAnswer, error) {
	w := &watcher{done: make(chan struct{})}
	id := newToken("")[:16]
	l.mu.Lock()
	switch {
	case l.closed:
		l.mu.Unlock()
		return watcherAnswer{}, sandbar.Errorf(sandbar.Gone, "the sandbox has ended")
	case len(l.watchers) >= maxWatchers:
		l.mu.Unlock()
		return watcherAnswer{}, &sandbar.Error{Code: sandbar.Exhausted, Message: "the sandbox has " + strconv.Itoa(maxWatchers) + " watchers, which is the limit", Fix: "remove others"}
	}
	var own context.Context
	own, w.cancel = context.WithCancel(context.Background())
	l.watchers[id] = w // close ends it from now on
	l.mu.Unlock()
	files, err := l.watchFiles(ctx, q)
	if err != nil {
		close(w.done)
		l.dropWatcher(id)
		return watcherAnswer{}, err
	}
	go func() {
		defer close(w.done)
		defer files.Close()
		for {
			e, err := files.next(own)
			if err == nil {
				err = w.add(e)
			}
			if err != nil {
				w.mu.Lock()
				w.err = err
				w.mu.Unlock()
				return
			}
		}
	}()
	return watcherAnswer{id}, nil
}

func (w *watcher) add(e fileEvent) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.events) == maxEvents {
		return dataLost{strconv.Itoa(maxEvents) + " changes wait, and more are not kept: list the files, and watch again"}
	}
	w.events = append(w.events, e)
	return nil
}

// dropWatcher forgets a watcher, and returns it if it was there.
func (l *life) dropWatcher(id string) (*watcher, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w, ok := l.watchers[id]
	delete(l.watchers, id)
	return w, ok
}

// watcherEvents returns the events since the last call. After a failure the rest comes first, and
// then the error.
func (l *life) watcherEvents(q watcherRequest) (eventsAnswer, error) {
	l.mu.Lock()
	w, ok := l.watchers[q.ID]
	l.mu.Unlock()
	if !ok {
		return eventsAnswer{}, noWatcher(q.ID)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	a := eventsAnswer{w.events}
	w.events = nil
	if len(a.Events) == 0 && w.err != nil {
		return a, w.err
	}
	return a, nil
}

func (l *life) removeWatcher(q watcherRequest) error {
	w, ok := l.dropWatcher(q.ID)
	if !ok {
		return noWatcher(q.ID)
	}
	w.close()
	return nil
}

func noWatcher(id string) error {
	return &sandbar.Error{Code: sandbar.NotFound, Field: "watcherId", Message: "watcher with id " + sandbar.Quote(id, 40) + " not found"}
}
