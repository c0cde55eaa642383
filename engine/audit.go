package engine

import (
	"context"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// Auditor records what clients do. Its methods may be called concurrently.
type Auditor interface {
	// Record records an action, before the action's call returns to its caller.
	Record(Action)
	// Ready returns the reason why actions cannot be recorded, nil if they can. Until it is nil the
	// engine refuses new work with that error; sandboxes can still be stopped.
	Ready() error
}

// Action is what one client did. It has no code, arguments, environment, paths or output. Calls
// whose context has no client, see WithClient, are those of this process itself, such as the end of
// an idle sandbox; they are no actions.
type Action struct {
	Time    time.Time // the end of the call
	Client  sandbar.Client
	Verb    Verb
	Sandbox sandbar.ID // "" if there is none
	// Outcome is "ok", the Outcome of a program, or the code of the call's error.
	Outcome string
}

// Verb is a kind of action.
type Verb string

// The verbs.
const (
	DidExecute        Verb = "execute" // one program in a sandbox of its own
	DidCreate         Verb = "sandbox.create"
	DidStop           Verb = "sandbox.stop" // by a call; a sandbox's own end is no action
	DidPause          Verb = "sandbox.pause"
	DidResume         Verb = "sandbox.resume"
	DidFork           Verb = "sandbox.fork" // one for each copy, whose id it has
	DidReset          Verb = "sandbox.reset"
	DidRestrict       Verb = "sandbox.restrict" // its network
	DidRun            Verb = "program.run"      // to its end
	DidStart          Verb = "program.start"    // in the background
	DidCreateContext  Verb = "context.create"
	DidRunCell        Verb = "context.run"
	DidRestartContext Verb = "context.restart" //
	DidRead           Verb = "file.read"       // a file was opened, or several were read
	DidWrite          Verb = "file.write"      // a file is complete
	DidMkdir          Verb = "file.mkdir"
	DidRemove         Verb = "file.remove"
	DidRename         Verb = "file.rename"
	DidChmod          Verb = "file.chmod" // mode or owner
	DidWatch          Verb = "file.watch"
	DidDial           Verb = "port.connect"
	DidLogin          Verb = "console.login" // of a browser; internal/server/console records it
	DidLogout         Verb = "console.logout"
)

const outcomeOK = "ok"

// call is the end of a call, for the audit log and for the events.
type call struct {
	client  sandbar.Client
	own     bool // of this process itself, not of a client
	verb    Verb
	sandbox sandbar.ID
	outcome string // of a call without an error
	err     error
	// began: the call has begun work before it failed, so that other events show its failure.
	began bool
}

// called records a call of a client as an action, and the refusal of any call as an event.
func (e *Engine) called(c call) {
	if c.err != nil && !c.began {
		e.refused(c.client, c.verb, c.sandbox, c.err)
	}
	if e.cfg.Audit == nil || c.own {
		return
	}
	if c.err != nil {
		c.outcome = string(sandbar.CodeOf(c.err))
	}
	e.cfg.Audit.Record(Action{Time: time.Now(), Client: c.client, Verb: c.verb, Sandbox: c.sandbox, Outcome: c.outcome})
}

// callOf is a call of the client in ctx, or of this process if there is none.
func callOf(ctx context.Context, verb Verb, id sandbar.ID, outcome string, err error) call {
	c, ok := ctx.Value(clientKey{}).(sandbar.Client)
	return call{client: c, own: !ok, verb: verb, sandbox: id, outcome: outcome, err: err}
}

// called is Engine.called for a call in the sandbox that is no program.
func (s *Sandbox) called(ctx context.Context, verb Verb, err error) {
	s.e.called(callOf(ctx, verb, s.id, outcomeOK, err))
}

// recordable returns an error while actions cannot be recorded.
func (e *Engine) recordable() error {
	if e.cfg.Audit == nil {
		return nil
	}
	return e.cfg.Audit.Ready()
}

// allow returns nil if the client may begin one more execution or sandbox now.
func (e *Engine) allow(c sandbar.Client) error {
	if err := e.recordable(); err != nil {
		return err
	}
	return e.rateLimiters.Load().allow(c)
}
