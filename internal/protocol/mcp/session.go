package mcp

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
)

// session is the state of one client's connection.
type session struct {
	server *Server
	client sandbar.Client
	ctx    context.Context // of all calls
	cancel context.CancelFunc
	making chan struct{} // a lock of the creation of the default sandbox

	mu        sync.Mutex
	calls     int
	ended     bool // also guards Add of calling
	calling   sync.WaitGroup
	taken     int // as counted by Options.MaxSandboxes
	boxes     map[sandbar.ID]*box
	main      *box // the default; nil for none
	snapshots map[sandbar.ID]snapshot
	saving    int           // snapshots that are being taken
	removed   chan struct{} // closed when nothing is left
}

// snapshot is a saved copy of a sandbox.
type snapshot struct {
	of   sandbar.ID
	time time.Time
}

func newSession(s *Server, client sandbar.Client) *session {
	x := &session{server: s, client: client, making: make(chan struct{}, 1), boxes: map[sandbar.ID]*box{}, snapshots: map[sandbar.ID]snapshot{},
		removed: make(chan struct{})}
	x.ctx, x.cancel = context.WithCancel(context.Background())
	return x
}

// enter counts a call until leave is called. The returned context ends with ctx and with the
// session. Exhausted: too many calls are in progress.
func (x *session) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.ended:
		return nil, nil, sessionEnded()
	case x.calls >= maxCalls:
		return nil, nil, &sandbar.Error{Code: sandbar.Exhausted, Message: "this session has " + count(maxCalls, "call") + " in progress", Fix: "wait for others to end"}
	}
	x.calls++
	x.calling.Add(1)
	client, now := x.client, engine.Client(ctx)
	client.Request, client.Trace = now.Request, now.Trace // those of this call
	ctx, cancel := context.WithCancel(engine.WithClient(ctx, client))
	stop := context.AfterFunc(x.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
		x.mu.Lock()
		x.calls--
		x.mu.Unlock()
		x.calling.Done()
	}, nil
}

func sessionEnded() error {
	return &sandbar.Error{Code: sandbar.Gone, Message: "the session has ended", Fix: "initialize a new session"}
}

// end ends the calls and removes the sandboxes and snapshots. It may be called repeatedly, and
// returns when nothing is left.
func (x *session) end() {
	x.cancel()
	x.mu.Lock()
	first := !x.ended
	x.ended = true
	x.mu.Unlock()
	if !first {
		<-x.removed
		return
	}
	x.calling.Wait()
	x.mu.Lock()
	var ids []sandbar.ID
	for id := range x.boxes {
		ids = append(ids, id)
	}
	for id := range x.snapshots {
		ids = append(ids, id)
	}
	x.mu.Unlock()
	var removing sync.WaitGroup
	for _, id := range ids {
		removing.Go(func() {
			if err := x.remove(context.Background(), id); err != nil {
				x.server.options.Logger.Error("a sandbox of an ended session cannot be removed", slog.Any("", x.client), "sandbox", id, "error", err)
			}
		})
	}
	removing.Wait()
	close(x.removed)
}

// remove removes a sandbox or a snapshot of the engine, also after the end of ctx. One that has
// ended before is no error.
func (x *session) remove(ctx context.Context, id sandbar.ID) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removalTime)
	defer cancel()
	err := x.server.engine.Stop(ctx, id)
	if sandbar.CodeOf(err) == sandbar.NotFound {
		return nil
	}
	return err
}

// box is a sandbox of a session.
type box struct {
	*engine.Sandbox
	created time.Time

	starting chan struct{} // a lock of the creation of contexts
	mu       sync.Mutex
	contexts map[string]*engine.Context // by language and name
	files    int                        // outputs that were written to files
}

// use returns the sandbox with an id, or the default one if id is "". It makes the default sandbox
// if there is none.
func (x *session) use(ctx context.Context, id string) (*box, error) {
	if id != "" {
		return x.named(id)
	}
	select {
	case x.making <- struct{}{}:
		defer func() { <-x.making }()
	case <-ctx.Done():
		return nil, sandbar.Errorf(sandbar.Canceled, "cancelled: %w", context.Cause(ctx))
	}
	x.mu.Lock()
	b := x.main
	x.mu.Unlock()
	if b == nil {
		return x.create(ctx, sandbar.Spec{}, true)
	}
	return x.live(b)
}

// named returns the sandbox with an id. NotFound: this session has none with it.
func (x *session) named(id string) (*box, error) {
	x.mu.Lock()
	b := x.boxes[sandbar.ID(id)]
	x.mu.Unlock()
	if b == nil {
		return nil, noSandbox(id)
	}
	return x.live(b)
}

func noSandbox(id string) error {
	return &sandbar.Error{Code: sandbar.NotFound, Field: "sandbox", Message: "this session has no sandbox " + sandbar.Quote(id, 60), Fix: "call list_sandboxes, or leave sandbox out"}
}

// live returns b if it has not ended, and forgets it otherwise.
func (x *session) live(b *box) (*box, error) {
	select {
	case <-b.Done():
	default:
		return b, nil
	}
	x.forget(b.ID())
	return nil, &sandbar.Error{Code: sandbar.Gone, Field: "sandbox", Message: "sandbox " + string(b.ID()) + " has ended, with its files and variables",
		Fix: "call again without sandbox for a new one"}
}

// forget removes a sandbox from the session, and reports whether it was there.
func (x *session) forget(id sandbar.ID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	b := x.boxes[id]
	if b == nil {
		return false
	}
	delete(x.boxes, id)
	x.taken--
	if x.main == b {
		x.main = nil
	}
	return true
}

// reserve counts n sandboxes that are being made. Exhausted: there would be too many.
func (x *session) reserve(n int) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if most := x.server.options.MaxSandboxes; x.taken+n > most {
		return &sandbar.Error{Code: sandbar.Exhausted, Message: "this session has " + count(most, "sandbox") + ", which is all that it may have", Fix: "stop another with stop_sandbox"}
	}
	x.taken += n
	return nil
}

// create makes a sandbox. With main it becomes the default.
func (x *session) create(ctx context.Context, spec sandbar.Spec, main bool) (*box, error) {
	if err := x.reserve(1); err != nil {
		return nil, err
	}
	_, _, most := x.server.engine.Limits()
	spec.Limits.Timeout, spec.Limits.Output = most.Timeout, most.Output // calls have their own
	spec.IdleTimeout, spec.Client = -1, x.client                        // the session bounds it
	sandbox, err := x.server.engine.Create(ctx, spec)
	if err != nil {
		x.mu.Lock()
		x.taken--
		x.mu.Unlock()
		return nil, err
	}
	return x.adopt(sandbox, main), nil
}

// adopt adds a sandbox that reserve has counted. The session is not ended: a call is in progress.
func (x *session) adopt(sandbox *engine.Sandbox, main bool) *box {
	b := &box{Sandbox: sandbox, created: time.Now(), starting: make(chan struct{}, 1), contexts: map[string]*engine.Context{}}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.boxes[sandbox.ID()] = b
	if main {
		x.main = b
	}
	return b
}

// list returns the sandboxes, oldest first, without those that have ended.
func (x *session) list() (all []*box, main *box) {
	x.mu.Lock()
	for _, b := range x.boxes {
		all = append(all, b)
	}
	x.mu.Unlock()
	all = slices.DeleteFunc(all, func(b *box) bool { _, err := x.live(b); return err != nil })
	slices.SortFunc(all, func(a, b *box) int { return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.ID(), b.ID())) })
	x.mu.Lock()
	defer x.mu.Unlock()
	return all, x.main
}

// count returns a number with its noun.
func count(n int, noun string) string {
	switch {
	case n == 1:
	case noun[len(noun)-1] == 'x' || noun[len(noun)-1] == 's':
		noun += "es"
	default:
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
