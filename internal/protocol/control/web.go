package control

import (
	"net/http"
	"strconv"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/protocol/ports"
)

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
	ports.Proxy{Transport: e.transport, Port: port, Rewrite: rewrite, Modify: modify, Failed: webFailed}.ServeHTTP(w, r)
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
func webFailed(w http.ResponseWriter, e *sandbar.Error) {
	status := statusOf(e.Code)
	if e.Code == sandbar.Unavailable {
		status = http.StatusBadGateway // unlike 503, it does not make clients retry at once
	}
	failWith(w, status, e)
}
