package control

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/url"
	"strings"

	"github.com/sandbar-dev/sandbar"
)

// kind is what a path leads to.
type kind int

const (
	collection kind = iota // /sandboxes
	single                 // /sandboxes/{id}
	directory              // /sandboxes/{id}/dir
	command                // /sandboxes/{id}/exec
	port                   // /sandboxes/{id}/ports/{port}
	executor               // /sandboxes/{id}/executor/…, /koyeb-sandbox/…
	web                    // /r/{id}/…
)

// inside reports whether it is within a sandbox, so that the sandbox's own
// secret opens it.
func (k kind) inside() bool { return k == command || k == port || k == executor || k == web }

// target is what a request is for.
type target struct {
	kind kind
	key  string // the id or name of a sandbox
	// rest is what follows: the port, or a path that begins with "/". raw is
	// the path as it was escaped, or "".
	rest, raw string
	prefix    string // what stands before rest, for web
}

// routingKey names the sandbox of a request below /koyeb-sandbox/.
const routingKey = "X-Routing-Key"

// route finds what a request is for. It is the one place that reads a path:
// what is admitted and what is then done cannot be two things.
func route(r *http.Request) (target, bool) {
	path := r.URL.Path
	switch {
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
	case parts[3] == "dir" && len(parts) == 4:
		t.kind = directory
		return t, true
	case parts[3] == "exec" && len(parts) == 4:
		t.kind = command
		return t, true
	}
	return target{}, false
}

// below fills in the path after the first n segments. An escaped slash among
// those is refused: the two forms of the path must have the same segments.
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

// split cuts a path after n segments. The second part begins with a slash.
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
		return "" // no path that was parsed
	}
	return u
}

// Admits implements httpd.Admitter: it reports whether the request bears the
// secret of the sandbox that it leads into. A sandbox is known here by its id
// only, in either spelling, which no other ever has. That there is none of this id takes as long to
// find out as that the secret is wrong.
func (s *Server) Admits(r *http.Request) bool {
	secret, given := bearer(r)
	t, known := route(r)
	id, err := sandbar.ReadID(t.key)
	want, has := s.secretOf(id)
	got := sha256.Sum256([]byte(secret))
	same := subtle.ConstantTimeCompare(got[:], want[:]) == 1
	return same && has && given && known && err == nil && t.kind.inside()
}

// bearer is the token of the one Authorization header.
func bearer(r *http.Request) (string, bool) {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	return strings.CutPrefix(values[0], "Bearer ")
}
