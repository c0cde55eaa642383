package control

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/text/strictjson"
)

// serveState serves pause, resume and fork. The daemon's token allows them, a sandbox's secret does
// not.
func (s *Server) serveState(w http.ResponseWriter, r *http.Request, t target) {
	if r.Method != http.MethodPost {
		notAllowed(w, r, http.MethodPost)
		return
	}
	body, err := readBody(w, r)
	f := wire.Fork{Count: 1}
	if err == nil {
		f, err = decodeState(t.kind, body)
	}
	if err == nil {
		switch t.kind {
		case pause:
			err = s.pause(w, r, t.key)
		case resume:
			err = s.resume(w, r, t.key)
		default:
			err = s.fork(w, r, t.key, f.Count)
		}
	}
	if err != nil {
		fail(w, err)
	}
}

// decodeState decodes the body of a request: a wire.Fork, or nothing.
func decodeState(k kind, raw []byte) (wire.Fork, error) {
	f := wire.Fork{Count: 1}
	switch {
	case len(bytes.TrimSpace(raw)) == 0:
		return f, nil
	case k != fork:
		return f, strictjson.Object(body, raw)
	}
	err := strictjson.Object(body, raw, strictjson.Field{Name: "count", Set: func(raw json.RawMessage) (err error) {
		if f.Count, err = strconv.Atoi(string(raw)); err != nil {
			return errors.New("must be a whole number from 1 to 100")
		}
		return nil
	}})
	return f, err
}

// note is what the server keeps with a paused sandbox: its origin.
type note struct {
	Secret string        `json:"secret,omitempty"` // the hash, in hexadecimal digits
	Idle   time.Duration `json:"idle,omitempty"`
}

// noteOf encodes an origin.
func noteOf(o origin) []byte {
	n := note{Idle: o.idle}
	if o.guarded {
		n.Secret = hex.EncodeToString(o.secret[:])
	}
	b, err := json.Marshal(n)
	if err != nil {
		panic(err) // a string and a number can be encoded
	}
	return b
}

// originOfNote decodes what noteOf has encoded. Of a note that is damaged it makes a sandbox that
// no secret opens.
func originOfNote(b []byte) origin {
	var n note
	if len(b) == 0 { // another protocol has paused it
		return origin{}
	}
	if err := json.Unmarshal(b, &n); err != nil {
		return origin{guarded: true}
	}
	o := origin{idle: n.Idle, guarded: n.Secret != ""}
	if h, err := hex.DecodeString(n.Secret); err == nil && len(h) == sha256.Size {
		copy(o.secret[:], h)
	}
	return o
}

// describePaused returns the description of a paused sandbox for clients.
func (s *Server) describePaused(p engine.Paused) wire.Sandbox {
	o := originOfNote(p.Note)
	d := o.describe(engine.Info{ID: p.ID, Spec: p.Spec, Created: p.Created, LastUsed: p.Since}, s.options.IdleTimeout)
	d.State, d.Paused, d.DiskBytes = wire.StatePaused, p.Since.UTC(), p.Size
	return d
}

// paused returns the paused sandbox with an id or a name that the caller in ctx sees.
func (s *Server) paused(ctx context.Context, key string) (engine.Paused, bool) {
	id, err := sandbar.ReadID(key)
	if err != nil {
		id, err = s.named(ctx, key)
	}
	if err == nil {
		for _, p := range s.engine.Paused(ctx) {
			if p.ID == id {
				return p, true
			}
		}
	}
	return engine.Paused{}, false
}

func (s *Server) pause(w http.ResponseWriter, r *http.Request, key string) error {
	e, err := s.find(r.Context(), key)
	if err != nil {
		return err
	}
	id := e.sandbox.ID()
	if err := s.engine.Pause(r.Context(), id); err != nil {
		return err
	}
	p, ok := s.paused(r.Context(), string(id))
	if !ok {
		return sandbar.Errorf(sandbar.Gone, "sandbox %s was resumed or removed by another request", id)
	}
	answer(w, http.StatusOK, s.describePaused(p))
	return nil
}

func (s *Server) resume(w http.ResponseWriter, r *http.Request, key string) error {
	p, ok := s.paused(r.Context(), key)
	if !ok {
		e, err := s.find(r.Context(), key)
		if err == nil {
			err = sandbar.Errorf(sandbar.Conflict, "sandbox %s is not paused", e.sandbox.ID())
		}
		return err
	}
	e, err := s.resumePaused(r.Context(), p)
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, e.describe())
	return nil
}

// resumePaused resumes a sandbox. Unavailable: the daemon is shutting down, and ends the sandbox.
func (s *Server) resumePaused(ctx context.Context, p engine.Paused) (*entry, error) {
	defer s.expect(p.ID, originOfNote(p.Note))()
	sandbox, err := s.engine.Resume(ctx, p.ID)
	if err != nil {
		return nil, err
	}
	return s.adopt(sandbox, origin{})
}

// ResumeSuspended resumes the sandboxes that Engine.Suspend of an earlier process has paused. One
// that cannot be resumed stays paused, with a warning in the log. It returns the number of those
// that run again.
func (s *Server) ResumeSuspended(ctx context.Context) (running int) {
	var work sync.WaitGroup
	var resumed atomic.Int64
	places := make(chan struct{}, runtime.NumCPU())
	for _, p := range s.engine.Paused(ctx) {
		if !p.Suspended {
			continue
		}
		work.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			if _, err := s.resumePaused(ctx, p); err != nil {
				s.options.Logger.Warn("a sandbox that was kept over the restart cannot be resumed, and stays paused", "sandbox", p.ID, "error", err)
				return
			}
			resumed.Add(1)
		})
	}
	work.Wait()
	return int(resumed.Load())
}

// expect sets the origin of a sandbox that is being resumed, until done is called.
func (s *Server) expect(id sandbar.ID, o origin) (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resuming[id] = o
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.resuming, id)
	}
}

// fork copies a sandbox. The copies have its secret, if it has one. If the client has left in the
// meantime, they are removed, because it does not know their ids.
func (s *Server) fork(w http.ResponseWriter, r *http.Request, key string, n int) error {
	e, err := s.find(r.Context(), key)
	if err != nil {
		return err
	}
	copies, err := s.engine.Fork(r.Context(), e.sandbox.ID(), n)
	if err != nil {
		return err
	}
	all := wire.List{Sandboxes: []wire.Sandbox{}}
	for _, c := range copies {
		var entry *entry
		if entry, err = s.adopt(c, e.kept()); err != nil {
			break
		}
		all.Sandboxes = append(all.Sandboxes, entry.describe())
	}
	if err == nil && r.Context().Err() != nil {
		err = sandbar.Errorf(sandbar.Canceled, "the client left")
	}
	if err != nil {
		for _, c := range copies {
			go s.engine.Stop(context.Background(), c.ID())
		}
		return err
	}
	answer(w, http.StatusCreated, all)
	return nil
}
