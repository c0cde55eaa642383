package control

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// What a program in a sandbox may send before its answer's body.
const maxWebHeader = 64 << 10

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
	p := page{prefix: "/r/" + string(e.sandbox.ID()), host: "localhost:" + strconv.Itoa(bound), daemon: r.Host}
	proxy := httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { p.rewrite(r, t, bound) },
		// Until the program's final answer is here, the header of the client's
		// answer is the listener's, under which a browser shows nothing.
		ModifyResponse: func(r *http.Response) error {
			p.modify(r)
			w.Header().Del("Cache-Control") // the page's own affair
			w.Header().Set("Content-Security-Policy", confinement)
			return nil
		},
		Transport:     confined{e.transport},
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler:  webFailed,
	}
	proxy.ServeHTTP(w, r)
}

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
