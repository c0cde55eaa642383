package control

import (
	"context"
	"crypto/sha256"
	"net/http"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/engine"
)

// minIdle is the shortest idle timeout: a shorter one could expire between two requests.
const minIdle = time.Second

func (s *Server) serveCollection(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
		s.list(w, r)
	case http.MethodPost:
		s.create(w, r)
	default:
		notAllowed(w, r, "GET, POST")
	}
}

func (s *Server) create(w http.ResponseWriter, r *http.Request) {
	e, err := s.make(w, r)
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Location", "/sandboxes/"+string(e.sandbox.ID()))
	answer(w, http.StatusCreated, e.describe())
}

// make creates a sandbox. If the client has left in the meantime, it is removed, because the client
// does not know its id.
func (s *Server) make(w http.ResponseWriter, r *http.Request) (*entry, error) {
	body, err := readBody(w, r)
	if err != nil {
		return nil, err
	}
	c, err := decodeCreate(body)
	if err != nil {
		return nil, err
	}
	o, err := s.originOf(c)
	if err != nil {
		return nil, err
	}
	sandbox, err := s.engine.Create(r.Context(), s.spec(c, engine.Client(r.Context())))
	if err != nil {
		return nil, err
	}
	e, err := s.adopt(sandbox, o)
	if err == nil && r.Context().Err() != nil {
		err = sandbar.Errorf(sandbar.Canceled, "the client left")
	}
	if err != nil {
		go s.engine.Stop(context.Background(), sandbox.ID())
		return nil, err
	}
	return e, nil
}

// spec returns the engine's Spec.
func (s *Server) spec(c wire.Create, client sandbar.Client) sandbar.Spec {
	spec := sandbar.Spec{Image: c.Image, Name: c.Name, Env: c.Env, Labels: c.Labels, AllowDegraded: c.AllowDegraded, Network: c.Network, Driver: c.Driver, Cold: c.Cold,
		Client: client}
	if c.Limits != nil {
		spec.Limits = c.Limits.Limits()
	}
	_, _, most := s.engine.Limits()
	if spec.Limits.Timeout == 0 {
		spec.Limits.Timeout = most.Timeout
	}
	if spec.Limits.Output == 0 {
		spec.Limits.Output = most.Output
	}
	return spec
}

// originOf returns the creation parameters that the entry keeps.
func (s *Server) originOf(c wire.Create) (origin, error) {
	o := origin{}
	if c.Secret != "" {
		o.secret, o.guarded = sha256.Sum256([]byte(c.Secret)), true
	}
	var err error
	o.idle, err = s.idleOf(c.IdleTimeout)
	return o, err
}

// idleOf returns an idle timeout as origin has it.
func (s *Server) idleOf(a wire.Amount) (time.Duration, error) {
	idle, most := a.Duration(), s.options.IdleTimeout
	switch {
	case idle == 0 || idle < 0 && most < 0:
		return idle, nil
	case idle >= minIdle && (most < 0 || idle <= most):
		return idle, nil
	}
	allowed := "from " + minIdle.String() + " up, or \"unlimited\""
	if most >= 0 {
		allowed = "from " + minIdle.String() + " to " + most.String()
	}
	return 0, invalid("idle_timeout", "idle_timeout is out of range", "allowed: "+allowed)
}

// remove removes a sandbox and responds when nothing of it is left.
func (s *Server) remove(w http.ResponseWriter, r *http.Request, key string) {
	id, err := sandbar.ReadID(key)
	if err != nil {
		id, err = s.named(r.Context(), key)
	}
	if err == nil {
		err = s.engine.Stop(r.Context(), id)
	}
	if err != nil {
		fail(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
