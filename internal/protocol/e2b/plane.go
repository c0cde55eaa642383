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

// servePlane serves a request to the control plane, which has the API key of a client.
func (s *Server) servePlane(w http.ResponseWriter, r *http.Request) {
	path, _ := strings.CutPrefix(r.URL.Path, "/v2")
	parts := strings.Split(strings.Trim(path, "/"), "/")
	old := path == r.URL.Path
	var err error
	switch {
	case parts[0] == "snapshots" && len(parts) == 1 && old:
		if r.Method != http.MethodGet {
			notAllowed(w, r, http.MethodGet)
			break
		}
		err = s.listSnapshots(w, r)
	case parts[0] == "v3" && len(parts) > 1 && parts[1] == "templates":
		err = s.serveTemplates(w, r, parts[1:], "v3")
	case parts[0] == "templates" && old:
		err = s.serveTemplates(w, r, parts, "")
	case parts[0] == "templates":
		err = s.serveTemplates(w, r, parts, "v2")
	case parts[0] != "sandboxes" || len(parts) > 3:
		err = unsupported("", "the path "+sandbar.Quote(r.URL.Path, 100)+" is not served")
	case len(parts) == 1 && r.Method == http.MethodPost:
		err = s.create(w, r, old)
	case len(parts) == 1 && r.Method == http.MethodGet:
		err = s.list(w, r, old)
	case len(parts) == 1:
		notAllowed(w, r, "GET, POST")
	case parts[1] == "metrics" && len(parts) == 2 && old:
		s.serveAllMetrics(w, r.URL.Query())
	default:
		err = s.serveOne(w, r, parts[1], strings.Join(parts[2:], ""), old)
	}
	if err != nil {
		fail(w, err)
	}
}

// serveOne serves an action on one sandbox.
func (s *Server) serveOne(w http.ResponseWriter, r *http.Request, label, action string, old bool) error {
	methods := map[string]string{"": "DELETE, GET", "metrics": http.MethodGet, "timeout": http.MethodPost, "refreshes": http.MethodPost,
		"pause": http.MethodPost, "snapshots": http.MethodPost, "fork": http.MethodPost, "resume": http.MethodPost, "connect": http.MethodPost,
		"network": http.MethodPut, "logs": http.MethodGet}
	allow, known := methods[action]
	if !known || !old && action != "connect" && action != "logs" {
		return unsupported("", "the path "+sandbar.Quote(r.URL.Path, 100)+" is not served")
	}
	if !slices.Contains(strings.Split(allow, ", "), r.Method) {
		notAllowed(w, r, allow)
		return nil
	}
	e, err := s.parse(label)
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
	info, state, err := e.info()
	if err != nil {
		return err
	}
	d := e.describe(info, state)
	d.created = e.created(r)
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
	if st, ok := s.state(c.Template); ok {
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
	e, err := s.enter(r.Context(), sandbox, g, timeout)
	if err != nil {
		go s.engine.Stop(context.Background(), sandbox.ID())
		return err
	}
	if l, err := e.current(); err != nil {
		return err
	} else if err := l.launch(r.Context()); err != nil {
		go s.engine.Stop(context.Background(), sandbox.ID())
		return err
	}
	answer(w, http.StatusCreated, e.created(r))
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
func (e *entry) info() (engine.Info, string, error) {
	l, err := e.current()
	if err == nil {
		return l.sandbox.Info(), stateRunning, nil
	}
	for _, p := range e.server.engine.Paused() {
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
	for _, e := range s.snapshot() {
		i, state, err := e.info()
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
