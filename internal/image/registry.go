package image

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// registries decides which hosts may be contacted. The daemon checks each dial, the unpacker each
// request.
type registries struct {
	// private are registries, host or host:port, that may have non-public addresses; insecure are
	// those of them without TLS.
	private, insecure []string
	stall             time.Duration
}

// listed reports whether a list contains host:port, or the host without a port.
func listed(list []string, host, port string) bool {
	return slices.ContainsFunc(list, func(s string) bool {
		return strings.EqualFold(s, host) || strings.EqualFold(s, net.JoinHostPort(host, port))
	})
}

func (r registries) mayBePrivate(host, port string) bool {
	return listed(r.private, host, port) || listed(r.insecure, host, port)
}

// isInsecure reports whether a registry, as written in a reference, is used without TLS.
func (r registries) isInsecure(registry string) bool {
	host, port, err := net.SplitHostPort(registry)
	if err != nil {
		host, port = registry, ""
	}
	return listed(r.insecure, host, port)
}

// refused returns the error for an address that may not be dialled.
func refused(host string) error {
	return &sandbar.Error{Code: sandbar.Denied, Field: "image",
		Message: "the registry " + sandbar.Quote(host, 100) + " has a non-public address and is not dialled",
		Fix:     "if it is yours, list it in images.registries"}
}

// dialer connects to host:port.
type dialer func(ctx context.Context, addr string) (net.Conn, error)

// transport returns an HTTP transport for registries and the hosts to which they redirect.
func (r registries) transport(dial dialer) *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            func(ctx context.Context, _, addr string) (net.Conn, error) { return dial(ctx, addr) },
		TLSHandshakeTimeout:    15 * time.Second,
		ResponseHeaderTimeout:  r.stall,
		IdleConnTimeout:        10 * time.Second,
		MaxResponseHeaderBytes: 256 << 10,
		ForceAttemptHTTP2:      true,
	}
}

// dial connects to host:port. It checks the resolved address at the time of the connect, so that
// DNS cannot change it in between.
func (r registries) dial(ctx context.Context, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: 15 * time.Second}
	if !r.mayBePrivate(host, port) && !isProxy(host, port) {
		d.Control = func(_, address string, _ syscall.RawConn) error { return checkAddress(host, address) }
	}
	return d.DialContext(ctx, "tcp", addr)
}

// checkAddress refuses an address that is not public.
func checkAddress(host, address string) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil || !publicAddress(a.Addr()) {
		return refused(host)
	}
	return nil
}

// isProxy reports whether host:port is the proxy of the operator's environment, whose address is
// not restricted.
func isProxy(host, port string) bool {
	for _, scheme := range []string{"http", "https"} {
		// a name that is not in NO_PROXY
		u, err := http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: scheme, Host: "registry.invalid"}})
		if err == nil && u != nil && strings.EqualFold(u.Hostname(), host) && (u.Port() == port || u.Port() == "") {
			return true
		}
	}
	return false
}

// guardedTransport checks every request before the transport, including those through a proxy,
// whose destination addresses the daemon does not see, and bounds every response.
type guardedTransport struct {
	registries
	next http.RoundTripper
}

// maxAnswer bounds a response other than content: tokens, errors, manifests. In bytes.
const maxAnswer = maxDocument

func (g guardedTransport) RoundTrip(q *http.Request) (*http.Response, error) {
	host, port := q.URL.Hostname(), q.URL.Port()
	if q.URL.Scheme != "https" && q.URL.Scheme != "http" {
		return nil, refused(q.URL.Scheme + ":")
	}
	if !g.mayBePrivate(host, port) {
		if a, err := netip.ParseAddr(host); err == nil && !publicAddress(a) || strings.EqualFold(host, "localhost") {
			return nil, refused(host)
		}
	}
	if q.URL.Scheme == "http" && !listed(g.insecure, host, port) {
		return nil, &sandbar.Error{Code: sandbar.Denied, Field: "image",
			Message: "the registry " + sandbar.Quote(host, 100) + " does not speak TLS",
			Fix:     "if it is yours, list it in images.insecure_registries"}
	}
	p, err := g.next.RoundTrip(q)
	if err != nil {
		return nil, err
	}
	if isContent(q) && p.StatusCode < 300 {
		p.Body = &stallBody{ReadCloser: p.Body, stall: g.stall}
	} else {
		p.Body = &boundedBody{ReadCloser: p.Body, left: maxAnswer}
	}
	return p, nil
}

// isContent reports whether a request, or the one before a redirect, is for a blob.
func isContent(q *http.Request) bool {
	for ; q != nil; q = q.Response.Request {
		if strings.Contains(q.URL.Path, "/blobs/") {
			return true
		}
		if q.Response == nil {
			return false
		}
	}
	return false
}

// boundedBody fails a response that exceeds its bound.
type boundedBody struct {
	io.ReadCloser
	left int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n, &sandbar.Error{Code: sandbar.TooLarge, Field: "image", Message: "the registry's answer is longer than " + size(maxAnswer)}
	}
	return n, err
}

// stallBody closes a body that sends no data for too long.
type stallBody struct {
	io.ReadCloser
	stall time.Duration
}

func (p *stallBody) Read(b []byte) (int, error) {
	t := time.AfterFunc(p.stall, func() { p.ReadCloser.Close() })
	n, err := p.ReadCloser.Read(b)
	if !t.Stop() && err != nil && err != io.EOF {
		err = fmt.Errorf("no data for %v: %w", p.stall, context.DeadlineExceeded)
	}
	return n, err
}
