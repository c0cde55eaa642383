package e2b

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/protocol/ports"
)

const (
	envdPort        = 49983
	interpreterPort = 49999

	keyHeader     = "X-Api-Key"
	tokenHeader   = "X-Access-Token"
	trafficHeader = "E2b-Traffic-Access-Token"
	sandboxHeader = "E2b-Sandbox-Id"
	portHeader    = "E2b-Sandbox-Port"

	filesPath = "/files"
)

// planePaths are the first segments of the paths of the control plane.
func planePaths() []string {
	return []string{"sandboxes", "snapshots", "templates", "v2", "v3", "volumes", "volumecontent", "secrets"}
}

// address is the target of a request into a sandbox.
type address struct {
	id     sandbar.ID
	label  string // the id as the client has sent it
	port   int
	byHost bool // by host name, not by headers
}

// Claims implements httpd.Overlay. A request of the protocol has an API key and a path of the
// control plane, names a sandbox by a header, or is one for files.
func (s *Server) Claims(r *http.Request) (key string, keyed, claimed bool) {
	if inside(r) {
		return "", false, true
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	keys := r.Header.Values(keyHeader)
	if len(keys) == 0 || !slices.Contains(planePaths(), first) {
		return "", false, false
	}
	if len(keys) > 1 {
		return "", true, true // which one is it?
	}
	return keys[0], true, true
}

// SandboxOf returns the sandbox that a request is for, "" for none, and whether this daemon has it.
// claimed: the request is one of the protocol. It has not been checked.
func (s *Server) SandboxOf(r *http.Request) (key string, here, claimed bool) {
	id, _, ok := s.names.Parse(ports.NameOf(r.Host))
	if !ok {
		if _, _, claimed := s.Claims(r); !claimed {
			return "", false, false
		}
		label := r.Header.Get(sandboxHeader)
		if !inside(r) {
			path, _ := strings.CutPrefix(r.URL.Path, "/v2")
			if parts := strings.Split(strings.Trim(path, "/"), "/"); parts[0] == "sandboxes" && len(parts) > 1 {
				label = parts[1]
			}
		}
		if id, ok = s.names.ParseLabel(label); !ok {
			return "", false, true
		}
	}
	_, here = s.engine.Owner(id)
	return string(id), here, true
}

// inside reports whether a request without an API key leads into a sandbox.
func inside(r *http.Request) bool {
	return len(r.Header.Values(sandboxHeader)) > 0 || len(r.Header.Values(portHeader)) > 0 || r.URL.Path == filesPath
}

// ServeHTTP serves a request that Claims has accepted. The listener has checked the Host, the
// Origin and the API key.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !inside(r) {
		ctx, end, err := s.begin(r.Context(), false)
		if err != nil {
			fail(w, err)
			return
		}
		defer end()
		s.servePlane(w, r.WithContext(ctx))
		return
	}
	a, err := s.addressOf(r)
	if err != nil {
		fail(w, err)
		return
	}
	s.serveData(w, r, a)
}

// addressOf returns the target of a request to the daemon's own host name.
func (s *Server) addressOf(r *http.Request) (address, error) {
	labels, numbers := r.Header.Values(sandboxHeader), r.Header.Values(portHeader)
	if len(labels) == 0 && len(numbers) == 0 {
		return s.addressOfFile(r)
	}
	if len(labels) != 1 || len(numbers) != 1 {
		return address{}, invalid(sandboxHeader, "the request must have "+sandboxHeader+" and "+portHeader+" once each", "")
	}
	port, err := ports.Parse(numbers[0])
	if err != nil {
		return address{}, err
	}
	id, _ := s.names.ParseLabel(labels[0]) // a malformed id is that of no sandbox
	return address{id: id, label: labels[0], port: port}, nil
}

// addressOfFile returns the sandbox of a request for files that does not name it: the one of its
// access token, or of its signature. It compares with all sandboxes, so that the duration does not
// depend on the token.
func (s *Server) addressOfFile(r *http.Request) (address, error) {
	token, signed := r.Header.Get(tokenHeader), signatureOf(r)
	var found *entry
	for _, e := range s.snapshot(context.Background()) {
		if token != "" && same(token, e.Token) || token == "" && signed.by(e.Token) {
			found = e
		}
	}
	if found == nil {
		return address{}, &sandbar.Error{Code: sandbar.Unauthenticated, Message: "the request names no sandbox, and its access token or signature is that of none",
			Fix: "send the headers " + sandboxHeader + " and " + portHeader}
	}
	return address{id: found.id, label: found.label(), port: envdPort}, nil
}

// bearer returns the caller of a request into a sandbox, who may use that sandbox only: the
// sandbox's own tokens are checked where they are needed.
func (s *Server) bearer(r *http.Request, id sandbar.ID) sandbar.Client {
	c := engine.Client(r.Context())
	owner, _ := s.engine.Owner(id)
	c.Name, c.Tenant, c.Role, c.Sandbox = "", owner.Tenant, sandbar.RoleUser, id
	return c
}

// serveData serves a request into a sandbox.
func (s *Server) serveData(w http.ResponseWriter, r *http.Request, a address) {
	ctx, end, err := s.begin(engine.WithClient(r.Context(), s.bearer(r, a.id)), endless(r, a))
	if err != nil {
		fail(w, err)
		return
	}
	defer end()
	r = r.WithContext(ctx)
	var l *life
	e, err := s.find(context.Background(), a.id) // its own tokens are checked below
	if err == nil {
		if e.AutoResume {
			l, err = e.wakeForTraffic(ctx)
		} else {
			l, err = e.current()
		}
	}
	switch sandbar.CodeOf(err) {
	case "":
	case sandbar.NotFound, sandbar.Conflict, sandbar.Gone: // a paused sandbox is not reachable either
		sandboxGone(w, a.label)
		return
	default:
		fail(w, err)
		return
	}
	leave, err := l.enter()
	if err != nil {
		fail(w, err)
		return
	}
	defer leave()
	switch {
	case a.port == envdPort:
		l.serveEnvd(w, r)
	case l.Traffic != "" && !same(r.Header.Get(trafficHeader), l.Traffic):
		fail(w, &sandbar.Error{Code: sandbar.Denied, Message: "the ports of this sandbox are private", Fix: "send the header " + trafficHeader})
	case a.port == interpreterPort:
		l.serveInterpreter(w, r)
	default:
		l.serveProgram(w, r, a)
	}
}

// endless reports whether a request has no end of its own, so that Shutdown need not wait for it.
func endless(r *http.Request, a address) bool {
	if a.port != envdPort {
		return a.port != interpreterPort
	}
	return slices.Contains([]string{"/process.Process/Connect", "/process.Process/StreamInput", "/filesystem.Filesystem/WatchDir"}, r.URL.Path)
}

// serveProgram forwards a request to a program in the sandbox. Programs see no token of the
// protocol.
func (l *life) serveProgram(w http.ResponseWriter, r *http.Request, a address) {
	ports.Proxy{Transport: l.transport, Port: a.port,
		Rewrite: func(out *http.Request) {
			out.Host = r.Host // for links
			for _, name := range []string{tokenHeader, trafficHeader, sandboxHeader, portHeader} {
				out.Header.Del(name)
			}
		},
		Modify: func(resp *http.Response) {
			ports.Clean(resp, a.port, r.Host)
			if !a.byHost { // the listener has set them for its own host name
				for name := range w.Header() {
					resp.Header.Del(name)
				}
			}
		},
		Failed: func(w http.ResponseWriter, err *sandbar.Error) {
			if err.Code == sandbar.Unavailable {
				portClosed(w, a.label, a.port)
				return
			}
			fail(w, err)
		},
	}.ServeHTTP(w, r)
}
