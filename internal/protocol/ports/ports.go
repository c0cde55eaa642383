// Package ports leads HTTP requests to ports of sandboxes: the host names of ports, and the reverse
// proxy to the programs behind them. Protocols decide who may open a port.
//
// A program's answer is untrusted. The proxy drops informational answers and trailers, bounds the
// header, and passes no header by which a browser would do something beyond the page ([Clean]).
//
// Requests between daemons have a proxy of their own (package peers), which also uses [Forward].
package ports

import (
	"cmp"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/sandbar-dev/sandbar"
)

// idPrefix is the part of an ID that its host names lack.
const idPrefix = "sb_"

// maxHeader bounds a program's response header, in bytes.
const maxHeader = 64 << 10

// Names are the host names of one protocol: PORT-MARK+ID.DOMAIN, where ID is the sandbox's id
// without "sb_". Protocols that share a domain have different marks.
type Names struct {
	Mark   string
	Domain string // in lower case, without port
}

// Host returns the host name of a port.
func (n Names) Host(id sandbar.ID, port int) string {
	return strconv.Itoa(port) + "-" + n.Label(id) + "." + n.Domain
}

// Label returns the mark and the id without "sb_".
func (n Names) Label(id sandbar.ID) string { return n.Mark + strings.TrimPrefix(string(id), idPrefix) }

// ParseLabel returns the sandbox of a Label.
func (n Names) ParseLabel(label string) (sandbar.ID, bool) {
	rest, ok := strings.CutPrefix(label, n.Mark)
	id, err := sandbar.ParseID(idPrefix + rest)
	return id, ok && err == nil
}

// Parse returns the sandbox and the port of a host name in lower case.
func (n Names) Parse(host string) (id sandbar.ID, port int, ok bool) {
	label, below := strings.CutSuffix(host, "."+n.Domain)
	number, rest, cut := strings.Cut(label, "-")
	id, known := n.ParseLabel(rest)
	port, err := Parse(number)
	return id, port, below && cut && known && err == nil
}

// Parse parses a port. Invalid: it is not a number from 1 to 65535, or has a sign or leading zeros.
func Parse(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 65535 || strconv.Itoa(n) != text {
		return 0, &sandbar.Error{Code: sandbar.Invalid, Field: "port", Message: "port " + sandbar.Quote(text, 20) + " is not a number from 1 to 65535"}
	}
	return n, nil
}

// NewTransport returns a transport to ports of one sandbox. The port is part of the address, so
// connections are not reused for another port.
func NewTransport(dial func(ctx context.Context, port int) (net.Conn, error)) *http.Transport {
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			number, err := Parse(port)
			if err != nil {
				return nil, err
			}
			return dial(ctx, number)
		},
		DisableCompression:     true, // pass the bytes unchanged
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: maxHeader,
		Protocols:              new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true)
	return t
}

// Proxy forwards requests to a port of a sandbox.
type Proxy struct {
	Transport *http.Transport // of NewTransport
	Port      int
	// Rewrite changes the request for the program, Modify the program's response.
	Rewrite func(*http.Request)
	Modify  func(*http.Response)
	// Failed answers for a program that does not. It is not called for a client that has left.
	Failed func(http.ResponseWriter, *sandbar.Error)
}

// ServeHTTP forwards one request, also one that upgrades its connection.
func (p Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	Forward(w, r, httputil.ReverseProxy{
		Rewrite: func(x *httputil.ProxyRequest) {
			x.Out.URL.Scheme, x.Out.URL.Host = "http", net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Port))
			x.SetXForwarded()
			p.Rewrite(x.Out)
			HideCookies(x.Out, ConsoleCookie, SecureConsoleCookie)
		},
		ModifyResponse: func(r *http.Response) error {
			p.Modify(r)
			return nil
		},
		Transport:     confinedTransport{p.Transport},
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() != nil {
				panic(http.ErrAbortHandler) // the client left, or the daemon is shutting down
			}
			e := sandbar.AsError(err)
			if e.Code == sandbar.Internal {
				e = sandbar.Errorf(sandbar.Unavailable, "the program at the port does not answer in HTTP: %w", err)
			}
			p.Failed(w, e)
		},
	})
}

// Forward serves a request with a reverse proxy, which needs a ModifyResponse. The response may
// begin before the whole request has arrived: without full duplex, net/http would read the rest of
// the request itself before it writes the response, beside the proxy's transport, which then fails
// and cuts the response.
func Forward(w http.ResponseWriter, r *http.Request, proxy httputil.ReverseProxy) {
	body := &watchedBody{ReadCloser: r.Body}
	r = r.WithContext(r.Context()) // net/http examines the body of the original
	r.Body = body
	modify := proxy.ModifyResponse
	proxy.ModifyResponse = func(resp *http.Response) error {
		if err := http.NewResponseController(w).EnableFullDuplex(); err == nil && r.ProtoMajor == 1 && !body.ended.Load() &&
			(r.ContentLength < 0 || r.ContentLength > maxUnread) {
			resp.Header.Set("Connection", "close")
		}
		return modify(resp)
	}
	proxy.ServeHTTP(w, r)
}

// maxUnread is how much of a request net/http reads after the response, in bytes, to use the
// connection for another request. If there is more, it closes the connection.
const maxUnread = 256 << 10

// watchedBody is the body of a request. ended reports whether it was read to its end.
type watchedBody struct {
	io.ReadCloser
	ended atomic.Bool
}

// Read implements io.Reader.
func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.ended.Store(true)
	}
	return n, err
}

// The names of the console's cookie, over plain HTTP and over TLS. A browser sends it with every
// request to the daemon's host, and no program receives it.
const (
	ConsoleCookie       = "sandbar_console"
	SecureConsoleCookie = "__Host-" + ConsoleCookie
)

// IsHTTPS reports whether a client has sent a request over TLS, to the daemon or to a proxy.
func IsHTTPS(r *http.Request) bool {
	return r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https"
}

// PlainHost reports whether a host, with or without a port, has only characters of names and
// addresses, so that it can stand in a header such as Content-Security-Policy.
func PlainHost(host string) bool {
	return host != "" && !strings.ContainsFunc(host, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune(".-:[]", c)
	})
}

// HideCookies removes the cookies with some names from a request. The others stay as they are.
func HideCookies(r *http.Request, names ...string) {
	var kept []string
	for _, line := range r.Header["Cookie"] {
		for pair := range strings.SplitSeq(line, ";") {
			pair = strings.TrimSpace(pair)
			if name, _, _ := strings.Cut(pair, "="); pair != "" && !slices.Contains(names, strings.TrimSpace(name)) {
				kept = append(kept, pair)
			}
		}
	}
	r.Header.Del("Cookie")
	if len(kept) > 0 {
		r.Header.Set("Cookie", strings.Join(kept, "; "))
	}
}

// HostHeaders are the response headers of programs that no client receives, because browsers apply
// them to more than the origin of the page: to all ports of the host name, or to the whole domain.
// Programs use headers of their own, so an allow-list would break them. Browsers interpret a closed
// set of headers.
func HostHeaders() []string {
	return []string{
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
}

// Clean changes a program's response for a client that has sent its request to a host name of a
// port. It drops HostHeaders. Redirections to the program's own address inside lead to the host
// name; one to another port of that name is dropped, because clients send their token along. No
// cookie is for the whole domain; programs cannot set the cookies with the reserved names.
func Clean(r *http.Response, port int, host string, reserved ...string) {
	for _, name := range HostHeaders() {
		r.Header.Del(name)
	}
	if to := r.Header.Get("Location"); to != "" {
		u, err := url.Parse(to)
		switch {
		case err != nil || strings.ContainsFunc(to, BeyondASCII):
			r.Header.Del("Location")
		case u.Port() == strconv.Itoa(port) && slices.Contains([]string{"localhost", "127.0.0.1", "0.0.0.0", "::1", "::"}, NameOf(u.Host)):
			u.Scheme, u.Host, u.User = "", "", nil
			r.Header.Set("Location", cmp.Or(u.String(), "/"))
		case u.Host != "" && NameOf(u.Host) == NameOf(host) && !SameHost(u.Host, host):
			r.Header.Del("Location")
		}
	}
	cookies := r.Cookies()
	r.Header.Del("Set-Cookie")
	for _, c := range cookies {
		c.Domain = ""
		if text := c.String(); text != "" && !slices.Contains(reserved, c.Name) {
			r.Header.Add("Set-Cookie", text)
		}
	}
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

// BeyondASCII reports whether a character is not ASCII.
func BeyondASCII(c rune) bool { return c > unicode.MaxASCII }

// SameHost reports whether two hosts have the same name and port.
func SameHost(a, b string) bool {
	return NameOf(a) == NameOf(b) && (&url.URL{Host: a}).Port() == (&url.URL{Host: b}).Port()
}

// NameOf returns the canonical name of a host, without its port.
func NameOf(host string) string {
	return strings.ToLower(strings.TrimSuffix((&url.URL{Host: host}).Hostname(), "."))
}
