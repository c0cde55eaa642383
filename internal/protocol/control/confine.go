package control

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/sandbar-dev/sandbar/internal/protocol/ports"
)

// confinement is the Content-Security-Policy that gives a sandbox's page an opaque origin.
// Otherwise the daemon and all sandboxes have one origin in a browser.
const confinement = "sandbox allow-downloads allow-forms allow-modals allow-popups allow-scripts"

// originHeaders are the further headers that no client receives of a page that shares its origin
// with the daemon and other sandboxes.
var originHeaders = []string{
	// State that a browser keeps for the origin.
	"Accept-Ch",              // client hints in all later requests
	"Critical-Ch",            // the same, at once
	"Nel",                    // reports of failed requests to the origin
	"Report-To",              // where reports of the origin go
	"Reporting-Endpoints",    // the same; only the page's own, but the names are the origin's
	"Origin-Agent-Cluster",   // which pages of the origin share a process
	"Service-Worker-Allowed", // a service worker for paths outside of the sandbox's
	// a compression dictionary for other responses of the origin
	"Use-As-Dictionary",
	// The daemon decides with allowed_origins which pages may read its responses.
	"Access-Control-Allow-Credentials",
	"Access-Control-Allow-Headers",
	"Access-Control-Allow-Methods",
	"Access-Control-Allow-Origin",
	"Access-Control-Allow-Private-Network",
	"Access-Control-Expose-Headers",
	"Access-Control-Max-Age",
	"Timing-Allow-Origin",
	// The listener sets these.
	"Cross-Origin-Resource-Policy",
	"Referrer-Policy",
	"X-Content-Type-Options",
	// The browser would ask its user for a password for the daemon. Programs do not receive the
	// Authorization header, so they gain nothing by it.
	"Www-Authenticate",
	"Authentication-Info",
	// Redirects like Location, in a format without a grammar to check.
	"Refresh",
}

// page has the location of a sandbox's pages, for a browser and for its programs.
type page struct {
	prefix string // path prefix, "/r/ID"
	host   string // of the program, "localhost:PORT"
	daemon string // host and port at which the client has reached the daemon
}

// modify changes a program's response for the client. r.Request is the program's request.
func (p page) modify(r *http.Response) {
	for _, name := range slices.Concat(ports.HostHeaders(), originHeaders) {
		r.Header.Del(name)
	}
	to := r.Header.Get("Location")
	r.Header.Del("Location")
	if to, ok := p.location(to, r.Request.URL); ok {
		r.Header.Set("Location", to)
	}
	cookies := r.Cookies()
	r.Header.Del("Set-Cookie")
	for _, c := range cookies {
		c.Domain = ""
		if !strings.HasPrefix(c.Path, "/") {
			c.Path = "/"
		}
		c.Path = p.prefix + c.Path
		if s := c.String(); s != "" {
			r.Header.Add("Set-Cookie", s)
		}
	}
}

// location translates the target of a redirection for the client; false drops it. at is the URL of
// the program's page.
//
// A client that follows a redirection sends its token again to the same host, and some clients to
// other ports and subdomains of that host. So a redirection to the daemon is moved below the
// sandbox's prefix, and one to another port or a subdomain of the daemon's host is dropped. URLs
// that browsers parse differently from package url are dropped too: without a host after http:,
// with escaped dots, with hosts that are not ASCII.
func (p page) location(to string, at *url.URL) (string, bool) {
	u, err := url.Parse(to)
	if err != nil || to == "" {
		return "", false
	}
	web := u.Scheme == "http" || u.Scheme == "https"
	switch {
	case u.Scheme != "" && !web:
		return to, true // clients send no token there
	case u.Opaque != "" || web && u.Host == "" || strings.ContainsFunc(u.Host, ports.BeyondASCII):
		return "", false
	case u.Host != "" && !ports.SameHost(u.Host, p.host) && !ports.SameHost(u.Host, at.Host) && !ports.SameHost(u.Host, p.daemon):
		name, daemon := ports.NameOf(u.Host), ports.NameOf(p.daemon)
		return u.String(), name != daemon && !strings.HasSuffix(name, "."+daemon)
	}
	u = at.ResolveReference(u)
	for segment := range strings.SplitSeq(u.Path, "/") {
		if segment == "." || segment == ".." {
			return "", false
		}
	}
	u.Scheme, u.Host, u.User = "", "", nil
	if escaped := u.EscapedPath(); escaped != p.prefix && !strings.HasPrefix(escaped, p.prefix+"/") {
		// otherwise the program uses X-Forwarded-Prefix itself
		return p.prefix + "/" + strings.TrimPrefix(u.String(), "/"), true
	}
	return u.String(), true
}
