package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Proxy forwards requests to a cluster's API server with an administrator's rights and counts them.
type Proxy struct {
	dir    string // of the kubeconfig
	server *http.Server
	to     *http.Transport

	mu    sync.Mutex
	calls map[string]int
}

// NewProxy starts a proxy. This process must be in the cluster's network namespace.
func (c *Cluster) NewProxy() (p *Proxy, err error) {
	pair, err := tls.LoadX509KeyPair(c.path("pki", "admin.crt"), c.path("pki", "admin.key"))
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(c.path("pki", "ca.crt"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	p = &Proxy{calls: map[string]int{}, to: &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool}, ForceAttemptHTTP2: true}}
	if p.dir, err = os.MkdirTemp("", "sbkp-"); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		err = os.WriteFile(p.Kubeconfig(), fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "http://%s"}}]
users: [{name: test, user: {}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
current-context: test
`, l.Addr()), 0o600)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(p.dir))
	}
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "https", Host: APIServer + ":6443"})
	forward.Transport, forward.FlushInterval = p.to, -1
	p.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.count(r)
		_ = http.NewResponseController(w).EnableFullDuplex() // see ports.Forward
		forward.ServeHTTP(w, r)
	})}
	go p.server.Serve(l) // until Close
	return p, nil
}

// Kubeconfig returns the path of a kubeconfig for the proxy.
func (p *Proxy) Kubeconfig() string { return filepath.Join(p.dir, "kubeconfig") }

// count counts a request, except those that watch: these last.
func (p *Proxy) count(r *http.Request) {
	_, rest, _ := strings.Cut(r.URL.Path, "/namespaces/")
	_, rest, _ = strings.Cut(rest, "/")
	resource, _, _ := strings.Cut(rest, "/")
	if r.URL.Query().Has("watch") {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[r.Method+" "+resource]++
}

// Calls returns the number of requests since the last call, by method and resource: "POST pods".
func (p *Proxy) Calls() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := maps.Clone(p.calls)
	clear(p.calls)
	return calls
}

// Close ends the proxy and its connections.
func (p *Proxy) Close() error {
	err := p.server.Close()
	p.to.CloseIdleConnections()
	return errors.Join(err, os.RemoveAll(p.dir))
}
