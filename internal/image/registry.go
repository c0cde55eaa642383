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

// registries decides which hosts are dialled. The daemon dials; the unpacker
// looks at every request as well.
type registries struct {
	// private are registries, host or host:port, that may have addresses which
	// are not public; insecure are those of them that are spoken to without TLS.
	private, insecure []string
	stall             time.Duration
}

// listed reports whether a list names host:port, or the host with any port.
func listed(list []string, host, port string) bool {
	return slices.ContainsFunc(list, func(s string) bool {
		return strings.EqualFold(s, host) || strings.EqualFold(s, net.JoinHostPort(host, port))
	})
}

func (r registries) mayBePrivate(host, port string) bool {
	return listed(r.private, host, port) || listed(r.insecure, host, port)
}

// isInsecure reports whether a registry, as it stands in a reference, is spoken
// to without TLS.
func (r registries) isInsecure(registry string) bool {
	host, port, err := net.SplitHostPort(registry)
	if err != nil {
		host, port = registry, ""
	}
	return listed(r.insecure, host, port)
}

// refused says that an address is not dialled.
func refused(host string) error {
	return &sandbar.Error{Code: sandbar.Denied, Field: "image",
		Message: "the registry " + sandbar.Quote(host, 100) + " is not on the internet, and is not dialled",
		Fix:     "if it is yours, list it in images.registries"}
}

// dialer connects to host:port.
type dialer func(ctx context.Context, addr string) (net.Conn, error)

// transport speaks to registries, and to wherever they send us for layers.
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

// dial connects to host:port. The address is looked at when it is dialled, so
// that no name can change in between.
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

// isProxy reports whether host:port is the proxy that the operator set in the
// environment, which is wherever he says.
func isProxy(host, port string) bool {
	for _, scheme := range []string{"http", "https"} {
		// A name that no proxy is exempted for.
		u, err := http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: scheme, Host: "registry.invalid"}})
		if err == nil && u != nil && strings.EqualFold(u.Hostname(), host) && (u.Port() == port || u.Port() == "") {
			return true
		}
	}
	return false
}

// guarded stands in front of the transport: it looks at every request, also at
// those that a proxy carries to addresses we never see, and bounds every answer.
type guarded struct {
	registries
	next http.RoundTripper
}

// maxAnswer bounds an answer that is not content: tokens, errors, manifests.
const maxAnswer = maxDocument

func (g guarded) RoundTrip(q *http.Request) (*http.Response, error) {
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
		p.Body = &patient{ReadCloser: p.Body, stall: g.stall}
	} else {
		p.Body = &bounded{ReadCloser: p.Body, left: maxAnswer}
	}
	return p, nil
}

// isContent reports whether a request, or the one that was redirected to it, is
// for the bytes of a layer or a configuration.
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

// bounded ends an answer that is longer than any of its kind.
type bounded struct {
	io.ReadCloser
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n, &sandbar.Error{Code: sandbar.TooLarge, Field: "image", Message: "the registry's answer is longer than " + size(maxAnswer)}
	}
	return n, err
}

// patient closes a body that sends nothing for too long.
type patient struct {
	io.ReadCloser
	stall time.Duration
}

func (p *patient) Read(b []byte) (int, error) {
	t := time.AfterFunc(p.stall, func() { p.ReadCloser.Close() })
	n, err := p.ReadCloser.Read(b)
	if !t.Stop() && err != nil && err != io.EOF {
		err = fmt.Errorf("nothing came for %v: %w", p.stall, context.DeadlineExceeded)
	}
	return n, err
}
