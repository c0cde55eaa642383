package control

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/protocol/ports"
	"github.com/sandbar-dev/sandbar/internal/text/strictjson"
)

// A preview is a port of a sandbox under a host name of its own, PORT-ID.DOMAIN, where ID is the
// sandbox's id without "sb_". So browsers give it an origin of its own, and links, cookies and
// WebSockets of its pages work unchanged.

const (
	// previewToken is the name of a preview's token, in a query and as a cookie.
	previewToken = "sandbar_preview"
	// frameToken is the name of a cookie with a preview's token for a frame in a page of another
	// origin, such as the console, and that origin.
	frameToken = "sandbar_preview_frame"
	// maxPreviews bounds the previews of one sandbox.
	maxPreviews = 100
)

// previewAccess says who may open a preview, besides clients with the daemon's token or the
// sandbox's secret.
type previewAccess struct {
	public bool
	token  string
}

// Serves reports whether a host name is one of a preview. With ServeHost it makes Server the
// listener's handler of these hosts.
func (s *Server) Serves(host string) bool {
	_, _, ok := s.names.Parse(host)
	return ok
}

// ServeHost serves a request to a preview. Besides the preview's own token, the token of a caller
// that sees the sandbox and may use it opens a preview.
func (s *Server) ServeHost(w http.ResponseWriter, r *http.Request) {
	id, port, ok := s.names.Parse(ports.NameOf(r.Host))
	if !ok {
		fail(w, pathNotFound(r))
		return
	}
	ctx, end, err := s.begin(r.Context(), target{kind: preview})
	if err != nil {
		fail(w, err)
		return
	}
	defer end()
	r = r.WithContext(ctx)
	caller := engine.Client(ctx)
	e, err := s.find(context.Background(), string(id)) // the preview's token is valid without another one
	authenticated := caller.Role != sandbar.RoleNone
	if err == nil && authenticated && !s.engine.Visible(ctx, id) {
		authenticated = false
	}
	if err != nil && (!authenticated || !caller.Operator()) {
		err = previewRefused() // whether there is such a sandbox or not
	}
	if err != nil {
		fail(w, err)
		return
	}
	e.servePreview(w, r, port, authenticated && caller.Writes())
}

// previewRefused is the error for a request that may not open a preview.
func previewRefused() error {
	return &sandbar.Error{Code: sandbar.Unauthenticated, Message: "this preview is not public",
		Fix: "open the URL that \"sandbar preview\" prints; a page of another site cannot load a part of it"}
}

func (e *entry) servePreview(w http.ResponseWriter, r *http.Request, port int, authenticated bool) {
	byHeader := authenticated || e.server.bearsSecret(r, e.sandbox.ID())
	access := e.preview(port)
	query := r.URL.Query()
	byQuery := access.opens(query.Get(previewToken))
	framer, byFrame := access.byFrame(r)
	switch {
	case byHeader, access.public:
	case byQuery:
		if (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Upgrade") == "" {
			keepToken(w, r, query)
			return
		}
	case byFrame:
	case !access.byCookie(r):
		fail(w, previewRefused())
		return
	}
	r = r.WithContext(engine.WithClient(r.Context(), e.bearer(engine.Client(r.Context()))))
	leave, err := e.enter()
	if err != nil {
		fail(w, err)
		return
	}
	defer leave()
	release, err := e.reserveConn()
	if err != nil {
		fail(w, err)
		return
	}
	defer release()
	e.forward(w, r, port, func(out *http.Request) {
		out.Host = r.Host // for links
		hideTokens(out, byHeader)
	}, func(resp *http.Response) {
		ports.Clean(resp, port, r.Host, previewToken, frameToken)
		if byFrame { // a browser may send the cookie to frames in pages of all origins
			resp.Header.Add("Content-Security-Policy", "frame-ancestors 'self' "+framer)
		}
	})
}

// opens reports whether a token is the preview's.
func (a previewAccess) opens(token string) bool {
	return a.token != "" && subtle.ConstantTimeCompare([]byte(token), []byte(a.token)) == 1
}

// byCookie reports whether a request has the preview's token as a cookie, and comes from a page of
// the preview itself or from a link. All previews belong to one site, so SameSite does not keep a
// browser from sending the cookie with a request of another preview's page.
func (a previewAccess) byCookie(r *http.Request) bool {
	has := false
	for _, c := range r.CookiesNamed(previewToken) {
		has = has || a.opens(c.Value)
	}
	if !has {
		return false
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none":
		return true
	case "": // no browser, or one that sends this header only to trustworthy origins
		origin := r.Header.Get("Origin")
		u, err := url.Parse(origin)
		return origin == "" || err == nil && strings.EqualFold(u.Host, r.Host)
	}
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) &&
		r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// byFrame reports whether a request comes from a frame that was opened with the preview's token, in
// a page of the origin framer, or from a page of the preview in such a frame.
func (a previewAccess) byFrame(r *http.Request) (framer string, ok bool) {
	for _, c := range r.CookiesNamed(frameToken) {
		token, origin, _ := strings.Cut(c.Value, ".")
		text, err := base64.RawURLEncoding.DecodeString(origin)
		if framer = originOf(string(text)); err == nil && framer != "" && a.opens(token) {
			ok = true
			break
		}
	}
	navigates := (r.Method == http.MethodGet || r.Method == http.MethodHead) &&
		r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "iframe"
	return framer, ok && (navigates || r.Header.Get("Sec-Fetch-Site") == "same-origin")
}

// originOf returns the origin of a page's URL, "" for none.
func originOf(page string) string {
	u, err := url.Parse(page)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || !ports.PlainHost(u.Host) {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// keepToken makes a browser keep the token of a URL as a cookie, and leads it to the URL without
// the token. Browsers do not send such a cookie for a frame in a page of another site, so a frame
// gets another one, which browsers keep apart for each site of such pages.
func keepToken(w http.ResponseWriter, r *http.Request, query url.Values) {
	if framer := originOf(r.Referer()); framer != "" && r.Header.Get("Sec-Fetch-Dest") == "iframe" {
		http.SetCookie(w, &http.Cookie{Name: frameToken, Value: query.Get(previewToken) + "." + base64.RawURLEncoding.EncodeToString([]byte(framer)),
			Path: "/", HttpOnly: true, Secure: true, SameSite: http.SameSiteNoneMode, Partitioned: true})
	}
	http.SetCookie(w, &http.Cookie{Name: previewToken, Value: query.Get(previewToken), Path: "/", HttpOnly: true,
		Secure: ports.IsHTTPS(r), SameSite: http.SameSiteLaxMode})
	to := *r.URL
	to.Scheme, to.Host = "", ""
	query.Del(previewToken)
	to.RawQuery = query.Encode()
	if strings.HasPrefix(to.Path, "//") { // a browser would take it for a host
		to.Path, to.RawPath = "/", ""
	}
	w.Header().Set("Location", to.String())
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(http.StatusSeeOther)
}

// hideTokens removes the tokens of a request. A program keeps an Authorization header of its own.
func hideTokens(r *http.Request, byHeader bool) {
	if byHeader {
		r.Header.Del("Authorization")
	}
	if query := r.URL.Query(); query.Has(previewToken) {
		query.Del(previewToken)
		r.URL.RawQuery = query.Encode()
	}
	ports.HideCookies(r, previewToken, frameToken)
}

// preview returns the access to a port; the zero value if it was never requested.
func (e *entry) preview(port int) previewAccess {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.previews[port]
}

// servePreviews serves the list of previews.
func (e *entry) servePreviews(w http.ResponseWriter, r *http.Request, port string) {
	switch {
	case port == "" && r.Method == http.MethodGet:
		answer(w, http.StatusOK, wire.Previews{Previews: e.listPreviews(r)})
	case port == "" && r.Method == http.MethodPost:
		p, err := e.addPreview(w, r)
		if err != nil {
			fail(w, err)
			return
		}
		answer(w, http.StatusOK, p)
	case port == "":
		notAllowed(w, r, "GET, POST")
	case r.Method != http.MethodDelete:
		notAllowed(w, r, http.MethodDelete)
	default:
		if err := e.removePreview(port); err != nil {
			fail(w, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

func (e *entry) listPreviews(r *http.Request) []wire.Preview {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := []wire.Preview{}
	for port, a := range e.previews {
		all = append(all, e.describePreview(r, port, a))
	}
	slices.SortFunc(all, func(a, b wire.Preview) int { return cmp.Compare(a.Port, b.Port) })
	return all
}

// describePreview describes a preview for the client of a request, which has reached the daemon at
// r.Host.
func (e *entry) describePreview(r *http.Request, port int, a previewAccess) wire.Preview {
	u := url.URL{Scheme: "http", Host: e.server.names.Host(e.sandbox.ID(), port), Path: "/"}
	if ports.IsHTTPS(r) {
		u.Scheme = "https"
	}
	if _, p, err := net.SplitHostPort(r.Host); err == nil {
		u.Host += ":" + p
	}
	if !a.public {
		u.RawQuery = url.Values{previewToken: {a.token}}.Encode()
	}
	return wire.Preview{Port: port, Public: a.public, URL: u.String()}
}

// addPreview serves a request for a preview.
func (e *entry) addPreview(w http.ResponseWriter, r *http.Request) (wire.Preview, error) {
	raw, err := readBody(w, r)
	if err != nil {
		return wire.Preview{}, err
	}
	var p wire.Preview
	if err := strictjson.Object(body, raw, strictjson.Value("port", "a whole number", &p.Port), strictjson.Truth("public", &p.Public)); err != nil {
		return p, err
	}
	return e.makePreview(r, p.Port, p.Public)
}

// Preview gives a port of a sandbox a URL, for other protocols of the daemon. r is a request of the
// client, or one to the address that it reaches the daemon at. NotFound: there is no such sandbox.
func (s *Server) Preview(r *http.Request, id sandbar.ID, port int, public bool) (wire.Preview, error) {
	e, err := s.find(r.Context(), string(id))
	if err != nil {
		return wire.Preview{}, err
	}
	return e.makePreview(r, port, public)
}

// makePreview makes a preview, or changes it. Its token stays the same.
func (e *entry) makePreview(r *http.Request, port int, public bool) (p wire.Preview, err error) {
	if _, err := ports.Parse(strconv.Itoa(port)); err != nil {
		return p, err
	}
	if local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr); local != nil && local.Network() == "unix" {
		return p, &sandbar.Error{Code: sandbar.Unsupported, Message: "the daemon listens on a UNIX socket, which browsers cannot open",
			Fix: "let it listen on an address, or connect to the port with \"sandbar port\""}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	a, known := e.previews[port]
	if !known && len(e.previews) >= maxPreviews {
		return p, sandbar.Errorf(sandbar.Exhausted, "sandbox %s has %d previews, which is all that it may have", e.sandbox.ID(), maxPreviews)
	}
	if a.public = public; a.token == "" {
		a.token = rand.Text()
	}
	if e.previews == nil {
		e.previews = map[int]previewAccess{}
	}
	e.previews[port] = a
	return e.describePreview(r, port, a), nil
}

// removePreview makes a port private again. The token of its URL becomes invalid; connections in
// progress continue.
func (e *entry) removePreview(text string) error {
	port, err := ports.Parse(text)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.previews[port]; !ok {
		return &sandbar.Error{Code: sandbar.NotFound, Field: "port", Message: "port " + text + " of sandbox " + string(e.sandbox.ID()) + " has no preview"}
	}
	delete(e.previews, port)
	return nil
}
