package e2b

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/text/strictjson"
)

const (
	// envdVersion is the version of E2B's envd whose behaviour this package has. SDKs decide by it
	// what they ask for.
	envdVersion = "0.6.13"
	// clientID is a required field without a meaning.
	clientID = "sandbar"

	baseTemplate        = "base"
	interpreterTemplate = "code-interpreter-v1"

	stateRunning = "running"
	statePaused  = "paused"
)

// created is the description of a sandbox for the client that has created it or connects to it.
type created struct {
	SandboxID    string `json:"sandboxID"`
	TemplateID   string `json:"templateID"`
	Alias        string `json:"alias,omitempty"`
	ClientID     string `json:"clientID"`
	EnvdVersion  string `json:"envdVersion"`
	AccessToken  string `json:"envdAccessToken,omitempty"`
	TrafficToken string `json:"trafficAccessToken,omitempty"`
	Domain       string `json:"domain,omitempty"`
}

// described is the description of a sandbox. Get adds the tokens and the domain.
type described struct {
	created
	size
	StartedAt time.Time         `json:"startedAt"`
	EndAt     time.Time         `json:"endAt"`
	State     string            `json:"state"`
	Metadata  map[string]string `json:"metadata"`
	Internet  *bool             `json:"allowInternetAccess,omitempty"`
	Lifecycle *lifecycle        `json:"lifecycle,omitempty"`
	Network   *networkInfo      `json:"network,omitempty"`
}

type lifecycle struct {
	OnTimeout  string `json:"onTimeout"`
	AutoResume bool   `json:"autoResume"`
}

// operation is an operation of the control plane. A "*" in its path stands for one segment.
type operation struct {
	method, path string
	// serve serves a request. args are the segments of "*".
	serve func(s *Server, w http.ResponseWriter, r *http.Request, args []string) error
}

// operations returns all operations of the control plane. Of several that match a request, the
// first one serves it.
func operations() []operation {
	one := func(action string, old bool) func(*Server, http.ResponseWriter, *http.Request, []string) error {
		return func(s *Server, w http.ResponseWriter, r *http.Request, args []string) error {
			return s.serveOne(w, r, args[0], action, old)
		}
	}
	type server = *Server
	type writer = http.ResponseWriter
	type request = *http.Request
	return []operation{
		{"GET", "/sandboxes", func(s server, w writer, r request, _ []string) error { return s.list(w, r, true) }},
		{"GET", "/v2/sandboxes", func(s server, w writer, r request, _ []string) error { return s.list(w, r, false) }},
		{"POST", "/sandboxes", func(s server, w writer, r request, _ []string) error { return s.create(w, r, true) }},
		{"POST", "/v2/sandboxes", func(s server, w writer, r request, _ []string) error { return s.create(w, r, false) }},
		{"GET", "/sandboxes/metrics", func(s server, w writer, r request, _ []string) error { s.serveAllMetrics(w, r); return nil }},
		{"GET", "/sandboxes/*", one("", true)},
		{"DELETE", "/sandboxes/*", one("", true)},
		{"GET", "/sandboxes/*/metrics", one("metrics", true)},
		{"GET", "/sandboxes/*/logs", one("logs", true)},
		{"GET", "/v2/sandboxes/*/logs", one("logs", false)},
		{"POST", "/sandboxes/*/timeout", one("timeout", true)},
		{"POST", "/sandboxes/*/refreshes", one("refreshes", true)},
		{"POST", "/sandboxes/*/pause", one("pause", true)},
		{"POST", "/sandboxes/*/snapshots", one("snapshots", true)},
		{"POST", "/sandboxes/*/fork", one("fork", true)},
		{"POST", "/sandboxes/*/resume", one("resume", true)},
		{"POST", "/sandboxes/*/connect", one("connect", true)},
		{"POST", "/v2/sandboxes/*/connect", one("connect", false)},
		{"PUT", "/sandboxes/*/network", one("network", true)},
		{"GET", "/snapshots", func(s server, w writer, r request, _ []string) error { return s.listSnapshots(w, r) }},
		{"POST", "/v3/templates", func(s server, w writer, r request, _ []string) error { return s.requestBuild(w, r) }},
		{"GET", "/templates", func(s server, w writer, r request, _ []string) error { return s.listTemplates(w, r, "") }},
		{"GET", "/v2/templates", func(s server, w writer, r request, _ []string) error { return s.listTemplates(w, r, "v2") }},
		{"POST", "/templates/tags", func(s server, w writer, r request, _ []string) error { return s.assignTags(w, r) }},
		{"DELETE", "/templates/tags", func(s server, w writer, r request, _ []string) error { return s.removeTags(w, r) }},
		{"GET", "/templates/aliases/*", func(s server, w writer, r request, a []string) error { return s.serveAlias(w, r, a[0]) }},
		{"GET", "/templates/*", func(s server, w writer, r request, a []string) error { return s.serveTemplate(w, r, a[0]) }},
		{"PATCH", "/templates/*", func(s server, w writer, r request, a []string) error { return s.updateTemplate(w, r, a[0]) }},
		{"PATCH", "/v2/templates/*", func(s server, w writer, r request, a []string) error { return s.updateTemplate(w, r, a[0]) }},
		{"DELETE", "/templates/*", func(s server, w writer, r request, a []string) error { return s.deleteState(w, r, a[0]) }},
		{"GET", "/templates/*/tags", func(s server, w writer, r request, a []string) error { return s.serveTags(w, r, a[0]) }},
		{"GET", "/templates/*/files/*", func(s server, w writer, r request, a []string) error { return s.serveUpload(w, r, a[0], a[1]) }},
		{"PUT", "/templates/*/files/*", func(s server, w writer, r request, a []string) error { return s.serveUpload(w, r, a[0], a[1]) }},
		{"POST", "/v2/templates/*/builds/*", func(s server, w writer, r request, a []string) error { return s.startBuild(w, r, a[0], a[1]) }},
		{"GET", "/templates/*/builds/*/status", func(s server, w writer, r request, a []string) error { return s.serveStatus(w, r, a[0], a[1]) }},
		{"GET", "/templates/*/builds/*/logs", func(s server, w writer, r request, a []string) error { return s.serveBuildLogs(w, r, a[0], a[1]) }},
	}
}

// matches reports whether a path is one of the operation, and returns its arguments.
func (o operation) matches(path string) (args []string, ok bool) {
	parts, wanted := strings.Split(strings.Trim(path, "/"), "/"), strings.Split(o.path[1:], "/")
	if len(parts) != len(wanted) {
		return nil, false
	}
	for i, p := range wanted {
		switch {
		case p == "*" && parts[i] != "":
			args = append(args, parts[i])
		case p != parts[i]:
			return nil, false
		}
	}
	return args, true
}

// servePlane serves a request to the control plane, which has the API key of a client.
func (s *Server) servePlane(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, o := range operations() {
		args, ok := o.matches(r.URL.Path)
		if ok && o.method == r.Method {
			if err := o.serve(s, w, r, args); err != nil {
				fail(w, err)
			}
			return
		}
		if ok && !slices.Contains(allowed, o.method) {
			allowed = append(allowed, o.method)
		}
	}
	if allowed == nil {
		fail(w, unsupported("", "the path "+sandbar.Quote(r.URL.Path, 100)+" is not served"))
		return
	}
	slices.Sort(allowed)
	notAllowed(w, r, strings.Join(allowed, ", "))
}

// serveOne serves an action on one sandbox.
func (s *Server) serveOne(w http.ResponseWriter, r *http.Request, label, action string, old bool) error {
	e, err := s.parse(r.Context(), label)
	if err != nil {
		return err
	}
	switch action {
	case "timeout", "refreshes":
		return e.serveTimeout(w, r, action)
	case "pause":
		return e.servePause(w, r)
	case "snapshots":
		return e.serveSnapshot(w, r)
	case "fork":
		return e.serveFork(w, r)
	case "resume", "connect":
		return e.serveConnect(w, r, action, old)
	case "metrics":
		return e.serveMetrics(w, r)
	case "network":
		return e.updateNetwork(w, r)
	case "logs":
		return e.serveLogs(w, r, old)
	}
	if r.Method == http.MethodDelete {
		if err := s.engine.Stop(r.Context(), e.id); err != nil {
			return err
		}
		e.keep()
		s.forget(e)
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	info, state, err := e.info(r.Context())
	if err != nil {
		return err
	}
	d := e.describe(info, state)
	if d.created = e.created(r); !engine.Client(r.Context()).Writes() {
		d.AccessToken, d.TrafficToken = "", "" // they allow more than reading
	}
	network, internet := e.networkOf(info.Spec)
	d.Internet, d.Network, d.Lifecycle = &internet, &network, &lifecycle{OnTimeout: "kill", AutoResume: e.AutoResume}
	if e.AutoPause {
		d.Lifecycle.OnTimeout = "pause"
	}
	answer(w, http.StatusOK, d)
	return nil
}

// create creates a sandbox. If the client has left in the meantime, it is removed, because the
// client does not know its id.
func (s *Server) create(w http.ResponseWriter, r *http.Request, old bool) error {
	raw, err := readBody(w, r, maxBody)
	if err != nil {
		return err
	}
	c, err := decodeCreate(raw)
	if err != nil {
		return err
	}
	initial := defaultTimeout
	if old {
		initial = oldTimeout
	}
	timeout, err := s.timeout(c.Timeout, initial)
	if err != nil {
		return err
	}
	if c.AutoPause {
		if !s.engine.Saves() {
			return unsupported("autoPause", "this driver cannot save a sandbox, so it cannot be paused at its timeout")
		}
		if err := s.canPause(c.PauseMemory); err != nil {
			return err
		}
	}
	g := grant{Template: cmp.Or(c.Template, baseTemplate), Token: newToken("ea_"), AutoPause: c.AutoPause, AutoResume: c.AutoResume, Timeout: int64(timeout / time.Second)}
	if c.Private {
		g.Traffic = newToken("ta_")
	}
	var sandbox *engine.Sandbox
	if st, ok := s.state(r.Context(), c.Template); ok {
		g.Build = st.Build
		if st.Build != nil && st.Kind == templateKind {
			env := maps.Clone(st.Build.Env)
			if env == nil {
				env = map[string]string{}
			}
			maps.Copy(env, c.Env)
			c.Env = env
		}
		sandbox, err = s.makeFrom(r, st, c)
	} else if sandbox, err = s.engine.Create(r.Context(), s.spec(engine.Client(r.Context()), c)); sandbar.CodeOf(err) == sandbar.NotFound {
		err = templateNotFound(c.Template)
	}
	if err != nil {
		return err
	}
	l, err := s.enter(r.Context(), sandbox, g, timeout)
	if err == nil {
		err = l.launch(r.Context())
	}
	if err != nil {
		go s.engine.Stop(context.Background(), sandbox.ID())
		return err
	}
	answer(w, http.StatusCreated, l.created(r))
	return nil
}

// spec returns the engine's Spec. The time of the sandbox's end is the server's, so it has no idle
// timeout.
func (s *Server) spec(client sandbar.Client, c create) sandbar.Spec {
	spec := sandbar.Spec{Image: imageOf(c.Template), Env: c.Env, Labels: c.Metadata, IdleTimeout: -1, Client: client, Network: sandbar.NetworkNone}
	to, none := c.egress()
	if c.Internet == nil && s.engine.Caps().Outbound && !none || c.Internet != nil && *c.Internet || len(c.Allow) > 0 {
		spec.Network, spec.Egress = sandbar.NetworkOutbound, to
	}
	_, _, most := s.engine.Limits()
	spec.Limits.Timeout, spec.Limits.Output = most.Timeout, most.Output
	return spec
}

// imageOf returns the image of a template.
func imageOf(template string) string {
	switch template {
	case "", baseTemplate, interpreterTemplate:
		return ""
	}
	return template
}

// created describes a sandbox for the client of a request, which has reached the daemon at r.Host.
func (e *entry) created(r *http.Request) created {
	domain := e.server.options.Domain
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		domain = net.JoinHostPort(domain, port)
	}
	return created{SandboxID: e.label(), TemplateID: e.Template, Alias: e.Template, ClientID: clientID, EnvdVersion: envdVersion,
		AccessToken: e.Token, TrafficToken: e.Traffic, Domain: domain}
}

// info returns the state of a sandbox. NotFound: it has ended.
func (e *entry) info(ctx context.Context) (engine.Info, string, error) {
	l, err := e.current()
	if err == nil {
		return l.sandbox.Info(), stateRunning, nil
	}
	for _, p := range e.server.engine.Paused(ctx) {
		if p.ID == e.id {
			return engine.Info{ID: p.ID, Spec: p.Spec, Created: p.Created}, statePaused, nil
		}
	}
	return engine.Info{}, "", err
}

func (e *entry) describe(i engine.Info, state string) described {
	d := described{created: created{SandboxID: e.label(), TemplateID: e.Template, Alias: e.Template, ClientID: clientID, EnvdVersion: envdVersion},
		StartedAt: i.Created.UTC(), EndAt: e.ends().UTC(), State: state, size: sizeOf(i.Spec), Metadata: i.Spec.Labels}
	if d.Metadata == nil {
		d.Metadata = map[string]string{}
	}
	return d
}

// list lists the sandboxes, newest first.
func (s *Server) list(w http.ResponseWriter, r *http.Request, old bool) error {
	f, err := decodeFilter(r.URL.Query())
	if err != nil {
		return err
	}
	if old { // one page with the running sandboxes
		f = filter{metadata: f.metadata, running: true, limit: math.MaxInt}
	}
	all := []described{}
	running := 0
	for _, e := range s.snapshot(r.Context()) {
		i, state, err := e.info(r.Context())
		if err != nil {
			continue // it has just ended
		}
		if state == stateRunning {
			running++
		}
		if d := e.describe(i, state); f.selects(d) {
			all = append(all, d)
		}
	}
	if s.options.Others != nil {
		others, n, err := s.others(r)
		if err != nil {
			return err
		}
		all, running = append(all, others...), running+n
	}
	slices.SortFunc(all, func(a, b described) int { return f.compare(a.position(), b.position()) })
	if f.after != nil {
		i, found := slices.BinarySearchFunc(all, *f.after, func(d described, p position) int { return f.compare(d.position(), p) })
		if found {
			i++
		}
		all = all[i:]
	}
	if len(all) > f.limit {
		all = all[:f.limit]
		w.Header().Set("X-Next-Token", all[f.limit-1].position().token())
	}
	w.Header().Set("X-Total-Running", strconv.Itoa(running))
	answer(w, http.StatusOK, all)
	return nil
}

// others returns the sandboxes of other daemons that meet the request's conditions, of each at
// least as many as fit into the response, and how many run.
func (s *Server) others(r *http.Request) (all []described, running int, err error) {
	headers, bodies, err := s.options.Others(r)
	if err != nil {
		return nil, 0, err
	}
	for i, b := range bodies {
		var list []described
		err := json.Unmarshal(b, &list)
		n, bad := strconv.Atoi(headers[i].Get("X-Total-Running"))
		if err = errors.Join(err, bad); err != nil {
			return nil, 0, sandbar.Errorf(sandbar.Unavailable, "another daemon answers with a list that cannot be read: %w", err)
		}
		all, running = append(all, list...), running+n
	}
	return all, running, nil
}

func (d described) position() position { return position{d.StartedAt.UnixNano(), d.SandboxID} }

func (f filter) compare(a, b position) int {
	order := cmp.Or(cmp.Compare(a.Started, b.Started), cmp.Compare(a.ID, b.ID))
	if f.ascending {
		return order
	}
	return -order
}

func (f filter) selects(d described) bool {
	for name, value := range f.metadata {
		if got, ok := d.Metadata[name]; !ok || got != value {
			return false
		}
	}
	return (d.State == stateRunning && f.running || d.State == statePaused && f.paused) &&
		(f.template == "" || f.template == d.TemplateID) && (f.startedAfter.IsZero() || d.StartedAt.After(f.startedAfter))
}

// serveTimeout sets the time of the sandbox's end; a refresh only lengthens the time left.
func (e *entry) serveTimeout(w http.ResponseWriter, r *http.Request, action string) error {
	raw, err := readBody(w, r, maxBody)
	if err != nil {
		return err
	}
	name := "timeout"
	if action == "refreshes" {
		name = "duration"
	}
	var seconds *int64
	if err := strictjson.Object("the body", raw, strictjson.Value(name, "a whole number of seconds", &seconds)); err != nil {
		return err
	}
	timeout, err := e.server.timeout(seconds, oldTimeout)
	if err != nil {
		return err
	}
	if _, err := e.current(); err != nil {
		return err
	}
	e.endAt(time.Now().Add(timeout), action == "refreshes")
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// servePause pauses a sandbox.
func (e *entry) servePause(w http.ResponseWriter, r *http.Request) error {
	raw, err := readBody(w, r, maxBody)
	if err != nil {
		return err
	}
	memory := true
	if len(raw) > 0 {
		if err := strictjson.Object("the body", raw, strictjson.Truth("memory", &memory)); err != nil {
			return err
		}
	}
	if err := e.server.canPause(memory); err != nil {
		return err
	}
	if _, err := e.current(); err != nil {
		return err
	}
	if err := e.pause(r.Context()); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// serveConnect resumes a paused sandbox, and gives it time. With connect a running one only gets
// more time.
func (e *entry) serveConnect(w http.ResponseWriter, r *http.Request, action string, old bool) error {
	raw, err := readBody(w, r, maxBody)
	if err != nil {
		return err
	}
	var seconds *int64
	var autoPause bool
	memory := true
	if len(raw) > 0 {
		if err := strictjson.Object("the body", raw, strictjson.Value("timeout", "a whole number of seconds", &seconds),
			strictjson.Truth("memory", &memory), strictjson.Truth("autoPause", &autoPause)); err != nil {
			return err
		}
	}
	if autoPause && !e.AutoPause {
		return unsupported("autoPause", "whether a sandbox is paused at its timeout is decided at its creation")
	}
	if !memory && e.server.engine.Caps().SavesPrograms {
		return unsupported("memory", "this driver resumes a sandbox with its memory only")
	}
	initial := defaultTimeout
	if old {
		initial = oldTimeout
	}
	timeout, err := e.server.timeout(seconds, initial)
	if err != nil {
		return err
	}
	_, resumed, err := e.wake(r.Context())
	switch {
	case err != nil:
		return err
	case !resumed && action == "resume":
		return sandbar.Errorf(sandbar.Conflict, "sandbox %s is not paused", e.label())
	}
	status := http.StatusOK
	if resumed {
		status = http.StatusCreated
	}
	e.endAt(time.Now().Add(timeout), status == http.StatusOK)
	answer(w, status, e.created(r))
	return nil
}
