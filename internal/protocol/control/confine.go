package control

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
)

// confinement is the Content-Security-Policy that gives a sandbox's page an opaque origin.
// Otherwise the daemon and all sandboxes have one origin in a browser.
const confinement = "sandbox allow-downloads allow-forms allow-modals allow-popups allow-scripts"

// hostHeaders are the response headers of programs that no client receives, because browsers apply
// them to more than the origin of the page: to all ports of the host name, or to the whole domain.
// Programs use headers of their own, so an allow-list would break them. Browsers interpret a closed
// set of headers.
var hostHeaders = []string{
	"Alt-Svc",                                // another server for the host name
	"Clear-Site-Data",                        // cookies of the domain
	"Expect-Ct",                              // certificates of the host
	"Public-Key-Pins",                        // keys of the host
	"Public-Key-Pins-Report-Only",            // the same, with reports
	"Strict-Transport-Security",              // no plain HTTP for the host
	"Set-Login",                              // whether the user is logged in at the domain
	"Secure-Session-Registration",            // sessions of the domain that are bound to a device
	"Sec-Session-Registration",               // the same, by its first name
	"Attribution-Reporting-Register-Source",  // reports about the domain
	"Attribution-Reporting-Register-Trigger", // the same
}

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

// confinedTransport is the transport to a program's server. It passes only final responses, without
// trailers.
//
// Informational responses (1xx) are dropped: httputil.ReverseProxy would send them before the
// confined response, and clear the headers of the listener. It requests them with a trace in the
// request's context; without a trace the transport discards them, and bounds them together with the
// final header to MaxResponseHeaderBytes. Trailers are dropped because no filter sees them: they
// arrive after the headers were sent (RFC 9110, section 6.5.1, allows it).
type confinedTransport struct{ to http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (c confinedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	got, err := c.to.RoundTrip(r.WithContext(untraced{r.Context()}))
	if err != nil {
		return nil, err
	}
	final := *got // the transport writes trailers to the original
	final.Trailer = nil
	return &final, nil
}

// untraced keeps a context's cancellation without its values.
type untraced struct{ context.Context }

// Value implements context.Context.
func (untraced) Value(any) any { return nil }

// page has the location of a sandbox's pages, for a browser and for its programs.
type page struct {
	prefix string // path prefix, "/r/ID"
	host   string // of the program, "localhost:PORT"
	daemon string // host and port at which the client has reached the daemon
}

// modify changes a program's response for the client. r.Request is the program's request.
func (p page) modify(r *http.Response) {
	for _, name := range slices.Concat(hostHeaders, originHeaders) {
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
	case u.Opaque != "" || web && u.Host == "" || strings.ContainsFunc(u.Host, beyondASCII):
		return "", false
	case u.Host != "" && !sameHost(u.Host, p.host) && !sameHost(u.Host, at.Host) && !sameHost(u.Host, p.daemon):
		name, daemon := nameOf(u.Host), nameOf(p.daemon)
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

func beyondASCII(c rune) bool { return c > unicode.MaxASCII }

// sameHost reports whether two hosts have the same name and port.
func sameHost(a, b string) bool {
	return nameOf(a) == nameOf(b) && (&url.URL{Host: a}).Port() == (&url.URL{Host: b}).Port()
}

// nameOf returns the canonical name of a host, without its port.
func nameOf(host string) string {
	return strings.ToLower(strings.TrimSuffix((&url.URL{Host: host}).Hostname(), "."))
}
