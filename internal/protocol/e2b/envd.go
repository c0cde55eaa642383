package e2b

import (
	"encoding/base64"
	"net/http"
	"path"
	"strings"
	"unicode"

	"github.com/sandbar-dev/sandbar"
)

// home is the home directory of all users, where relative paths begin.
const home = sandbar.DefaultDir

// serveEnvd serves a request to envd.
func (l *life) serveEnvd(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/health":
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			notAllowed(w, r, http.MethodGet)
			return
		}
		w.WriteHeader(http.StatusNoContent)
		return
	case filesPath:
		if err := l.serveFiles(w, r); err != nil {
			fail(w, err)
		}
		return
	}
	if err := l.authorize(r); err != nil {
		fail(w, err)
		return
	}
	switch r.URL.Path {
	case "/envs":
		env := l.sandbox.Info().Spec.Env
		if env == nil {
			env = map[string]string{}
		}
		answer(w, http.StatusOK, env)
		return
	case "/metrics":
		if err := l.serveEnvdMetrics(w, r); err != nil {
			fail(w, err)
		}
		return
	case "/files/compose":
		fail(w, unsupported("", "the path "+r.URL.Path+" is not served"))
		return
	}
	l.serveCalls(w, r)
}

// authorize checks the access token.
func (l *life) authorize(r *http.Request) error {
	if tokens := r.Header.Values(tokenHeader); len(tokens) == 1 && same(tokens[0], l.Token) {
		return nil
	}
	return &sandbar.Error{Code: sandbar.Unauthenticated, Message: "unauthorized access: the access token is missing or wrong"}
}

// serveCalls serves a Connect call.
func (l *life) serveCalls(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		notAllowed(w, r, http.MethodPost)
		return
	}
	ctx, user := r.Context(), checkUser(userOf(r))
	switch r.URL.Path {
	case "/process.Process/Start":
		serveStream(l, w, r, user, func(q startRequest, s *stream) error { return l.start(r, q, s) })
		return
	case "/process.Process/Connect":
		serveStream(l, w, r, user, func(q selectRequest, s *stream) error { return l.connect(r, q, s) })
		return
	case "/process.Process/StreamInput":
		http.NewResponseController(w).EnableFullDuplex() // an error must not wait for the rest of the input
		serveStream(l, w, r, user, func(q streamInputRequest, s *stream) error { return l.streamInput(w, r, q, s) })
		return
	case "/filesystem.Filesystem/WatchDir":
		serveStream(l, w, r, user, func(q watchRequest, s *stream) error { return l.watchDir(r, q, s) })
		return
	}
	if user != nil {
		failUnary(w, user)
		return
	}
	switch r.URL.Path {
	case "/process.Process/List":
		unary(w, r, func(none) (processList, error) { return l.list(), nil })
	case "/process.Process/SendInput":
		unary(w, r, func(q inputRequest) (none, error) { return none{}, l.sendInput(ctx, q) })
	case "/process.Process/CloseStdin":
		unary(w, r, func(q selectRequest) (none, error) { return none{}, l.closeStdin(q) })
	case "/process.Process/SendSignal":
		unary(w, r, func(q signalRequest) (none, error) { return none{}, l.sendSignal(q) })
	case "/process.Process/Update":
		unary(w, r, func(q updateRequest) (none, error) { return none{}, l.update(q) })
	case "/filesystem.Filesystem/Stat":
		unary(w, r, func(q pathRequest) (entryAnswer, error) { return l.stat(ctx, q) })
	case "/filesystem.Filesystem/ListDir":
		unary(w, r, func(q listRequest) (entriesAnswer, error) { return l.listDir(ctx, q) })
	case "/filesystem.Filesystem/MakeDir":
		unary(w, r, func(q pathRequest) (entryAnswer, error) { return l.makeDir(ctx, q) })
	case "/filesystem.Filesystem/Move":
		unary(w, r, func(q moveRequest) (entryAnswer, error) { return l.move(ctx, q) })
	case "/filesystem.Filesystem/Remove":
		unary(w, r, func(q pathRequest) (none, error) { return none{}, l.remove(ctx, q) })
	case "/filesystem.Filesystem/CreateWatcher":
		unary(w, r, func(q watchRequest) (watcherAnswer, error) { return l.createWatcher(ctx, q) })
	case "/filesystem.Filesystem/GetWatcherEvents":
		unary(w, r, func(q watcherRequest) (eventsAnswer, error) { return l.watcherEvents(q) })
	case "/filesystem.Filesystem/RemoveWatcher":
		unary(w, r, func(q watcherRequest) (none, error) { return none{}, l.removeWatcher(q) })
	default:
		failUnary(w, unsupported("", "the call "+sandbar.Quote(r.URL.Path, 100)+" is not served"))
	}
}

// none is an empty message.
type none struct{}

// userOf returns the user that a call names in its Authorization header.
func userOf(r *http.Request) string {
	basic, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Basic ")
	if !ok {
		return ""
	}
	text, err := base64.StdEncoding.DecodeString(basic)
	if err != nil {
		return basic // the name of no user
	}
	name, _, _ := strings.Cut(string(text), ":")
	return name
}

// checkUser checks the name of a user. A sandbox has one user, for which both names stand.
func checkUser(name string) error {
	switch name {
	case "", "user", "root":
		return nil
	}
	return &sandbar.Error{Code: sandbar.Unauthenticated, Field: "username", Message: "invalid username: '" + printable(name) + "'", Fix: "use user or root"}
}

// printable replaces control characters of a text of the client, and cuts it.
func printable(text string) string {
	if len(text) > 300 {
		text = text[:300] + "…"
	}
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return '\ufffd'
		}
		return c
	}, text)
}

// resolve returns the absolute path of a path of the client: a relative one, and one that begins
// with "~", is below the home directory.
func resolve(name string) (string, error) {
	switch {
	case strings.ContainsRune(name, 0):
		return "", invalid("path", "the path has a NUL", "")
	case len(name) > 4095:
		return "", sandbar.Errorf(sandbar.Invalid, "the path has %d bytes, and at most 4095 are allowed", len(name))
	case name == "" || name == "~":
		return home, nil
	case strings.HasPrefix(name, "~/"):
		return path.Join(home, name[2:]), nil
	case strings.HasPrefix(name, "~"):
		return "", invalid("path", "the path begins with the home directory of another user", "")
	case strings.HasPrefix(name, "/"):
		return path.Clean(name), nil
	}
	return path.Join(home, name), nil
}
