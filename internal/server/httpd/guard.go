package httpd

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/sandbar-dev/sandbar"
)

// guard decides whether a request may pass.
type guard struct {
	tokens      []known  // the daemon's own first
	hosts       []string // lower case, without port
	origins     []string // lower case
	openMetrics bool
}

// known is a token that opens the door, by its hash.
type known struct {
	client string
	sum    [sha256.Size]byte
}

func newGuard(o Options, addr net.Addr) *guard {
	g := &guard{openMetrics: o.MetricsOpen && isLoopback(addr)}
	g.tokens = append(g.tokens, known{sum: sha256.Sum256([]byte(o.Token))})
	for name, token := range o.Clients {
		g.tokens = append(g.tokens, known{name, sha256.Sum256([]byte(token))})
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

// refusal is why a request does not pass.
type refusal struct {
	status int
	reason string // for metrics: one of few words
	err    *sandbar.Error
	allow  string // the header Allow
}

// The reasons of refusals.
const (
	reasonHost   = "host"
	reasonOrigin = "origin"
	reasonToken  = "token"
	reasonRoute  = "route"
)

var refusalReasons = []string{reasonHost, reasonOrigin, reasonToken, reasonRoute}

// check returns nil for a request that may pass, and the name of the client whose
// token it bears. admits is asked about a request that bears none.
func (g *guard) check(r *http.Request, admits func(*http.Request) bool) (client string, why *refusal) {
	if !g.hostAllowed(r) {
		return "", &refusal{status: http.StatusMisdirectedRequest, reason: reasonHost, err: &sandbar.Error{Code: sandbar.Denied,
			Message: "this daemon is not called " + sandbar.Quote(r.Host, 100), Fix: "use an address of its own, or add the name to allowed_hosts"}}
	}
	if !g.originAllowed(r) {
		return "", &refusal{status: http.StatusForbidden, reason: reasonOrigin, err: &sandbar.Error{Code: sandbar.Denied,
			Message: "requests of this web page are not allowed", Fix: "add its origin to allowed_origins"}}
	}
	client, ok := g.bearsToken(r)
	if !ok && g.needsToken(r) && !admits(r) {
		return "", &refusal{status: http.StatusUnauthorized, reason: reasonToken, err: &sandbar.Error{Code: sandbar.Unauthenticated,
			Message: "the token is missing or wrong", Fix: "send exactly one header \"Authorization: Bearer TOKEN\""}}
	}
	return client, nil
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

// bearsToken reports whether the request has one right header, and whose. Both
// sides are hashed first and all tokens are compared, so that the time it takes
// tells nothing, not even a length.
func (g *guard) bearsToken(r *http.Request) (client string, ok bool) {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	token, bearer := strings.CutPrefix(values[0], "Bearer ")
	sum := sha256.Sum256([]byte(token))
	for _, k := range g.tokens {
		if subtle.ConstantTimeCompare(sum[:], k.sum[:]) == 1 {
			client, ok = k.client, bearer
		}
	}
	return client, ok
}

// hostAllowed checks the name under which the client reached the daemon.
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
	// A literal address cannot be rebound, and this one is where the
	// connection arrived: a daemon that listens on all addresses has them all.
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && local.AddrPort().Addr().Unmap() == ip.Unmap()
}

// hostName is the name or address in a Host header, canonical and without the
// port. A daemon may be reached through a forwarded port, so the port is only
// checked for its form.
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

// canonicalName is a name in lower case without the dot of the root, or an
// address as netip writes it.
func canonicalName(name string) string {
	if ip, err := netip.ParseAddr(name); err == nil {
		return ip.String()
	}
	return strings.TrimSuffix(strings.ToLower(name), ".")
}

// originAllowed checks that a browser sends the request for a page that may
// send it. Programs that are no browsers send neither header.
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
	// "none": the user typed the address. "same-site" is another port of the
	// same name, which on localhost is anybody's.
	for _, site := range r.Header.Values("Sec-Fetch-Site") {
		if site != "same-origin" && site != "none" {
			return false
		}
	}
	return true
}

// sameHost reports whether an origin has the name and port of a Host header.
// The Host has been found to be the daemon's own before.
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
