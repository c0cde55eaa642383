package control

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/engine"
)

// Daemon tells what the engine does not know about the daemon. A nil function is Unsupported.
type Daemon struct {
	Version string
	Started time.Time
	// Skipped are the drivers that were not chosen because they do not work on this host.
	Skipped []wire.DriverState
	// Count fills in Executions, Errors, Refusals and Kills.
	Count func(*wire.Status)
	// Doctor returns the report of the doctor, which is written as JSON.
	Doctor func(context.Context) (any, error)
	// Configuration returns the settings in force.
	Configuration func() wire.Configuration
	// Images returns the presets and, if all, the images of the store.
	Images func(ctx context.Context, all bool) ([]wire.Image, error)
}

// serveDaemon serves the paths about the daemon itself, which only read.
func (s *Server) serveDaemon(w http.ResponseWriter, r *http.Request, k kind) {
	if r.Method != http.MethodGet {
		notAllowed(w, r, http.MethodGet)
		return
	}
	v, err := s.aboutDaemon(r, k)
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusOK, v)
}

func (s *Server) aboutDaemon(r *http.Request, k kind) (any, error) {
	if k == usage {
		return s.usage(r)
	}
	if _, err := query(r, nil); err != nil {
		return nil, err
	}
	d, operator := s.options.Daemon, engine.Client(r.Context()).Operator()
	if !operator && (k == doctorReport || k == configuration) {
		return nil, &sandbar.Error{Code: sandbar.Denied, Message: "only the operator may read this about the daemon",
			Fix: "use the daemon's own token, or one of the default tenant with the role admin"}
	}
	switch {
	case k == status:
		return s.status(r.Context(), operator), nil
	case k == languages:
		return wire.Languages{Languages: s.languages()}, nil
	case k == doctorReport && d.Doctor != nil:
		return d.Doctor(r.Context())
	case k == configuration && d.Configuration != nil:
		return d.Configuration(), nil
	case k == images && d.Images != nil:
		all, err := d.Images(r.Context(), operator)
		x := wire.Images{Images: all}
		for _, c := range s.engine.Drivers() {
			x.Drivers = append(x.Drivers, c.Name)
		}
		return x, err
	}
	return nil, sandbar.Errorf(sandbar.Unsupported, "this daemon does not report it")
}

// status returns the state of the daemon. A caller that is no operator gets what is its own.
func (s *Server) status(ctx context.Context, operator bool) wire.Status {
	l := s.engine.StatsOf(ctx)
	st := wire.Status{Version: s.options.Daemon.Version, Clients: []wire.ClientLoad{},
		Engine: wire.Load{Active: l.Active, Queued: l.Queued, Ready: l.Ready, Sandboxes: l.Sandboxes, Removing: l.Removing, Capacity: l.Capacity}}
	for _, c := range s.engine.ClientStats(ctx) {
		if c.Sandboxes+c.Active+c.Queued == 0 {
			continue
		}
		if c.Tenant == "" {
			c.Tenant = sandbar.DefaultTenant
		}
		st.Clients = append(st.Clients, wire.ClientLoad(c))
	}
	if !operator {
		return st
	}
	caps := s.engine.Caps()
	st.Started, st.Driver, st.Boundary = s.options.Daemon.Started.UTC(), caps.Name, string(caps.Boundary)
	for _, c := range s.engine.Drivers() {
		st.Drivers = append(st.Drivers, wire.DriverState{Name: c.Name, Boundary: string(c.Boundary), State: wire.DriverReady})
	}
	st.Drivers = append(st.Drivers, s.options.Daemon.Skipped...)
	st.ReadyPools = []wire.ReadyPool{}
	for _, p := range s.engine.Templates() {
		st.ReadyPools = append(st.ReadyPools, wire.ReadyPool{Name: p.Name, Driver: p.Driver, Language: p.Language, Image: p.Image, Ready: p.Ready, Wanted: p.Target,
			Hits: p.Hits, Misses: p.Misses, Failed: p.Failed, Lost: p.Lost})
	}
	if s.options.Daemon.Count != nil {
		s.options.Daemon.Count(&st)
	}
	return st
}

// languages returns the languages of executions, sorted, and those that only contexts have.
func (s *Server) languages() []wire.Language {
	var all []wire.Language
	catalogue, available := s.engine.Languages(), s.engine.Available()
	for _, name := range catalogue.Names() {
		if l, err := catalogue.Find(name); err == nil {
			all = append(all, wire.Language{Name: name, Aliases: append([]string{}, l.Aliases...), Executions: true, Available: slices.Contains(available, name)})
		}
	}
	for _, c := range engine.ContextLanguages() {
		i := slices.IndexFunc(all, func(l wire.Language) bool { return l.Name == c.Name || slices.Contains(c.Aliases, l.Name) })
		if i >= 0 {
			all[i].Contexts = true
			continue
		}
		all = append(all, wire.Language{Name: c.Name, Aliases: append([]string{}, c.Aliases...), Contexts: true, Available: true})
	}
	return all
}
