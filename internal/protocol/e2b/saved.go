package e2b

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/text/strictjson"
)

// The kinds of saved states.
const (
	snapshotKind = "snapshot"
	templateKind = "template"
)

// defaultTag is the tag of a name without one.
const defaultTag = "default"

// saved describes a saved state, from which sandboxes are created. It is kept with the paused
// sandbox that has the state.
type saved struct {
	Kind string `json:"kind"`
	// Label is the id in the protocol. All builds of a template have the same one.
	Label string `json:"label"`
	// Names are "name:tag". A name is that of the state that got it last.
	Names []string `json:"names,omitempty"`
	// Named is when the state got a name, if that was after it was made.
	Named map[string]time.Time `json:"named,omitempty"`
	// Source is the id of the sandbox that a snapshot was made of, Template its template.
	Source   string `json:"source,omitempty"`
	Template string `json:"template,omitempty"`
	// Build has what a template adds to its files; nil for a snapshot of a sandbox of none.
	Build *build `json:"build,omitempty"`
}

// state is a saved state of the engine.
type state struct {
	saved
	id    sandbar.ID
	since time.Time
	spec  sandbar.Spec
}

// states returns the saved states of the caller's tenant, newest first. Names are those of a
// tenant, so the operator, too, gets only the states of its own.
func (s *Server) states(ctx context.Context) []state {
	var all []state
	tenant := engine.Client(ctx).Tenant
	for _, p := range s.engine.Paused(ctx) {
		var n note
		if p.Spec.Client.Tenant != tenant {
			continue
		}
		if err := json.Unmarshal(p.Note, &n); err == nil && n.Saved != nil && n.Saved.Label != "" {
			all = append(all, state{saved: *n.Saved, id: p.ID, since: p.Since, spec: p.Spec})
		}
	}
	slices.SortFunc(all, func(a, b state) int { return cmp.Or(b.since.Compare(a.since), cmp.Compare(a.id, b.id)) })
	return all
}

// state returns the state with a name, or the newest one with an id.
func (s *Server) state(ctx context.Context, name string) (state, bool) {
	all := s.states(ctx)
	if st, ok := holder(all, withTag(name)); ok {
		return st, true
	}
	for _, st := range all {
		if st.Label == name || st.Label+":"+defaultTag == name {
			return st, true
		}
	}
	return state{}, false
}

// holder returns the state that has a name with a tag.
func holder(all []state, name string) (found state, ok bool) {
	for _, st := range all { // newest first
		if slices.Contains(st.Names, name) && (!ok || st.named(name).After(found.named(name))) {
			found, ok = st, true
		}
	}
	return found, ok
}

// named returns when the state got a name of its own.
func (st state) named(name string) time.Time {
	if at, ok := st.Named[name]; ok {
		return at
	}
	return st.since
}

// withTag returns a name with its tag.
func withTag(name string) string {
	if !strings.Contains(name, ":") {
		name += ":" + defaultTag
	}
	return name
}

// current returns those names of a state that no other one of all got after it.
func (st state) current(all []state) []string {
	names := []string{}
	for _, name := range st.Names {
		if has, _ := holder(all, name); has.id == st.id {
			names = append(names, name)
		}
	}
	return names
}

// newLabel returns a new id of a saved state.
func newLabel(prefix string) string {
	var b [10]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return prefix + hex.EncodeToString(b[:])
}

// newUUID returns a random UUID, which clients want as the id of a build (RFC 9562, version 4).
func newUUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// checkName checks a name of a state, which may have a tag, and returns it with a tag and in lower
// case.
func checkName(name string) (string, error) {
	name = strings.ToLower(name)
	if ok := regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,127}(:[a-z0-9_][a-z0-9_.-]{0,127})?$`).MatchString(name); !ok {
		return "", invalid("name", "the name "+sandbar.Quote(name, 80)+" is not valid", "use letters, digits, - and _; a tag may follow after a colon")
	}
	if base, _, _ := strings.Cut(name, ":"); base == baseTemplate || base == interpreterTemplate {
		return "", invalid("name", "the name "+base+" is that of a built-in template", "use another one")
	}
	return withTag(name), nil
}

// canPause checks that a sandbox can be paused with or without its memory.
func (s *Server) canPause(memory bool) error {
	switch keeps := s.engine.Caps().SavesPrograms; {
	case memory && !keeps:
		return &sandbar.Error{Code: sandbar.Unsupported, Field: "memory", Message: "this driver keeps the files of a sandbox, and not its memory",
			Fix: "pause with memory: false (keepMemory: false, keep_memory=False)"}
	case !memory && keeps:
		return unsupported("memory", "this driver pauses a sandbox with its memory only")
	}
	return nil
}

// whole checks that a copy of the sandbox has everything. A driver that keeps the files alone
// cannot copy programs.
func (l *life) whole() error {
	if !l.server.engine.Saves() {
		return unsupported("", "this driver cannot save a sandbox")
	}
	running := max(l.sandbox.Info().Running, len(l.sandbox.Contexts()))
	if l.server.engine.Caps().SavesPrograms || running == 0 {
		return nil
	}
	return &sandbar.Error{Code: sandbar.Unsupported, Message: "this driver copies the files of a sandbox, and not its programs, of which " + strconv.Itoa(running) + " run",
		Fix: "end its commands and remove its code contexts first, or use the driver vm"}
}

// keepAs saves a sandbox as a state and removes it. On an error it is removed too.
func (s *Server) keepAs(ctx context.Context, id sandbar.ID, v saved) error {
	b, err := json.Marshal(note{Saved: &v})
	if err == nil {
		var sandbox *engine.Sandbox
		if sandbox, err = s.engine.Get(ctx, id); err == nil {
			sandbox.SetNote(b)
			err = s.engine.Pause(ctx, id)
		}
	}
	if err != nil && ctx.Err() == nil {
		go s.engine.Stop(context.Background(), id)
	}
	return err
}

// snapshot is a saved state for clients.
type snapshot struct {
	ID    string   `json:"snapshotID"`
	Names []string `json:"names"`
}

// serveSnapshot makes a snapshot of a sandbox: a copy of it, which is paused.
func (e *entry) serveSnapshot(w http.ResponseWriter, r *http.Request) error {
	raw, err := readBody(w, r, maxBody)
	if err != nil {
		return err
	}
	var name string
	if len(raw) > 0 {
		if err := strictjson.Object("the body", raw, strictjson.Text("name", &name)); err != nil {
			return err
		}
	}
	v := saved{Kind: snapshotKind, Label: newLabel("s"), Source: e.label(), Template: e.Template, Build: e.Build}
	if name != "" {
		if name, err = checkName(name); err != nil {
			return err
		}
		v.Names = []string{name}
	}
	l, err := e.current()
	if err == nil {
		err = l.whole()
	}
	if err != nil {
		return err
	}
	copies, err := e.server.engine.Fork(r.Context(), e.id, 1)
	if err != nil {
		return err
	}
	if err := e.server.keepAs(r.Context(), copies[0].ID(), v); err != nil {
		return err
	}
	answer(w, http.StatusCreated, snapshot{v.Label, append([]string{}, v.Names...)})
	return nil
}

// listSnapshots lists the snapshots, newest first.
func (s *Server) listSnapshots(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	f, err := decodeFilter(q)
	if err != nil {
		return err
	}
	all, page := s.states(r.Context()), []snapshot{}
	for _, st := range all {
		names, at := st.current(all), position{st.since.UnixNano(), st.Label}
		if st.Kind != snapshotKind || q.Get("sandboxID") != "" && q.Get("sandboxID") != st.Source ||
			q.Get("name") != "" && !slices.Contains(names, withTag(q.Get("name"))) || f.after != nil && f.compare(at, *f.after) <= 0 {
			continue
		}
		if len(page) == f.limit {
			w.Header().Set("X-Next-Token", f.last.token())
			break
		}
		f.last = at
		page = append(page, snapshot{st.Label, names})
	}
	answer(w, http.StatusOK, page)
	return nil
}

// deleteState removes the states with a name or an id: a snapshot, or all builds of a template.
func (s *Server) deleteState(w http.ResponseWriter, r *http.Request, name string) error {
	st, ok := s.state(r.Context(), name)
	if !ok {
		return templateNotFound(name)
	}
	for _, other := range s.states(r.Context()) {
		if other.Label == st.Label {
			if err := s.engine.Stop(r.Context(), other.id); err != nil && sandbar.CodeOf(err) != sandbar.NotFound {
				return err
			}
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func templateNotFound(name string) error {
	return &sandbar.Error{Code: sandbar.NotFound, Field: "templateID", Message: "template " + sandbar.Quote(name, 80) + " not found: there is no such image, template or snapshot",
		Fix: "use " + baseTemplate + ", or an image of \"sandbar images\""}
}

// makeFrom makes a sandbox from a state.
func (s *Server) makeFrom(r *http.Request, st state, c create) (*engine.Sandbox, error) {
	f := engine.FromPaused{Labels: c.Metadata, Env: c.Env, Client: engine.Client(r.Context())}
	switch to, none := c.egress(); {
	case none:
		f.Network = sandbar.NetworkNone
	case c.Internet != nil || len(c.Allow) > 0:
		f.Network, f.Egress = sandbar.NetworkOutbound, to
	case st.spec.Network == sandbar.NetworkOutbound:
		f.Egress = to
	}
	sandbox, err := s.engine.CreateFrom(r.Context(), st.id, f)
	if sandbar.CodeOf(err) == sandbar.NotFound { // it was removed in the meantime
		err = templateNotFound(c.Template)
	}
	return sandbox, err
}

// forked is one sandbox of a fork.
type forked struct {
	Sandbox created `json:"sandbox"`
}

// serveFork copies a sandbox. If the client has left in the meantime, the copies are removed.
func (e *entry) serveFork(w http.ResponseWriter, r *http.Request) error {
	raw, err := readBody(w, r, maxBody)
	if err != nil {
		return err
	}
	var seconds, count *int64
	if len(raw) > 0 {
		if err := strictjson.Object("the body", raw, strictjson.Value("timeout", "a whole number of seconds", &seconds),
			strictjson.Value("count", "a whole number", &count)); err != nil {
			return err
		}
	}
	n := int64(1)
	if count != nil {
		n = *count
	}
	if n < 1 || n > 100 {
		return invalid("count", "count must be 1 to 100", "")
	}
	timeout, err := e.server.timeout(seconds, defaultTimeout)
	if err != nil {
		return err
	}
	l, err := e.current()
	if err == nil {
		err = l.whole()
	}
	if err != nil {
		return err
	}
	copies, err := e.server.engine.Fork(r.Context(), e.id, int(n))
	if err != nil {
		return err
	}
	all := []forked{}
	for _, c := range copies {
		g := e.grant
		g.Token = newToken("ea_")
		if g.Traffic != "" {
			g.Traffic = newToken("ta_")
		}
		var f *life
		if f, err = e.server.enter(r.Context(), c, g, timeout); err != nil {
			break
		}
		all = append(all, forked{f.created(r)})
	}
	if err != nil {
		for _, c := range copies {
			go e.server.engine.Stop(context.Background(), c.ID())
		}
		return err
	}
	answer(w, http.StatusCreated, all)
	return nil
}

// enter registers a new sandbox. On an error the caller removes it. With a short timeout, the
// sandbox may have ended when enter returns.
func (s *Server) enter(ctx context.Context, sandbox *engine.Sandbox, g grant, timeout time.Duration) (l *life, err error) {
	e := &entry{server: s, id: sandbox.ID(), grant: g}
	if err = s.add(e); err == nil {
		l, err = e.adopt(sandbox)
	}
	if err == nil && ctx.Err() != nil {
		err = sandbar.Errorf(sandbar.Canceled, "the client left")
	}
	if err != nil {
		return nil, err
	}
	e.endAt(time.Now().Add(timeout), false)
	return l, nil
}

const (
	// retryPause is the time until another try to pause a sandbox at its timeout.
	retryPause = 30 * time.Second
)

// expire ends the sandbox at its timeout: it pauses or removes it.
func (e *entry) expire() {
	s := e.server
	s.options.Logger.Info("sandbox reached its timeout", "sandbox", e.id)
	if !e.AutoPause {
		if sandbox, err := s.engine.Get(context.Background(), e.id); err == nil {
			sandbox.End(engine.EndedLifetime)
		}
		s.engine.Stop(context.Background(), e.id)
		return
	}
	err := e.pause(context.Background())
	switch sandbar.CodeOf(err) {
	case "", sandbar.NotFound, sandbar.Conflict, sandbar.Gone:
	default: // it stays, and ends at its maximum lifetime
		s.options.Logger.Warn("sandbox not paused at its timeout", "sandbox", e.id, "error", err)
		e.endAt(time.Now().Add(retryPause), false)
	}
}

// pause pauses the sandbox, which has no end then. wake waits until it is paused.
func (e *entry) pause(ctx context.Context) error {
	e.waking.Lock()
	defer e.waking.Unlock()
	err := e.server.engine.Pause(ctx, e.id)
	if err == nil {
		e.keep()
	}
	return err
}

// wake resumes a paused sandbox. Of several calls at once, one resumes it. resumed: this one did.
func (e *entry) wake(ctx context.Context) (l *life, resumed bool, err error) {
	e.waking.Lock()
	defer e.waking.Unlock()
	if l, err = e.current(); sandbar.CodeOf(err) != sandbar.Conflict {
		return l, false, err
	}
	sandbox, err := e.server.engine.Resume(ctx, e.id)
	if err != nil {
		return nil, false, err
	}
	if l, err = e.adopt(sandbox); err == nil {
		err = l.launch(ctx)
	}
	return l, true, err
}

// wakeForTraffic resumes a sandbox because of a request to it.
func (e *entry) wakeForTraffic(ctx context.Context) (*life, error) {
	l, resumed, err := e.wake(ctx)
	if resumed && err == nil {
		e.again()
	}
	return l, err
}

// again sets the end after a resumption that no client has asked for: the timeout of the creation,
// or the default if that is longer.
func (e *entry) again() {
	timeout := max(time.Duration(e.Timeout)*time.Second, defaultTimeout)
	if most := e.server.options.MaxTimeout; most >= 0 {
		timeout = min(timeout, most)
	}
	e.endAt(time.Now().Add(timeout), false)
}

// TakeResumed takes the sandboxes that were resumed since New. It is called once, before requests.
func (s *Server) TakeResumed() {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.entries))
	s.mu.Unlock()
	for _, e := range all {
		if l, err := e.current(); err == nil {
			e.again()
			s.watching.Go(func() { l.launch(s.all) }) // a failure is that of the template's start command
		}
	}
}
