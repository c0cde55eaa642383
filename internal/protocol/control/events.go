package control

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/engine"
)

// maxEventFilters bounds the values of each filter of events in one request.
const maxEventFilters = 64

// eventQuery is the query of GET /events.
type eventQuery struct {
	sandboxes []sandbar.ID // empty: all
	types     []string     // types, or their first words; empty: all
	after     string       // a position of engine.Events
}

// decodeEvents decodes a request for events.
func (s *Server) decodeEvents(r *http.Request) (eventQuery, error) {
	q, err := query(r, []string{"after"}, "sandbox", "type")
	if err != nil {
		return eventQuery{}, err
	}
	for _, name := range []string{"sandbox", "type"} {
		if n := len(q[name]); n > maxEventFilters {
			return eventQuery{}, invalid(name, name+" is given "+strconv.Itoa(n)+" times", "allowed: at most "+strconv.Itoa(maxEventFilters)+" times")
		}
	}
	f := eventQuery{types: q["type"], after: q.Get("after")}
	if q.Has("after") && f.after == "" {
		return f, invalid("after", "after is empty", "send the id of the last event, "+engine.Oldest+", or no such parameter")
	}
	if last := r.Header.Get("Last-Event-ID"); last != "" { // a reconnection repeats the query of the first request
		f.after = last
	}
	for _, t := range f.types {
		if !slices.ContainsFunc(engine.EventTypes, func(known engine.EventType) bool { return isOfType(known, t) }) {
			var all []string
			for _, known := range engine.EventTypes {
				all = append(all, string(known))
			}
			return f, invalid("type", "type "+sandbar.Quote(t, 40)+" is not known", "allowed: "+strings.Join(all, ", ")+", and the first word of each")
		}
	}
	for _, key := range q["sandbox"] {
		id, err := sandbar.ReadID(key)
		if err != nil {
			id, err = s.named(r.Context(), key)
		}
		if err != nil {
			e := *sandbar.AsError(err)
			e.Field = "sandbox"
			return f, &e
		}
		f.sandboxes = append(f.sandboxes, id)
	}
	return f, nil
}

// isOfType reports whether a filter selects a type: by its name, or by its first word.
func isOfType(t engine.EventType, filter string) bool {
	rest, ok := strings.CutPrefix(string(t), filter)
	return ok && filter != "" && (rest == "" || rest[0] == '.')
}

// keeps reports whether the filters select an event.
func (f eventQuery) keeps(e *engine.Event) bool {
	return (len(f.sandboxes) == 0 || slices.Contains(f.sandboxes, e.Sandbox) || e.From != "" && slices.Contains(f.sandboxes, e.From)) &&
		(len(f.types) == 0 || slices.ContainsFunc(f.types, func(t string) bool { return isOfType(e.Type, t) }))
}

// reserveReader counts a reader of events until release is called.
func (s *Server) reserveReader() (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readers >= s.options.MaxEventReaders {
		return nil, &sandbar.Error{Code: sandbar.Exhausted, Message: "the daemon has " + strconv.Itoa(s.readers) + " readers of events, which is the limit",
			Fix: "close one, or read once and distribute the events"}
	}
	s.readers++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.readers--
	}, nil
}

// serveEvents streams what happens to sandboxes, as server-sent events.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		notAllowed(w, r, http.MethodGet)
		return
	}
	f, err := s.decodeEvents(r)
	if err != nil {
		fail(w, err)
		return
	}
	release, err := s.reserveReader()
	if err != nil {
		fail(w, err)
		return
	}
	defer release()
	events, err := s.engine.Events(r.Context(), f.after)
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	var b bytes.Buffer
	// The position comes first, so that a client that loses the connection before the first event
	// loses no event.
	appendPosition(&b, events.Position())
	for {
		_ = control.SetWriteDeadline(time.Now().Add(s.options.StallTimeout)) // a connection without deadlines is a test's
		if _, err := w.Write(b.Bytes()); err != nil {
			return
		}
		if err := control.Flush(); err != nil {
			return
		}
		b.Reset()
		if !s.nextEvent(r.Context(), &b, events, f) {
			panic(http.ErrAbortHandler) // the stream has no regular end: clients connect again
		}
	}
}

// nextEvent appends the next event, or a comment after KeepAlive. It returns false at the end of
// ctx.
func (s *Server) nextEvent(ctx context.Context, b *bytes.Buffer, events *engine.EventReader, f eventQuery) bool {
	wait, cancel := context.WithTimeout(ctx, s.options.KeepAlive)
	defer cancel()
	e, err := events.Next(wait, f.keeps)
	switch {
	case ctx.Err() != nil || err != nil && wait.Err() == nil:
		return false
	case err != nil:
		b.WriteString(": keep-alive\n")
		appendPosition(b, events.Position())
		return true
	}
	data, err := json.Marshal(notificationOf(e))
	if err != nil {
		panic(err) // texts and numbers can be encoded
	}
	b.WriteString("event: " + string(e.Type) + "\nid: " + e.ID + "\ndata: ")
	b.Write(data)
	b.WriteString("\n\n")
	return true
}

// appendPosition appends an id without an event: clients continue after it.
func appendPosition(b *bytes.Buffer, id string) { b.WriteString("id: " + id + "\n\n") }

// notificationOf converts an event.
func notificationOf(e engine.Event) wire.Notification {
	n := wire.Notification{ID: e.ID, Type: string(e.Type), Time: e.Time.UTC(), Sandbox: e.Sandbox, Tenant: e.Tenant, Client: e.Client, From: e.From, Reason: string(e.Reason),
		Program: e.Program, Context: e.Context, Outcome: e.Outcome, Failed: e.Failed, Action: string(e.Action), Code: e.Code}
	if e.Outcome != "" && e.ExitCode >= 0 {
		n.ExitCode = &e.ExitCode
	}
	if e.Signal != 0 {
		n.Signal = &e.Signal
	}
	if e.Type == engine.EventGap && e.Missed >= 0 {
		n.Missed = &e.Missed
	}
	return n
}
