package console

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/protocol/ports"
	"github.com/sandbar-dev/sandbar/internal/text/strictjson"
)

// Patterns are the paths of the console, as patterns of http.ServeMux. There is nothing at
// "/console": without a pattern of its own the mux would lead from there to "/console/".
var Patterns = []string{pagePattern, "/console", "/console/"}

const pagePattern = "GET /{$}"

const (
	assetsPath  = "/console/assets/"
	loginPath   = "/console/login"
	logoutPath  = "/console/logout"
	sessionPath = "/console/session"
)

// maxLogin is the largest body of a login, in bytes.
const maxLogin = 16 << 10

// Options are the parameters of a Server.
type Options struct {
	// Assets has the built page: "index.html", and below "assets" the files that it loads, whose
	// names change with their content. A file NAME can have its compressed form beside it, as
	// "NAME.gz". Default: the page answers 501.
	Assets fs.FS
	// Sessions seals cookies.
	Sessions *Sessions
	// Identify returns the bearer of a token. Unauthenticated: nobody has it. Unavailable: the tokens
	// cannot be read.
	Identify func(token string) (sandbar.Client, error)
	// Fail writes an error as the response.
	Fail func(w http.ResponseWriter, status int, err *sandbar.Error)
	// PreviewDomain is the domain of previews, which the page shows in frames.
	PreviewDomain string
	// Version is the daemon's version.
	Version string
	// Audit records logins and logouts. Default: none.
	Audit engine.Auditor
	// Logger takes structured logs. Default: discards.
	Logger *slog.Logger
}

// Server serves the console. The listener must have checked Host and Origin. It implements
// httpd.Admitter and httpd.Reader, because none of its paths needs a token or changes anything of a
// sandbox.
type Server struct {
	o        Options
	failures *limiter
	mux      *http.ServeMux
}

// New returns a Server.
func New(o Options) *Server {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{o: o, failures: newLimiter(), mux: http.NewServeMux()}
	s.mux.HandleFunc(pagePattern, s.page)
	s.mux.HandleFunc("GET "+assetsPath+"{name...}", s.asset)
	s.mux.HandleFunc("POST "+loginPath, s.login)
	s.mux.HandleFunc("POST "+logoutPath, s.logout)
	s.mux.HandleFunc("GET "+sessionPath, s.session)
	s.mux.HandleFunc("/", s.missing)
	return s
}

// Admits admits every request, as a caller without a token.
func (s *Server) Admits(*http.Request) (sandbar.Client, bool) {
	return sandbar.Client{Role: sandbar.RoleNone}, true
}

// Reads reports that no request changes a sandbox.
func (s *Server) Reads(*http.Request) bool { return true }

// requestTimeout bounds a request: its body and its response are small.
const requestTimeout = 30 * time.Second

// ServeHTTP serves a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Now().Add(requestTimeout)) // a recorder of a test has no deadlines
	control.SetWriteDeadline(time.Now().Add(requestTimeout))
	s.mux.ServeHTTP(w, r)
}

// missing answers for a path or a method that the console does not have.
func (s *Server) missing(w http.ResponseWriter, r *http.Request) {
	allow := map[string]string{loginPath: "POST", logoutPath: "POST", sessionPath: "GET, HEAD"}[r.URL.Path]
	if allow != "" {
		w.Header().Set("Allow", allow)
		s.o.Fail(w, http.StatusMethodNotAllowed, &sandbar.Error{Code: sandbar.Invalid, Field: "method",
			Message: "method " + sandbar.Quote(r.Method, 20) + " is not allowed for " + r.URL.Path, Fix: "allowed: " + allow})
		return
	}
	s.o.Fail(w, http.StatusNotFound, &sandbar.Error{Code: sandbar.NotFound, Message: "there is nothing at " + sandbar.Quote(r.URL.Path, 100), Fix: "open the console at /"})
}

// page serves the page.
func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	if s.o.Assets == nil {
		s.o.Fail(w, http.StatusNotImplemented, &sandbar.Error{Code: sandbar.Unsupported, Message: "this binary was built without the browser console",
			Fix: "build it with \"make build\", or set console to false"})
		return
	}
	h := w.Header()
	h.Set("Content-Security-Policy", s.policy(r))
	h.Set("Cross-Origin-Opener-Policy", "same-origin") // previews that the page opens cannot reach it
	h.Set("Cache-Control", "no-store")
	s.send(w, r, "index.html", "text/html; charset=utf-8")
}

// policy returns the page's Content-Security-Policy. Frames show previews only, which have host
// names of their own.
func (s *Server) policy(r *http.Request) string {
	web, socket := "http", "ws"
	if ports.IsHTTPS(r) {
		web, socket = "https", "wss"
	}
	frames := web + "://*." + s.o.PreviewDomain
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		frames += ":" + port
	}
	connect := "'self'"
	if ports.PlainHost(r.Host) { // browsers differ on whether 'self' has WebSockets
		connect += " " + socket + "://" + r.Host
	}
	return strings.Join([]string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data: blob:", "connect-src " + connect,
		"font-src 'self'", "frame-src " + frames, "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"}, "; ")
}

// assetTypes are the types of the files that the page loads.
var assetTypes = map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml", ".png": "image/png",
	".ico": "image/x-icon", ".woff2": "font/woff2", ".txt": "text/plain; charset=utf-8", ".json": "application/json", ".map": "application/json", ".wasm": "application/wasm"}

// asset serves a file that the page loads. Its name changes with its content.
func (s *Server) asset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	media := assetTypes[path.Ext(name)]
	if s.o.Assets == nil || media == "" {
		s.missing(w, r)
		return
	}
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	s.send(w, r, "assets/"+name, media)
}

// send sends a file of the assets: compressed, if it has a compressed form that the client accepts.
func (s *Server) send(w http.ResponseWriter, r *http.Request, name, media string) {
	packed, err := fs.ReadFile(s.o.Assets, name+".gz")
	w.Header().Add("Vary", "Accept-Encoding")
	var body []byte
	switch {
	case err == nil && acceptsGzip(r):
		w.Header().Set("Content-Encoding", "gzip")
		body = packed
	default:
		var plain error
		if body, plain = fs.ReadFile(s.o.Assets, name); plain != nil && err == nil {
			body, plain = unpack(packed)
		}
		if plain != nil {
			w.Header().Set("Cache-Control", "no-store")
			s.missing(w, r)
			return
		}
	}
	w.Header().Set("Content-Type", media)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Write(body) // the mux answers HEAD without it
}

// acceptsGzip reports whether a client accepts a compressed response.
func acceptsGzip(r *http.Request) bool {
	for _, v := range r.Header.Values("Accept-Encoding") {
		for coding := range strings.SplitSeq(v, ",") {
			name, weight, _ := strings.Cut(strings.TrimSpace(coding), ";")
			if strings.EqualFold(strings.TrimSpace(name), "gzip") && strings.ReplaceAll(weight, " ", "") != "q=0" {
				return true
			}
		}
	}
	return false
}

func unpack(packed []byte) ([]byte, error) {
	r, err := gzip.NewReader(strings.NewReader(string(packed)))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r) // the assets are the build's own
}

// login checks the token of a request and answers with a cookie.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	token, err := readLogin(w, r)
	if err == nil && s.o.Audit != nil {
		err = s.o.Audit.Ready()
	}
	if err != nil {
		s.refuse(w, err)
		return
	}
	giveBack, wait := s.failures.take(r.RemoteAddr)
	if wait > 0 {
		s.o.Logger.Warn("a login was refused after too many failures", "remote", r.RemoteAddr)
		s.refuse(w, &sandbar.Error{Code: sandbar.Exhausted, Message: "too many logins have failed", Fix: "try again in " + wait.Round(time.Second).String(), RetryAfter: wait})
		return
	}
	who, err := s.o.Identify(token)
	var cookie *http.Cookie
	if err == nil {
		cookie, err = s.o.Sessions.Cookie(token, ports.IsHTTPS(r))
	}
	if sandbar.CodeOf(err) != sandbar.Unauthenticated {
		giveBack()
	}
	who.Address = r.RemoteAddr
	if err != nil {
		s.record(sandbar.Client{Address: who.Address, Role: sandbar.RoleNone}, engine.DidLogin, string(sandbar.CodeOf(err)))
		s.refuse(w, err)
		return
	}
	s.record(who, engine.DidLogin, "ok")
	http.SetCookie(w, cookie)
	w.WriteHeader(http.StatusNoContent)
}

// readLogin returns the token of a login.
func readLogin(w http.ResponseWriter, r *http.Request) (token string, err error) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxLogin))
	if err != nil {
		return "", &sandbar.Error{Code: sandbar.TooLarge, Message: "the login has more than " + strconv.Itoa(maxLogin) + " bytes, or was cut", Fix: `send {"token": "…"}`, Err: err}
	}
	if err := strictjson.Object("body", raw, strictjson.Text("token", &token)); err != nil {
		return "", err
	}
	return token, nil
}

// logout removes the cookie. A copy of it is valid until its end.
func (s *Server) logout(w http.ResponseWriter, r *http.Request) {
	if c := engine.Client(r.Context()); c.Role != sandbar.RoleNone {
		s.record(c, engine.DidLogout, "ok")
	}
	gone := newCookie("", ports.IsHTTPS(r))
	gone.MaxAge = -1
	http.SetCookie(w, gone)
	w.WriteHeader(http.StatusNoContent)
}

// sessionBody is the response of GET /console/session.
type sessionBody struct {
	// Name is the name of the token; "" for the daemon's own.
	Name string `json:"name"`
	// Tenant is the tenant of the token; "default" for the default one.
	Tenant   string       `json:"tenant"`
	Role     sandbar.Role `json:"role"`
	Version  string       `json:"version"`
	Operator bool         `json:"operator"` // it sees what all tenants have
}

// session answers who the browser is logged in as.
func (s *Server) session(w http.ResponseWriter, r *http.Request) {
	c := engine.Client(r.Context())
	if c.Role == sandbar.RoleNone {
		s.refuse(w, &sandbar.Error{Code: sandbar.Unauthenticated, Message: "there is no session, or it has ended", Fix: "log in with a token"})
		return
	}
	b := sessionBody{Name: c.Name, Tenant: c.Tenant, Role: c.Role, Version: s.o.Version, Operator: c.Operator()}
	if b.Tenant == "" {
		b.Tenant = sandbar.DefaultTenant
	}
	if b.Role == "" {
		b.Role = sandbar.RoleAdmin
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	json.NewEncoder(w).Encode(b) // an error means that the client left
}

// refuse answers with an error.
func (s *Server) refuse(w http.ResponseWriter, err error) {
	e := sandbar.AsError(err)
	status := http.StatusInternalServerError
	switch e.Code {
	case sandbar.Invalid:
		status = http.StatusBadRequest
	case sandbar.Unauthenticated:
		status = http.StatusUnauthorized
	case sandbar.TooLarge:
		status = http.StatusRequestEntityTooLarge
	case sandbar.Unavailable:
		status = http.StatusServiceUnavailable
	case sandbar.Exhausted:
		status = http.StatusTooManyRequests
		w.Header().Set("Retry-After", strconv.Itoa(int((e.RetryAfter+time.Second-1)/time.Second)))
	}
	s.o.Fail(w, status, e)
}

// record records an action in the audit log.
func (s *Server) record(c sandbar.Client, verb engine.Verb, outcome string) {
	if s.o.Audit != nil {
		s.o.Audit.Record(engine.Action{Time: time.Now(), Client: c, Verb: verb, Outcome: outcome})
	}
}
