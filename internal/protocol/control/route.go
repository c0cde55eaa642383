package control

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/url"
	"strings"

	"github.com/sandbar-dev/sandbar"
)

// kind is the kind of a path.
type kind int

const (
	collection    kind = iota // /sandboxes
	single                    // /sandboxes/{id}
	directory                 // /sandboxes/{id}/dir
	command                   // /sandboxes/{id}/exec
	port                      // /sandboxes/{id}/ports/{port}
	executor                  // /sandboxes/{id}/executor/…, /koyeb-sandbox/…
	web                       // /r/{id}/…
	pause                     // /sandboxes/{id}/pause
	resume                    // /sandboxes/{id}/resume
	fork                      // /sandboxes/{id}/fork
	watch                     // /sandboxes/{id}/watch
	previews                  // /sandboxes/{id}/previews, /sandboxes/{id}/previews/{port}
	preview                   // a host name of previews
	contexts                  // /sandboxes/{id}/contexts, and below
	document                  // /openapi.json
	metrics                   // /sandboxes/{id}/metrics
	renew                     // /sandboxes/{id}/renew
	happenings                // /events
	status                    // /status
	doctorReport              // /doctor
	configuration             // /configuration
	images                    // /images
	languages                 // /languages
	usage                     // /usage
	kinds                     // the number of kinds
)

// inside reports whether the path leads into a sandbox, so that the sandbox's own secret allows it.
func (k kind) inside() bool {
	return k == command || k == port || k == executor || k == web || k == watch || k == previews || k == contexts
}

// target is the target of a request.
type target struct {
	kind kind
	key  string // the id or name of a sandbox
	// rest is the remainder: the port, or a path that begins with "/". raw is its escaped form, or
	// "".
	rest, raw string
	prefix    string // the part before rest, for web
}

// routingKey is the header with the sandbox of a request below /koyeb-sandbox/.
const routingKey = "X-Routing-Key"

// route parses a request's path. It is the only function that does, so authorization and execution
// cannot disagree about the target.
func route(r *http.Request) (target, bool) {
	r = unversioned(r)
	path := r.URL.Path
	switch {
	case path == "/openapi.json":
		return target{kind: document}, true
	case top[path] != 0:
		return target{kind: top[path]}, true
	case path == "/sandboxes" || path == "/sandboxes/":
		return target{kind: collection}, true
	case strings.HasPrefix(path, "/sandboxes/"):
		return routeSandbox(r)
	case path == "/koyeb-sandbox" || strings.HasPrefix(path, "/koyeb-sandbox/"):
		keys := r.Header.Values(routingKey)
		if len(keys) > 1 {
			return target{}, false
		}
		return below(r.URL, 1, target{kind: executor, key: strings.Join(keys, "")})
	case strings.HasPrefix(path, "/r/"):
		key, _, _ := strings.Cut(path[len("/r/"):], "/")
		return below(r.URL, 2, target{kind: web, key: key})
	}
	return target{}, false
}

// version is the prefix of this version of the API. It may precede "/sandboxes", and precedes the
// paths of top.
const version = "/v1"

// top are the paths that are about no sandbox.
var top = map[string]kind{"/events": happenings, "/status": status, "/doctor": doctorReport, "/configuration": configuration, "/images": images, "/languages": languages, "/usage": usage}

// unversioned returns a request with the path below version, if it has that prefix.
func unversioned(r *http.Request) *http.Request {
	path, ok := strings.CutPrefix(r.URL.Path, version)
	if !ok || top[path] == 0 && path != "/sandboxes" && !strings.HasPrefix(path, "/sandboxes/") {
		return r
	}
	raw, ok := strings.CutPrefix(r.URL.RawPath, version)
	if r.URL.RawPath != "" && !ok {
		return r // "v1" is escaped: there is nothing at such a path
	}
	u := *r.URL
	if u.Path = path; ok {
		u.RawPath = raw
	}
	inner := *r
	inner.URL = &u
	return &inner
}

func routeSandbox(r *http.Request) (target, bool) {
	parts := strings.SplitN(r.URL.Path, "/", 5) // "", "sandboxes", key, what, rest
	t := target{key: parts[2]}
	if len(parts) == 3 {
		t.kind = single
		return t, t.key != ""
	}
	switch {
	case parts[3] == "executor":
		t.kind = executor
		return below(r.URL, 3, t)
	case parts[3] == "ports" && len(parts) == 5:
		t.kind, t.rest = port, parts[4]
		return t, true
	case parts[3] == "previews":
		t.kind = previews
		if len(parts) == 5 {
			t.rest = parts[4]
		}
		return t, len(parts) == 4 || t.rest != ""
	case parts[3] == "contexts":
		t.kind, t.rest = contexts, strings.Join(parts[4:], "")
		return t, true
	case parts[3] == "dir" && len(parts) == 4:
		t.kind = directory
		return t, true
	case parts[3] == "exec" && len(parts) == 4:
		t.kind = command
		return t, true
	case parts[3] == "pause" && len(parts) == 4:
		t.kind = pause
		return t, true
	case parts[3] == "resume" && len(parts) == 4:
		t.kind = resume
		return t, true
	case parts[3] == "fork" && len(parts) == 4:
		t.kind = fork
		return t, true
	case parts[3] == "watch" && len(parts) == 4:
		t.kind = watch
		return t, true
	case parts[3] == "metrics" && len(parts) == 4:
		t.kind = metrics
		return t, true
	case parts[3] == "renew" && len(parts) == 4:
		t.kind = renew
		return t, true
	}
	return target{}, false
}

// below fills in the path after the first n segments. It refuses an escaped slash among those,
// because both forms of the path must have the same segments.
func below(u *url.URL, n int, t target) (target, bool) {
	t.prefix, t.rest = split(u.Path, n)
	if u.RawPath != "" {
		var head string
		if head, t.raw = split(u.RawPath, n); unescaped(head) != t.prefix {
			return target{}, false
		}
	}
	return t, true
}

// split splits a path after n segments. The second part begins with a slash.
func split(path string, n int) (head, rest string) {
	at := 0
	for range n {
		next := strings.IndexByte(path[at+1:], '/')
		if next < 0 {
			return path, "/"
		}
		at += 1 + next
	}
	return path[:at], path[at:]
}

func unescaped(s string) string {
	u, err := url.PathUnescape(s)
	if err != nil {
		return "" // not possible for a parsed path
	}
	return u
}

// Admits implements httpd.Admitter: it reports whether the request has the secret of the sandbox
// into which it leads. The caller may use that sandbox only. Here a sandbox is identified by its id
// only, in either form; ids are never reused. A missing sandbox takes as long as a wrong secret.
func (s *Server) Admits(r *http.Request) (sandbar.Client, bool) {
	t, known := route(r)
	id, err := sandbar.ReadID(t.key)
	e := s.known(id)
	if !s.bearsSecret(r, id) || !known || err != nil || !t.kind.inside() || e == nil {
		return sandbar.Client{Role: sandbar.RoleNone}, false
	}
	return e.bearer(sandbar.Client{}), true
}

// Reads implements httpd.Reader. A list of previews has their tokens, so it is none for reading.
func (s *Server) Reads(r *http.Request) bool {
	t, known := route(r)
	switch {
	case !known:
		return true // there is nothing
	case t.kind == executor:
		method := r.Method
		if method == http.MethodHead {
			method = http.MethodGet
		}
		return executorReads[strings.TrimPrefix(t.rest, "/koyeb-sandbox")] == method
	}
	return r.Method == http.MethodGet && (t.kind == watch || r.Header.Get("Upgrade") == "") && readable[t.kind]
}

// readable are the kinds of paths that a caller that may only read can GET.
var readable = map[kind]bool{collection: true, single: true, directory: true, watch: true, contexts: true, document: true, metrics: true, happenings: true,
	status: true, doctorReport: true, configuration: true, images: true, languages: true, usage: true}

// executorReads are the paths of the executor protocol that read, with their methods.
var executorReads = map[string]string{"/health": http.MethodGet, "/read_file": http.MethodPost, "/list_dir": http.MethodPost,
	"/list_processes": http.MethodGet, "/process_logs_streaming": http.MethodGet, "/files": http.MethodGet}

// bearsSecret reports whether a request has the secret of a sandbox.
func (s *Server) bearsSecret(r *http.Request, id sandbar.ID) bool {
	secret, given := bearer(r)
	want, has := s.secretOf(id)
	got := sha256.Sum256([]byte(secret))
	same := subtle.ConstantTimeCompare(got[:], want[:]) == 1
	return same && has && given
}

// bearer returns the token of the only Authorization header.
func bearer(r *http.Request) (string, bool) {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	return strings.CutPrefix(values[0], "Bearer ")
}
