package engine

import (
	"context"

	"github.com/sandbar-dev/sandbar"
)

// A sandbox, a paused sandbox and an event belong to the tenant of the client that created the
// sandbox. Every method that finds or uses one takes the caller from its context, see WithClient: a
// caller of another tenant gets NotFound, as for an id that does not exist. A context without a
// client is a call of this process itself, which may do everything.

// looks is the verb of calls that are no actions: lists, descriptions and measurements.
const looks Verb = ""

// reading are the verbs of a caller that may only list and read. A verb that is not here is refused
// to it.
var reading = map[Verb]bool{looks: true, DidRead: true, DidWatch: true}

// callerOf returns the caller of a call. own: it is this process itself.
func callerOf(ctx context.Context) (c sandbar.Client, own bool) {
	c, ok := ctx.Value(clientKey{}).(sandbar.Client)
	return c, !ok
}

// sees reports whether the caller in ctx may learn of a sandbox.
func sees(ctx context.Context, owner sandbar.Client, id sandbar.ID) bool {
	c, own := callerOf(ctx)
	return own || c.Sees(owner, id)
}

// mayAct returns Denied if the role of a caller does not allow an action.
func mayAct(c sandbar.Client, verb Verb) error {
	if c.Writes() || c.Role == sandbar.RoleReadOnly && reading[verb] {
		return nil
	}
	return &sandbar.Error{Code: sandbar.Denied, Message: "the token " + sandbar.Quote(c.Name, 80) + " may list and read only",
		Fix: "use a token with the role user or admin"}
}

// permit returns NotFound if the caller in ctx does not see a sandbox, and Denied if its role does
// not allow the action.
func permit(ctx context.Context, verb Verb, owner sandbar.Client, id sandbar.ID) error {
	c, own := callerOf(ctx)
	switch {
	case own:
		return nil
	case !c.Sees(owner, id):
		return noSandbox(id)
	}
	return mayAct(c, verb)
}

// permit is the function permit for the sandbox.
func (s *Sandbox) permit(ctx context.Context, verb Verb) error {
	return permit(ctx, verb, s.spec.Client, s.id)
}

// permit is the function permit for the live or paused sandbox with an id. It returns nil if there
// is none: the call that follows then fails.
func (e *Engine) permit(ctx context.Context, verb Verb, id sandbar.ID) error {
	if owner, ok := e.Owner(id); ok {
		return permit(ctx, verb, owner, id)
	}
	if c, own := callerOf(ctx); !own {
		return mayAct(c, verb)
	}
	return nil
}

// Visible reports whether the caller in ctx sees a live or paused sandbox with this id.
func (e *Engine) Visible(ctx context.Context, id sandbar.ID) bool {
	owner, ok := e.Owner(id)
	return ok && sees(ctx, owner, id)
}

// Owner returns the client that has created the live or paused sandbox with an id.
func (e *Engine) Owner(id sandbar.ID) (c sandbar.Client, ok bool) {
	s := e.find(id)
	if s == nil {
		if c, ok = e.paused.owner(id); ok {
			return c, true
		}
		s = e.find(id) // it may have been resumed meanwhile
	}
	if s == nil {
		return c, false
	}
	return s.spec.Client, true
}

// creator returns the client that a new sandbox belongs to: the caller in ctx, or c for a call of
// this process itself.
func creator(ctx context.Context, c sandbar.Client) (sandbar.Client, error) {
	if caller, own := callerOf(ctx); !own {
		c = caller
	}
	if c.Sandbox != "" {
		return c, &sandbar.Error{Code: sandbar.Denied, Message: "the secret of a sandbox allows no other sandbox", Fix: "use a token of the daemon"}
	}
	return c, mayAct(c, DidCreate)
}
