package control

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// What a program in a sandbox may send before its answer's body.
const maxWebHeader = 64 << 10

// confinement is what keeps a page from a sandbox apart from the daemon and
// from the pages of other sandboxes, which a browser has under one origin: it
// gives the page an origin that is nobody's.
const confinement = "sandbox allow-downloads allow-forms allow-modals allow-popups allow-scripts"

// dropped are headers of an answer that would reach beyond the page that sent
// them, to everything under the daemon's name, or that the listener has set.
var dropped = []string{"Alt-Svc", "Clear-Site-Data", "Cross-Origin-Resource-Policy", "Origin-Agent-Cluster", "Public-Key-Pins", "Referrer-Policy",
	"Report-To", "Nel", "Reporting-Endpoints", "Service-Worker-Allowed", "Strict-Transport-Security", "X-Content-Type-Options"}

// newTransport makes HTTP connections to ports inside. The port is in the
// address, so that a connection to one is never used for another.
func (e *entry) newTransport() *http.Transport {
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			number, err := parsePort(port)
			if err != nil {
				return nil, err
			}
			return e.dial(ctx, number)
		},
		DisableCompression:     true, // bytes as they are
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: maxWebHeader,
		Protocols:              new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true)
	return t
}

// serveWeb passes a request on to the port that the executor has bound.
func (e *entry) serveWeb(w http.ResponseWriter, r *http.Request, t target) {
	x, err := e.theExecutor()
	if err != nil {
		fail(w, err)
		return
	}
	bound, ok := x.Bound()
	if !ok {
		fail(w, &sandbar.Error{Code: sandbar.NotFound, Field: "port", Message: "no port of sandbox " + string(e.sandbox.ID()) + " is bound",
			Fix: "bind one with POST …/bind_port of its executor"})
		return
	}
	release, err := e.take()
	if err != nil {
		fail(w, err)
		return
	}
	defer release()
	defer e.sandbox.Hold()()
	h := w.Header()
	h.Del("Cache-Control") // the page's own affair
	h.Set("Content-Security-Policy", confinement)
	p := page{prefix: "/r/" + string(e.sandbox.ID()), host: "localhost:" + strconv.Itoa(bound)}
	proxy := httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { p.rewrite(r, t, bound) },
		ModifyResponse: p.modify,
		Transport:      e.transport,
		FlushInterval:  -1,
		ErrorLog:       log.New(io.Discard, "", 0),
		ErrorHandler:   webFailed,
	}
	proxy.ServeHTTP(w, r)
}

// page is where a sandbox's pages are for a browser, and for its programs.
type page struct{ prefix, host string }

// rewrite makes the request that the program sees.
func (p page) rewrite(r *httputil.ProxyRequest, t target, bound int) {
	out := r.Out
	out.URL.Scheme, out.URL.Host = "http", net.JoinHostPort("127.0.0.1", strconv.Itoa(bound))
	out.URL.Path, out.URL.RawPath = t.rest, t.raw
	out.Host = p.host // servers made for development answer to no other name
	r.SetXForwarded()
	out.Header.Set("X-Forwarded-Prefix", p.prefix)
	// The daemon's token, or the sandbox's: neither is for its programs.
	out.Header.Del("Authorization")
	out.Header.Del(routingKey)
}

// modify makes the answer that the client sees.
func (p page) modify(r *http.Response) error {
	for _, name := range dropped {
		r.Header.Del(name)
	}
	if to := r.Header.Get("Location"); to != "" {
		r.Header.Set("Location", p.location(to))
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
	return nil
}

// location is where a redirection leads, for the client. One that the program
// means for itself leads to where the client finds it.
func (p page) location(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.Opaque != "" || u.Host != "" && !strings.EqualFold(u.Host, p.host) || u.Host == "" && !strings.HasPrefix(u.Path, "/") {
		return to
	}
	u.Scheme, u.Host, u.User = "", "", nil
	tail := u.String()
	if !strings.HasPrefix(tail, "/") {
		tail = "/" + tail
	}
	return p.prefix + tail
}

// webFailed answers for a program that did not.
func webFailed(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // the client left, or the daemon is ending
	}
	e := sandbar.AsError(err)
	if e.Code == sandbar.Internal {
		e = sandbar.Errorf(sandbar.Unavailable, "the program at the port does not answer in HTTP: %w", err)
	}
	status := statusOf(e.Code)
	if e.Code == sandbar.Unavailable {
		status = http.StatusBadGateway // unlike 503 no reason for a client to try again at once
	}
	failWith(w, status, e)
}
