// Package peers lets several daemons behind one load balancer answer as one. A request for a
// sandbox of another daemon is forwarded to that daemon, with its streams and WebSockets, and a
// list has the sandboxes of all daemons. The daemons share no state: a daemon asks the others which
// of them has a sandbox, and remembers the answer.
//
// All daemons must have the same token, with which they ask each other. A forwarded request is
// unchanged, so the daemon that has the sandbox checks it as one of its own.
package peers

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/protocol/ports"
)

// Header marks a request that another daemon has forwarded, which is not forwarded again. Its value
// is random and names that daemon, so that a daemon whose own address is among those of the others
// recognizes itself.
const Header = "Sandbar-Forwarded"

const (
	// askBound bounds one question to another daemon, and one list.
	askBound = 5 * time.Second
	// maxList is the largest list that a daemon accepts from another, in bytes.
	maxList = 64 << 20
	// maxPeers bounds the daemons.
	maxPeers = 64
	// maxAsking bounds the requests whose daemon is being looked for.
	maxAsking = 256
	// remembered is the number of sandboxes whose daemon is remembered, foundFor and missingFor for
	// how long. A sandbox that moved, or was unknown, is looked for again after that.
	remembered = 100_000
	foundFor   = time.Minute
	missingFor = time.Second
)

// Options are the parameters of Peers.
type Options struct {
	// Addresses are the URLs of the other daemons; or one URL after "dns+", whose host is a name that
	// has the addresses of all daemons, this one among them.
	Addresses []string
	// CA is a PEM file with the certificates that the daemons' certificates are checked with.
	// Default: those of the system.
	CA string
	// Token is the daemons' token.
	Token string
	// Fail writes an error as the response.
	Fail func(w http.ResponseWriter, status int, err *sandbar.Error)
	// Logger receives structured logs. Default: discards.
	Logger *slog.Logger
}

// Peers are the other daemons. Its methods may be called concurrently.
type Peers struct {
	o         Options
	fixed     []*url.URL
	named     *url.URL // whose host has the addresses; or nil
	transport *http.Transport
	asking    chan struct{}
	self      string // the value of Header

	mu     sync.Mutex
	token  string
	owners map[string]answer // by id or name of a sandbox
	failed map[string]bool   // by URL: the last question failed, which was logged
}

// answer says which daemon has a sandbox.
type answer struct {
	owner *url.URL // nil: none
	until time.Time
}

// New checks the addresses and reads the certificates. Invalid: one is wrong.
func New(o Options) (*Peers, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Peers{o: o, self: rand.Text(), token: o.Token, asking: make(chan struct{}, maxAsking), owners: map[string]answer{}, failed: map[string]bool{},
		transport: &http.Transport{MaxIdleConnsPerHost: 32, IdleConnTimeout: time.Minute, DisableCompression: true,
			TLSHandshakeTimeout: askBound, DialContext: (&net.Dialer{Timeout: askBound}).DialContext}}
	for _, address := range o.Addresses {
		text, named := strings.CutPrefix(address, "dns+")
		u, err := parse(text)
		if err != nil {
			return nil, err
		}
		if !named {
			p.fixed = append(p.fixed, u)
			continue
		}
		if len(o.Addresses) > 1 {
			return nil, &sandbar.Error{Code: sandbar.Invalid, Field: "peers.addresses", Message: sandbar.Quote(address, 100) + " has all daemons, and there are other addresses besides",
				Fix: "give one address with dns+, or addresses without"}
		}
		p.named = u
		p.transport.TLSClientConfig = &tls.Config{ServerName: u.Hostname()} // the URLs have addresses
	}
	if len(p.fixed) > maxPeers {
		return nil, &sandbar.Error{Code: sandbar.Invalid, Field: "peers.addresses", Message: "there are more than " + strconv.Itoa(maxPeers) + " other daemons", Fix: "give fewer addresses"}
	}
	if o.CA == "" {
		return p, nil
	}
	pem, err := os.ReadFile(o.CA)
	roots := x509.NewCertPool()
	if err != nil || !roots.AppendCertsFromPEM(pem) {
		return nil, &sandbar.Error{Code: sandbar.Invalid, Field: "peers.ca", Err: err, Message: "the file " + sandbar.Quote(o.CA, 200) + " has no certificate that can be read",
			Fix: "name a PEM file"}
	}
	if p.transport.TLSClientConfig == nil {
		p.transport.TLSClientConfig = &tls.Config{}
	}
	p.transport.TLSClientConfig.RootCAs = roots
	return p, nil
}

// parse parses the address of a daemon, without "dns+". Invalid: it is not one.
func parse(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
		return nil, &sandbar.Error{Code: sandbar.Invalid, Field: "peers.addresses", Message: sandbar.Quote(address, 100) + " is not the URL of a daemon",
			Fix: "give http://HOST:PORT or https://HOST:PORT, or dns+http://NAME:PORT for all addresses of a name"}
	}
	return u, nil
}

// SetToken replaces the daemons' token.
func (p *Peers) SetToken(token string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.token = token
}

// Close closes idle connections.
func (p *Peers) Close() { p.transport.CloseIdleConnections() }

// Handler returns a function that returns the handler of a request for a sandbox that another
// daemon has: it forwards the request. For a request that this daemon serves the function returns
// nil: for its own sandboxes, for none, and for one that nobody has. sandbox returns the id or name
// of a request's sandbox, "" for none, and whether this daemon has it. Handler returns nil if there
// are no other daemons.
func (p *Peers) Handler(sandbox func(*http.Request) (key string, here bool)) func(*http.Request) http.Handler {
	if len(p.o.Addresses) == 0 {
		return nil
	}
	return func(r *http.Request) http.Handler {
		if from := r.Header.Get(Header); from == p.self {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMisdirectedRequest) })
		} else if from != "" {
			return nil
		}
		key, here := sandbox(r)
		if key == "" || key == "." || key == ".." || here { // dots would be parts of a path
			return nil
		}
		owner, err := p.owner(r.Context(), key)
		switch {
		case err != nil:
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				p.o.Fail(w, http.StatusServiceUnavailable, sandbar.AsError(err))
			})
		case owner == nil:
			return nil
		}
		return p.proxy(owner, key)
	}
}

// proxy forwards requests for a sandbox to the daemon that has it.
func (p *Peers) proxy(owner *url.URL, key string) http.Handler {
	to := httputil.ReverseProxy{
		Rewrite: func(x *httputil.ProxyRequest) {
			x.SetURL(owner)
			x.Out.Host = x.In.Host // names of previews
			x.Out.Header["X-Forwarded-For"] = x.In.Header["X-Forwarded-For"]
			x.SetXForwarded()
			if proto := x.In.Header["X-Forwarded-Proto"]; proto != nil { // of a proxy in front: how the browser came
				x.Out.Header["X-Forwarded-Proto"] = proto
			}
			x.Out.Header.Set(Header, p.self)
		},
		Transport:     p.transport,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
		ModifyResponse: func(r *http.Response) error {
			if r.StatusCode == http.StatusNotFound {
				p.forget(key)
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() != nil {
				panic(http.ErrAbortHandler) // the client left
			}
			p.forget(key)
			p.o.Logger.Warn("a request could not be forwarded", "daemon", owner.String(), "error", err)
			p.o.Fail(w, http.StatusBadGateway, &sandbar.Error{Code: sandbar.Unavailable, Err: err, Message: "the daemon at " + owner.Host + " had this sandbox and does not answer now", Fix: "try again"})
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { ports.Forward(w, r, to) })
}

// owner returns the daemon that has a sandbox, nil for none. Unavailable: none of those that answer
// has it, and one does not answer.
func (p *Peers) owner(ctx context.Context, key string) (*url.URL, error) {
	p.mu.Lock()
	a, known := p.owners[key]
	p.mu.Unlock()
	if known && time.Now().Before(a.until) {
		return a.owner, nil
	}
	select {
	case p.asking <- struct{}{}:
		defer func() { <-p.asking }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, askBound)
	defer cancel()
	all, err := p.others(ctx)
	if err != nil {
		return nil, err
	}
	type reply struct {
		u   *url.URL
		has bool
		err error
	}
	each := make(chan reply, len(all))
	for _, u := range all {
		go func() {
			has, err := p.has(ctx, u, key)
			p.note(u, err)
			each <- reply{u, has, err}
		}()
	}
	var unknown error
	for range all {
		a := <-each
		if a.has {
			p.remember(key, answer{a.u, time.Now().Add(foundFor)})
			return a.u, nil
		}
		if a.err != nil && !hasEnded(a.err) {
			unknown = noAnswer(a.u, a.err)
		}
	}
	if unknown == nil {
		p.remember(key, answer{nil, time.Now().Add(missingFor)})
	}
	return nil, unknown
}

// hasEnded reports whether an error shows that there is no daemon: nothing can connect to it. Its
// sandboxes have ended with it.
func hasEnded(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH)
}

func noAnswer(u *url.URL, err error) error {
	return &sandbar.Error{Code: sandbar.Unavailable, Err: err, Message: "the daemon at " + u.Host + " does not answer, so its sandboxes are unknown: " + sandbar.Quote(err.Error(), 200),
		Fix: "try again"}
}

func (p *Peers) remember(key string, a answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.owners) >= remembered {
		clear(p.owners)
	}
	p.owners[key] = a
}

func (p *Peers) forget(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.owners, key)
}

// has asks a daemon whether it has a sandbox.
func (p *Peers) has(ctx context.Context, u *url.URL, key string) (bool, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.JoinPath("v1", "sandboxes", url.PathEscape(key)).String(), nil)
	if err != nil {
		return false, err
	}
	p.mu.Lock()
	r.Header.Set("Authorization", "Bearer "+p.token)
	p.mu.Unlock()
	r.Header.Set(Header, p.self)
	got, err := p.transport.RoundTrip(r)
	if err != nil {
		return false, err
	}
	defer got.Body.Close()
	io.Copy(io.Discard, io.LimitReader(got.Body, 1<<20)) // so that the connection can be used again
	switch got.StatusCode {
	case http.StatusOK:
		return true, nil
	case http.StatusNotFound, http.StatusMisdirectedRequest:
		return false, nil
	}
	return false, errors.New("the daemon answers " + got.Status)
}

// List sends a GET request to all other daemons, with its credentials, and returns their answers:
// none for a request that another daemon has sent, and none of this daemon.
// The answer of a daemon to which nothing can connect is left out: the daemon has ended, and its
// sandboxes with it. Unavailable: another daemon does not answer.
func (p *Peers) List(r *http.Request) (headers []http.Header, bodies [][]byte, err error) {
	if r.Header.Get(Header) != "" {
		return nil, nil, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), askBound)
	defer cancel()
	all, err := p.others(ctx)
	if err != nil {
		return nil, nil, err
	}
	type reply struct {
		u    *url.URL
		got  *http.Response
		body []byte
		err  error
	}
	each := make(chan reply, len(all))
	for _, u := range all {
		go func() {
			a := reply{u: u}
			a.got, a.body, a.err = p.fetch(ctx, u, r)
			each <- a
		}()
	}
	for range all {
		a := <-each
		p.note(a.u, a.err)
		switch {
		case a.err == nil && a.got.StatusCode == http.StatusMisdirectedRequest: // this daemon
		case a.err == nil:
			headers, bodies = append(headers, a.got.Header), append(bodies, a.body)
		case !hasEnded(a.err):
			err = noAnswer(a.u, a.err)
		}
	}
	return headers, bodies, err
}

// Ask sends a GET request for this daemon itself to all others, with the daemons' token. It returns
// the answers and errors of List.
func (p *Peers) Ask(ctx context.Context, path string, query url.Values) ([][]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://daemon"+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	r.Host = "" // that of each daemon
	p.mu.Lock()
	r.Header.Set("Authorization", "Bearer "+p.token)
	p.mu.Unlock()
	_, bodies, err := p.List(r)
	return bodies, err
}

// fetch sends a request to a daemon.
func (p *Peers) fetch(ctx context.Context, u *url.URL, r *http.Request) (*http.Response, []byte, error) {
	to := u.JoinPath(r.URL.EscapedPath())
	to.RawQuery = r.URL.RawQuery
	out, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), nil)
	if err != nil {
		return nil, nil, err
	}
	out.Host = r.Host
	out.Header = r.Header.Clone()
	out.Header.Del("Connection")
	if r.TLS != nil { // as the proxy tells it: a session has another name over TLS
		out.Header.Set("X-Forwarded-Proto", "https")
	}
	out.Header.Set(Header, p.self)
	got, err := p.transport.RoundTrip(out)
	if err != nil {
		return nil, nil, err
	}
	defer got.Body.Close()
	body, err := io.ReadAll(io.LimitReader(got.Body, maxList+1))
	switch {
	case err != nil:
	case got.StatusCode != http.StatusOK && got.StatusCode != http.StatusMisdirectedRequest:
		err = errors.New("it answers " + got.Status)
	case len(body) > maxList:
		err = errors.New("its list is too large")
	}
	return got, body, err
}

// note logs that a daemon does not answer, or answers again, once.
func (p *Peers) note(u *url.URL, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.failed[u.String()]
	switch {
	case err == nil && was:
		delete(p.failed, u.String())
		p.o.Logger.Info("another daemon answers again", "daemon", u.String())
	case err != nil && !was && !errors.Is(err, context.Canceled):
		if len(p.failed) >= 4*maxPeers { // names may have had many addresses
			clear(p.failed)
		}
		p.failed[u.String()] = true
		p.o.Logger.Warn("another daemon does not answer", "daemon", u.String(), "error", err)
	}
}

// others returns the daemons besides this one. Unavailable: their name cannot be resolved.
func (p *Peers) others(ctx context.Context) ([]*url.URL, error) {
	if p.named == nil {
		return p.fixed, nil
	}
	addresses, err := net.DefaultResolver.LookupHost(ctx, p.named.Hostname())
	p.note(p.named, err)
	if err != nil {
		return nil, &sandbar.Error{Code: sandbar.Unavailable, Err: err, Message: "the name of the other daemons, " + p.named.Hostname() + ", cannot be resolved: " + sandbar.Quote(err.Error(), 200),
			Fix: "try again; or correct peers.addresses"}
	}
	own := ownAddresses()
	addresses = slices.DeleteFunc(addresses, func(a string) bool { return own[a] })
	all := []*url.URL{}
	for _, a := range addresses[:min(len(addresses), maxPeers)] {
		u := *p.named
		u.Host = net.JoinHostPort(a, portOf(p.named))
		all = append(all, &u)
	}
	return all, nil
}

func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// ownAddresses returns the addresses of this host.
func ownAddresses() map[string]bool {
	own := map[string]bool{}
	all, _ := net.InterfaceAddrs() // without them, the daemon asks itself
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			own[n.IP.String()] = true
		}
	}
	return own
}
