package httpd

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// guard decides whether a request passes.
type guard struct {
	tokens      []hashedToken // the daemon's own first
	tenants     Tokens        // nil for none
	sessions    Sessions      // nil for none
	hosts       []string      // lower case, without port
	origins     []string      // lower case
	openMetrics bool
}

// hashedToken is the hash of a valid token.
type hashedToken struct {
	client string
	sum    [sha256.Size]byte
}

func newGuard(o Options, addr net.Addr) *guard {
	g := &guard{openMetrics: o.MetricsOpen && isLoopback(addr), tenants: o.Tokens, sessions: o.Sessions}
	g.tokens = append(g.tokens, hashedToken{sum: sha256.Sum256([]byte(o.Token))})
	for name, token := range o.Clients {
		g.tokens = append(g.tokens, hashedToken{name, sha256.Sum256([]byte(token))})
	}
	for _, h := range o.AllowedHosts {
		g.hosts = append(g.hosts, canonicalName(h))
	}
	if host, _, err := net.SplitHostPort(o.Listen); err == nil && host != "" {
		g.hosts = append(g.hosts, canonicalName(host))
	}
	for _, origin := range o.AllowedOrigins {
		g.origins = append(g.origins, strings.ToLower(origin))
	}
	return g
}

// refusal is the reason why a request fails a check.
type refusal struct {
	status int
	reason string // label for metrics, from a fixed set
	err    *sandbar.Error
	allow  string // the Allow header
}

// The reasons of refusals.
const (
	reasonHost   = "host"
	reasonOrigin = "origin"
	reasonToken  = "token"
	reasonRole   = "role"
	reasonRoute  = "route"
)

var refusalReasons = []string{reasonHost, reasonOrigin, reasonToken, reasonRole, reasonRoute}

// identity is the caller of a request, as its credentials prove.
type identity struct {
	client sandbar.Client
	// valid ends when the credentials become invalid; nil if they do not.
	valid context.Context
	// until is the end of the session of a browser; zero for other callers.
	until time.Time
}

// nobody is the caller of a request without valid credentials.
var nobody = identity{client: sandbar.Client{Role: sandbar.RoleNone}}

// identify returns the caller with a token. The daemon's own token and those of clients are the
// operator's; others are those of tenants. Unauthenticated: the token is none of these.
// Unavailable: the tokens of tenants cannot be read, and the token is not the operator's.
//
// It hashes both sides and compares all tokens, so that the duration reveals nothing, not even a
// length.
func (g *guard) identify(token string) (identity, error) {
	client, ok := g.whose(token)
	if g.tenants == nil {
		if ok {
			return identity{client: client}, nil
		}
		return nobody, errToken
	}
	tenant, valid, found, err := g.tenants.Find(token)
	switch {
	case ok:
		return identity{client: client}, nil
	case err != nil:
		return nobody, err
	case found:
		return identity{client: tenant, valid: valid}, nil
	}
	return nobody, errToken
}

var errToken = &sandbar.Error{Code: sandbar.Unauthenticated, Message: "the token is missing or wrong",
	Fix: "send exactly one header \"Authorization: Bearer TOKEN\""}

// check returns nil for a request that passes, with its caller. It calls admits for a request
// without a known token.
func (g *guard) check(r *http.Request, admits func(*http.Request) (sandbar.Client, bool)) (who identity, why *refusal) {
	if why := g.checkPlace(r); why != nil {
		return nobody, why
	}
	who, err := g.caller(r)
	if err == nil || !g.needsToken(r) {
		return who, nil
	}
	if client, ok := admits(r); ok {
		return identity{client: client}, nil
	}
	return nobody, refuseToken(err)
}

// refuseToken is the refusal of a request without valid credentials.
func refuseToken(err error) *refusal {
	status := http.StatusUnauthorized
	if sandbar.CodeOf(err) == sandbar.Unavailable {
		status = http.StatusServiceUnavailable
	}
	return &refusal{status: status, reason: reasonToken, err: sandbar.AsError(err)}
}

// checkPlace checks where a request was sent to, and from where.
func (g *guard) checkPlace(r *http.Request) *refusal {
	if !g.hostAllowed(r) {
		return &refusal{status: http.StatusMisdirectedRequest, reason: reasonHost, err: &sandbar.Error{Code: sandbar.Denied,
			Message: "this daemon is not called " + sandbar.Quote(r.Host, 100), Fix: "use an address of its own, or add the name to allowed_hosts"}}
	}
	if !g.originAllowed(r) {
		return &refusal{status: http.StatusForbidden, reason: reasonOrigin, err: &sandbar.Error{Code: sandbar.Denied,
			Message: "requests of this web page are not allowed", Fix: "add its origin to allowed_origins"}}
	}
	return nil
}

func (g *guard) needsToken(r *http.Request) bool {
	switch r.URL.Path {
	case "/health":
		return false
	case "/metrics":
		return !g.openMetrics
	}
	return true
}

// bearer returns the caller of a request with exactly one valid header.
func (g *guard) bearer(r *http.Request) (identity, error) {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return nobody, errToken
	}
	token, bearer := strings.CutPrefix(values[0], "Bearer ")
	who, err := g.identify(token)
	if err == nil && !bearer {
		return nobody, errToken
	}
	return who, err
}

// caller returns the caller of a request with a valid header, or with a session and no header.
func (g *guard) caller(r *http.Request) (identity, error) {
	if _, given := r.Header["Authorization"]; given || g.sessions == nil || !forSessions(r) {
		return g.bearer(r)
	}
	token, until, ok := g.sessions.Open(r)
	if !ok {
		return nobody, errToken
	}
	who, err := g.identify(token)
	who.until = until
	return who, err
}

// forSessions reports whether the session of a browser counts for a request: it is one to the
// console or to the control API below /v1, and it shows that a page of this daemon sends it. Pages
// of sandboxes below /r/ have the daemon's host name too, so their paths are none of these, and
// they run with an opaque origin.
//
// Browsers send no Sec-Fetch-Site to a plain HTTP address, and no Origin with a GET request of the
// same origin. The header Sandbar-Console serves there: a page of another origin cannot add it
// without a CORS preflight, which this daemon does not answer.
func forSessions(r *http.Request) bool {
	if !strings.HasPrefix(r.URL.Path, "/v1/") && !strings.HasPrefix(r.URL.Path, "/console/") {
		return false
	}
	proven := r.Header.Get("Sandbar-Console") == "1"
	for _, site := range r.Header.Values("Sec-Fetch-Site") {
		if site != "same-origin" {
			return false
		}
		proven = true
	}
	for _, origin := range r.Header.Values("Origin") { // allowed_origins does not count
		if !sameHost(origin, r.Host) {
			return false
		}
		proven = true
	}
	return proven
}

// whose reports whether a token is the operator's, and which client has it.
func (g *guard) whose(token string) (client sandbar.Client, ok bool) {
	sum := sha256.Sum256([]byte(token))
	for _, k := range g.tokens {
		if subtle.ConstantTimeCompare(sum[:], k.sum[:]) == 1 {
			client, ok = sandbar.Client{Name: k.client}, true
		}
	}
	return client, ok
}

// hostAllowed checks the Host header.
func (g *guard) hostAllowed(r *http.Request) bool {
	name, ok := hostName(r.Host)
	if !ok {
		return false
	}
	if name == "localhost" || slices.Contains(g.hosts, name) {
		return true
	}
	ip, err := netip.ParseAddr(name)
	if err != nil {
		return false
	}
	if ip.Unmap().IsLoopback() {
		return true
	}
	// DNS rebinding needs a name, so the literal address at which the connection arrived is safe. A
	// daemon that listens on all addresses has them all.
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && local.AddrPort().Addr().Unmap() == ip.Unmap()
}

// hostName returns the canonical name or address of a Host header, without the port. A daemon may
// be behind a forwarded port, so only the port's form is checked.
func hostName(host string) (string, bool) {
	name := host
	if h, port, err := net.SplitHostPort(host); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return "", false
		}
		name = h
	} else {
		name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	}
	if name == "" || strings.ContainsAny(name, "%@/\\[] ") {
		return "", false
	}
	return canonicalName(name), true
}

// canonicalName returns a name in lower case without the trailing dot, or an address in netip's
// form.
func canonicalName(name string) string {
	if ip, err := netip.ParseAddr(name); err == nil {
		return ip.String()
	}
	return strings.TrimSuffix(strings.ToLower(name), ".")
}

// originAllowed checks that a browser sends the request for an allowed page. Other programs send
// neither header.
func (g *guard) originAllowed(r *http.Request) bool {
	origins := r.Header.Values("Origin")
	if len(origins) > 1 {
		return false
	}
	if len(origins) == 1 {
		if slices.Contains(g.origins, strings.ToLower(origins[0])) {
			return true
		}
		if !sameHost(origins[0], r.Host) {
			return false
		}
	}
	// "none" means that the user typed the address. "same-site" is another port of the same name,
	// which on localhost can belong to anyone.
	for _, site := range r.Header.Values("Sec-Fetch-Site") {
		if site != "same-origin" && site != "none" {
			return false
		}
	}
	return true
}

// sameHost reports whether an origin has the name and port of a Host header that has passed
// hostAllowed.
func sameHost(origin, host string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || origin != u.Scheme+"://"+u.Host {
		return false
	}
	port := map[string]string{"http": ":80", "https": ":443"}[u.Scheme]
	if port == "" {
		return false
	}
	return strings.EqualFold(strings.TrimSuffix(u.Host, port), strings.TrimSuffix(host, port))
}
