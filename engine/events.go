package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// keptEvents is the number of events that the engine keeps, the latest ones. A reader that is
// further behind gets an EventGap.
const keptEvents = 4096

// EventType is a kind of event.
type EventType string

// The types of events.
const (
	EventCreated EventType = "sandbox.created" // a long-lived sandbox is there
	EventForked  EventType = "sandbox.forked"  // a copy is there; From is its source
	EventResumed EventType = "sandbox.resumed"
	EventPaused  EventType = "sandbox.paused" // its state is on disk, and nothing of it runs
	EventReset   EventType = "sandbox.reset"
	EventEnded   EventType = "sandbox.ended" // no program can run in it; Reason says why

	EventExecutionStarted EventType = "execution.started" // the program of a one-shot execution runs
	EventExecutionEnded   EventType = "execution.ended"   // of every execution that was admitted
	EventProgramStarted   EventType = "program.started"   // in a long-lived sandbox
	EventProgramEnded     EventType = "program.ended"
	EventCellStarted      EventType = "cell.started" // in a context
	EventCellEnded        EventType = "cell.ended"

	// EventRefused: a call failed before it began work. Action and Code say what and why.
	EventRefused EventType = "refused"
	// EventGap is not recorded: a reader gets it in place of events that are no longer kept.
	EventGap EventType = "gap"
)

// EventTypes are all types.
var EventTypes = []EventType{EventCreated, EventForked, EventResumed, EventPaused, EventReset, EventEnded,
	EventExecutionStarted, EventExecutionEnded, EventProgramStarted, EventProgramEnded, EventCellStarted, EventCellEnded, EventRefused, EventGap}

// EndReason is the reason of a sandbox's end.
type EndReason string

// The reasons.
const (
	EndedStopped  EndReason = "stopped"  // by a call
	EndedIdle     EndReason = "idle"     // no use for its idle timeout
	EndedLifetime EndReason = "lifetime" // it has reached its lifetime
	EndedDied     EndReason = "died"     // by itself: its init process or its backend has ended
	EndedShutdown EndReason = "shutdown" // with the engine
	endedPaused   EndReason = "paused"   // it is an EventPaused
)

// EndReasons are the reasons that events have.
var EndReasons = []EndReason{EndedStopped, EndedIdle, EndedLifetime, EndedDied, EndedShutdown}

// text is the reason in words, after "it".
func (r EndReason) text() string {
	switch r {
	case EndedIdle:
		return "was idle for too long"
	case EndedLifetime:
		return "reached its lifetime"
	case EndedDied:
		return "died"
	case EndedShutdown:
		return "was stopped with the platform"
	case endedPaused:
		return "was paused"
	}
	return "was stopped"
}

// Event is something that happened to a sandbox. It has no code, arguments, environment, paths or
// output.
type Event struct {
	ID      string // see EventReader.Position
	Time    time.Time
	Type    EventType
	Sandbox sandbar.ID // "" if none was made
	Tenant  string     // the tenant that it belongs to; "" for the default tenant
	// Client is the name of the client that caused it; "" for the daemon's own token, for none, and
	// for the end of a sandbox or of a program.
	Client string
	From   sandbar.ID // of EventForked
	Reason EndReason  // of EventEnded
	// Program identifies a program in its sandbox: "p1" is the process with that id, and "x1" a
	// program whose caller waits for it. Context is that of a cell.
	Program, Context string
	// Outcome, ExitCode and Signal are those of a program, an execution or a cell that has ended.
	// ExitCode is -1 unless the program exited by itself. Of a failure of the platform Code is set
	// instead.
	Outcome  string
	ExitCode int
	Signal   int
	Failed   bool         // of a cell that has ended: its code raised an error
	Action   Verb         // of EventRefused
	Code     sandbar.Code // of EventRefused, and of an end by a failure of the platform
	// Missed is the number of events in an EventGap; -1 if it is unknown, because the position is
	// that of another Engine, or the reader does not see the events of all tenants.
	Missed int64

	seq uint64
}

// ended sets how a program ended.
func (v Event) ended(r sandbar.Result, err error) Event {
	v.ExitCode = -1
	if err != nil {
		v.Code = sandbar.CodeOf(err)
		return v
	}
	v.Outcome, v.Signal = r.Outcome.String(), r.Signal
	if r.Outcome == sandbar.Exited {
		v.ExitCode = r.ExitCode
	}
	return v
}

// eventLog keeps the latest events. Its readers read from it at their own speed, so that none of
// them can block the engine.
type eventLog struct {
	epoch string // identifies the Engine in positions

	mu   sync.Mutex
	last uint64        // number of the last event, from 1; 0: none yet
	ring []Event       // event n is at (n-1) % keptEvents; it grows to keptEvents elements
	wake chan struct{} // closed at the next event; nil if no reader waits
}

// epochLen is the length of an epoch, in bytes of a-z and 2-7.
const epochLen = 16

func newEventLog() *eventLog { return &eventLog{epoch: strings.ToLower(rand.Text()[:epochLen])} }

// isEpoch reports whether s has the form of an epoch.
func isEpoch(s string) bool {
	return len(s) == epochLen && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// happened records an event.
func (e *Engine) happened(v Event) {
	l := e.events
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	v.seq, v.Time = l.last, time.Now()
	if at := int((l.last - 1) % keptEvents); at < len(l.ring) {
		l.ring[at] = v
	} else {
		l.ring = append(l.ring, v)
	}
	if l.wake != nil {
		close(l.wake)
		l.wake = nil
	}
}

// first returns the number of the oldest kept event, last+1 if there is none. l.mu is held.
func (l *eventLog) first() uint64 { return l.last - uint64(len(l.ring)) + 1 }

func (l *eventLog) position(seq uint64) string {
	return l.epoch + "-" + strconv.FormatUint(seq, 10)
}

// Oldest is the position before the oldest kept event; see Engine.Events.
const Oldest = "oldest"

// EventReader reads events. It is used by one goroutine at a time, and needs no end.
type EventReader struct {
	e       *Engine
	ctx     context.Context // of the caller of Events, for its identity only
	seq     uint64          // of the last event read
	foreign bool            // the position was that of another Engine
}

// Events returns a reader of the events after a position. That is the ID of an event or
// EventReader.Position, Oldest, or "" for the present. The position of another Engine is valid: the
// reader gets an EventGap and then all kept events. The reader gets the events that the caller in
// ctx sees; ctx need not last. Invalid: the position is malformed.
func (e *Engine) Events(ctx context.Context, after string) (*EventReader, error) {
	l := e.events
	l.mu.Lock()
	defer l.mu.Unlock()
	switch after {
	case "":
		return &EventReader{e: e, ctx: ctx, seq: l.last}, nil
	case Oldest:
		return &EventReader{e: e, ctx: ctx, seq: l.first() - 1}, nil
	}
	epoch, number, _ := strings.Cut(after, "-")
	seq, err := strconv.ParseUint(number, 10, 64)
	if err != nil || !isEpoch(epoch) || epoch == l.epoch && seq > l.last {
		return nil, &sandbar.Error{Code: sandbar.Invalid, Field: "after", Message: "position " + sandbar.Quote(after, 60) + " is not that of an event",
			Fix: "send the id of the last event, or " + Oldest}
	}
	if epoch != l.epoch {
		return &EventReader{e: e, ctx: ctx, seq: l.first() - 1, foreign: true}, nil
	}
	return &EventReader{e: e, ctx: ctx, seq: seq}, nil
}

// Position is the position after the last event that was read or skipped. It is valid for
// Engine.Events.
func (r *EventReader) Position() string { return r.e.events.position(r.seq) }

// Next waits for the next event that keep accepts, in order. An EventGap is returned without keep:
// the reader was more than 4096 events behind. Canceled: ctx ended. io.EOF: the engine is shut down
// and has no further events.
func (r *EventReader) Next(ctx context.Context, keep func(*Event) bool) (Event, error) {
	for {
		v, wake := r.take(keep)
		switch {
		case v.Type != "":
			return v, nil
		case wake == nil:
			continue // many events were skipped; others may use the log meanwhile
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return Event{}, sandbar.Errorf(sandbar.Canceled, "reading events was cancelled: %w", context.Cause(ctx))
		case <-r.e.shutdownDone:
			if v, _ := r.take(keep); v.Type != "" {
				return v, nil
			}
			return Event{}, io.EOF
		}
	}
}

// skippedAtOnce bounds the events that take looks at in one critical section.
const skippedAtOnce = 256

// take returns the next event. If there is none, it returns a channel that closes at the next one,
// or nil after skippedAtOnce events.
func (r *EventReader) take(keep func(*Event) bool) (v Event, wake <-chan struct{}) {
	l := r.e.events
	l.mu.Lock()
	defer l.mu.Unlock()
	if missed := int64(l.first() - 1 - r.seq); r.foreign || missed > 0 {
		if c, own := callerOf(r.ctx); r.foreign || !own && !c.Operator() {
			missed = -1 // those of other tenants are not to be counted
		}
		r.foreign, r.seq = false, max(r.seq, l.first()-1)
		return Event{Type: EventGap, Time: time.Now(), Missed: missed, ID: l.position(r.seq)}, nil
	}
	for range skippedAtOnce {
		if r.seq == l.last {
			if l.wake == nil {
				l.wake = make(chan struct{})
			}
			return Event{}, l.wake
		}
		r.seq++
		if v := &l.ring[(r.seq-1)%keptEvents]; sees(r.ctx, sandbar.Client{Tenant: v.Tenant}, v.Sandbox) && (keep == nil || keep(v)) {
			found := *v
			found.ID = l.position(r.seq)
			return found, nil
		}
	}
	return Event{}, nil
}

// refusable are the actions whose failure is an EventRefused: those that begin work.
var refusable = map[Verb]bool{DidExecute: true, DidCreate: true, DidFork: true, DidResume: true, DidPause: true,
	DidRun: true, DidStart: true, DidCreateContext: true, DidRunCell: true}

// refused records that an action failed before it began work.
func (e *Engine) refused(client sandbar.Client, verb Verb, id sandbar.ID, err error) {
	if !refusable[verb] {
		return
	}
	code := cmp.Or(sandbar.CodeOf(err), sandbar.Internal)
	e.happened(Event{Type: EventRefused, Client: client.Name, Tenant: client.Tenant, Action: verb, Sandbox: id, Code: code})
	if e.cfg.ObserveRefusal != nil {
		e.guard("the observer of refusals", func() { e.cfg.ObserveRefusal(Refusal{client, verb, code}) })
	}
}
