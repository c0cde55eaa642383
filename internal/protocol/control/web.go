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

// maxWebHeader bounds a program's response header, in bytes.
const maxWebHeader = 64 << 10

// newTransport returns a transport to ports inside. The port is part of the address, so connections
// are not reused for another port.
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
		DisableCompression:     true, // pass the bytes unchanged
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: maxWebHeader,
		Protocols:              new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true)
	return t
}

// serveWeb forwards a request to the port that the executor has bound.
func (e *entry) serveWeb(w http.ResponseWriter, r *http.Request, t target) {
	x, err := e.getExecutor()
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
	release, err := e.reserveConn()
	if err != nil {
		fail(w, err)
		return
	}
	defer release()
	p := page{prefix: "/r/" + string(e.sandbox.ID()), host: "localhost:" + strconv.Itoa(bound), daemon: r.Host}
	e.forward(w, r, bound, func(out *http.Request) { p.rewrite(out, t) }, func(r *http.Response) {
		p.modify(r)
		// Until the program's final response is here, the header of the client's response is the
		// listener's, with which a browser displays nothing.
		w.Header().Del("Cache-Control") // the program decides on caching
		w.Header().Set("Content-Security-Policy", confinement)
	})
}

// forward forwards a request to a port inside. rewrite changes the request for the program, modify
// the program's response.
func (e *entry) forward(w http.ResponseWriter, r *http.Request, port int, rewrite func(*http.Request), modify func(*http.Response)) {
	defer e.sandbox.Hold()()
	proxy := httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = "http", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
			p.SetXForwarded()
			rewrite(p.Out)
		},
		ModifyResponse: func(r *http.Response) error {
			modify(r)
			return nil
		},
		Transport:     confinedTransport{e.transport},
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler:  webFailed,
	}
	proxy.ServeHTTP(w, r)
}

// rewrite makes the request for the program.
func (p page) rewrite(out *http.Request, t target) {
	out.URL.Path, out.URL.RawPath = t.rest, t.raw
	out.Host = p.host // development servers accept no other name
	out.Header.Set("X-Forwarded-Prefix", p.prefix)
	// The token is the daemon's or the sandbox's; programs must not see either.
	out.Header.Del("Authorization")
	out.Header.Del(routingKey)
}

// webFailed responds for a program that failed to.
func webFailed(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // the client left, or the daemon is shutting down
	}
	e := sandbar.AsError(err)
	if e.Code == sandbar.Internal {
		e = sandbar.Errorf(sandbar.Unavailable, "the program at the port does not answer in HTTP: %w", err)
	}
	status := statusOf(e.Code)
	if e.Code == sandbar.Unavailable {
		status = http.StatusBadGateway // unlike 503, it does not make clients retry at once
	}
	failWith(w, status, e)
}
