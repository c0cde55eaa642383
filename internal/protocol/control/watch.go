package control

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
)

// serveWatch streams the changes in a directory, one JSON object in a line.
func (e *entry) serveWatch(w http.ResponseWriter, r *http.Request) {
	release, err := e.reserveConn()
	if err != nil {
		fail(w, err)
		return
	}
	defer release()
	files, err := e.startWatch(r)
	if err != nil {
		fail(w, err)
		return
	}
	defer files.Close()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	for err := control.Flush(); err == nil; err = control.Flush() {
		event, failed := files.Next(r.Context())
		if r.Context().Err() != nil {
			panic(http.ErrAbortHandler) // a regular end of the answer means that the directory is gone
		}
		line := wire.FileEvent{Op: event.Op, Path: event.Path}
		if failed != nil && !errors.Is(failed, io.EOF) {
			body := wire.ErrorOf(failed)
			line.Error = &body.Error
		}
		if errors.Is(failed, io.EOF) {
			return
		}
		_ = control.SetWriteDeadline(time.Now().Add(e.server.options.StallTimeout)) // every connection has deadlines
		if json.NewEncoder(w).Encode(line) != nil {
			return
		}
		if failed != nil {
			_ = control.Flush()
			return
		}
	}
}

// startWatch begins the watch that a request asks for.
func (e *entry) startWatch(r *http.Request) (sandbar.FileWatch, error) {
	q, err := query(r, []string{"path", "recursive"})
	if err != nil {
		return nil, err
	}
	recursive := false
	if q.Has("recursive") {
		if recursive, err = strconv.ParseBool(q.Get("recursive")); err != nil {
			return nil, invalid("recursive", "recursive is "+sandbar.Quote(q.Get("recursive"), 40), "allowed: true and false")
		}
	}
	files, ok := e.sandbox.FS().(sandbar.FileWatcher)
	if !ok {
		return nil, &sandbar.Error{Code: sandbar.Unsupported, Message: "this sandbox cannot watch files"}
	}
	return files.Watch(r.Context(), pathOf(q), recursive)
}
