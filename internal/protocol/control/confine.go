package control

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"unicode"
)

// confinement is the policy that gives a page of a sandbox an opaque origin. A
// browser has the daemon and all sandboxes under one origin otherwise.
const confinement = "sandbox allow-downloads allow-forms allow-modals allow-popups allow-scripts"

// dropped are the headers of a program's answer that no client gets. Programs
// have headers of their own, so an allow-list would break them; browsers give a
// meaning to a closed set, and of that set each header stands here that acts
// beyond the page that it came with.
var dropped = []string{
	// State that a browser keeps for the daemon's whole origin or host name.
	"Accept-Ch",                              // client hints in all later requests
	"Critical-Ch",                            // the same, at once
	"Alt-Svc",                                // another server for the name
	"Clear-Site-Data",                        // cookies and caches of the origin
	"Expect-Ct",                              // certificates of the host
	"Public-Key-Pins",                        // keys of the host
	"Public-Key-Pins-Report-Only",            // the same, with reports
	"Strict-Transport-Security",              // no plain HTTP for the host
	"Nel",                                    // reports of failed requests to the origin
	"Report-To",                              // where reports of the origin go
	"Reporting-Endpoints",                    // the same; only the page's own, but the names are the origin's
	"Origin-Agent-Cluster",                   // which pages of the origin share a process
	"Service-Worker-Allowed",                 // a service worker for paths beyond the sandbox's
	"Set-Login",                              // whether the user is logged in at the origin
	"Secure-Session-Registration",            // sessions of the origin that are bound to a device
	"Sec-Session-Registration",               // the same, by its first name
	"Use-As-Dictionary",                      // compresses other answers of the origin
	"Attribution-Reporting-Register-Source",  // reports about the origin
	"Attribution-Reporting-Register-Trigger", // the same
	// Who may read answers of the daemon: its own decision, by allowed_origins.
	"Access-Control-Allow-Credentials",
	"Access-Control-Allow-Headers",
	"Access-Control-Allow-Methods",
	"Access-Control-Allow-Origin",
	"Access-Control-Allow-Private-Network",
	"Access-Control-Expose-Headers",
	"Access-Control-Max-Age",
	"Timing-Allow-Origin",
	// The listener has set these.
	"Cross-Origin-Resource-Policy",
	"Referrer-Policy",
	"X-Content-Type-Options",
	// A browser asks its user for a password of the daemon's name. Programs see
	// no Authorization header, so that the answer would be of no use to them.
	"Www-Authenticate",
	"Authentication-Info",
	// Leads elsewhere like Location, in a form that has no grammar to check.
	"Refresh",
}

// confined is the way to a program's server. Its answers are final responses
// without trailers.
//
// Informational responses (1xx) end here: httputil.ReverseProxy would send them
// before the response that is confined, and clear the headers that the listener
// has set. It asks for them with a trace in the request's context, and a
// transport that finds no trace drops them and bounds them, with the final
// header, to MaxResponseHeaderBytes. Trailers end here since no filter sees them:
// they are read after the headers were sent (RFC 9110, section 6.5.1, allows it).
type confined struct{ to http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (c confined) RoundTrip(r *http.Request) (*http.Response, error) {
	got, err := c.to.RoundTrip(r.WithContext(untraced{r.Context()}))
	if err != nil {
		return nil, err
	}
	final := *got // trailers are written to the original
	final.Trailer = nil
	return &final, nil
}

// untraced is a context's end without its values.
type untraced struct{ context.Context }

// Value implements context.Context.
func (untraced) Value(any) any { return nil }

// page is where a sandbox's pages are for a browser, and for its programs.
type page struct {
	prefix string // of paths, "/r/ID"
	host   string // of the program, "localhost:PORT"
	daemon string // host and port by which the client has reached the daemon
}

// modify makes the answer that the client sees. The program was asked at r.Request.
func (p page) modify(r *http.Response) {
	for _, name := range dropped {
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

// location is where a redirection leads, for the client; false for nowhere. The
// program was asked for the page at.
//
// A client that follows a redirection sends its token again to the host that it
// asked, and some clients to other ports and subdomains of that host. So a
// redirection to the daemon leads below the sandbox's prefix, where the program
// has it, and one to another port or a subdomain of the daemon's host is dropped.
// Dropped is also what browsers read otherwise than package url: no host after
// http:, dots in escaped form, hosts that are not ASCII.
func (p page) location(to string, at *url.URL) (string, bool) {
	u, err := url.Parse(to)
	if err != nil || to == "" {
		return "", false
	}
	web := u.Scheme == "http" || u.Scheme == "https"
	switch {
	case u.Scheme != "" && !web:
		return to, true // no client sends its token there
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
		// Else the program has heeded X-Forwarded-Prefix.
		return p.prefix + "/" + strings.TrimPrefix(u.String(), "/"), true
	}
	return u.String(), true
}

func beyondASCII(c rune) bool { return c > unicode.MaxASCII }

// sameHost reports whether two hosts have one name and one port.
func sameHost(a, b string) bool {
	return nameOf(a) == nameOf(b) && (&url.URL{Host: a}).Port() == (&url.URL{Host: b}).Port()
}

// nameOf is a host without its port, in the one form of its name.
func nameOf(host string) string {
	return strings.ToLower(strings.TrimSuffix((&url.URL{Host: host}).Hostname(), "."))
}
