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
)

const outcomeOK = "ok"

// audit records an action. outcome is that of a call without an error.
func (e *Engine) audit(c sandbar.Client, verb Verb, id sandbar.ID, outcome string, err error) {
	if e.cfg.Audit == nil {
		return
	}
	if err != nil {
		outcome = string(sandbar.CodeOf(err))
	}
	e.cfg.Audit.Record(Action{Time: time.Now(), Client: c, Verb: verb, Sandbox: id, Outcome: outcome})
}

// auditCall records an action of the client in ctx, if there is one.
func (e *Engine) auditCall(ctx context.Context, verb Verb, id sandbar.ID, outcome string, err error) {
	if c, ok := ctx.Value(clientKey{}).(sandbar.Client); ok {
		e.audit(c, verb, id, outcome, err)
	}
}

// audit is auditCall for a call in the sandbox that is no program.
func (s *Sandbox) audit(ctx context.Context, verb Verb, err error) {
	s.e.auditCall(ctx, verb, s.id, outcomeOK, err)
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
