package docker

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/moby/moby/client"

	"github.com/sandbar-dev/sandbar"
)

// endpoint is the address of an engine and its TLS settings.
type endpoint struct {
	host        string // unix:///…, npipe://…, tcp://…
	ca, cert    string // files; "" without TLS
	key         string
	from        string // the source of the address, for errors
	unencrypted bool   // TCP without TLS
}

// environ is the part of the process's environment that determines the engine.
type environ struct {
	getenv func(string) string
	home   string
	exists func(path string) bool
}

func readEnviron() environ {
	// without a home directory there are no contexts, which an error reports if one is requested
	home, _ := os.UserHomeDir()
	return environ{getenv: os.Getenv, home: home, exists: func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	}}
}

// findEndpoint determines the engine's address, like the docker command: the options, DOCKER_HOST,
// DOCKER_CONTEXT, the docker command's current context, and finally this machine's own socket.
func findEndpoint(o options, s environ) (endpoint, error) {
	switch {
	case o.host != "":
		return addressed(o.host, o.certPath, "option "+optionHost, s)
	case o.context != "":
		return contextEndpoint(o.context, s)
	case s.getenv("DOCKER_HOST") != "":
		return addressed(s.getenv("DOCKER_HOST"), o.certPath, "DOCKER_HOST", s)
	case s.getenv("DOCKER_CONTEXT") != "":
		return contextEndpoint(s.getenv("DOCKER_CONTEXT"), s)
	}
	name, err := currentContext(s)
	if err != nil {
		return endpoint{}, err
	}
	if name != "" {
		return contextEndpoint(name, s)
	}
	return addressed(ownSocket(s), o.certPath, "the default", s)
}

// ownSocket returns the socket of this machine's engine: root's, or that of an engine that runs as
// this user.
func ownSocket(s environ) string {
	if runtime.GOOS == "windows" {
		return client.DefaultDockerHost
	}
	if dir := s.getenv("XDG_RUNTIME_DIR"); dir != "" && !s.exists("/var/run/docker.sock") && s.exists(dir+"/docker.sock") {
		return "unix://" + dir + "/docker.sock"
	}
	return client.DefaultDockerHost
}

// addressed returns the endpoint of an address. The TLS files are in certPath, or in
// DOCKER_CERT_PATH if DOCKER_TLS_VERIFY is set.
func addressed(host, certPath, from string, s environ) (endpoint, error) {
	e := endpoint{host: host, from: from}
	scheme, rest, ok := strings.Cut(host, "://")
	if !ok || rest == "" {
		return e, badEndpoint(e, "is no address", "give one such as unix:///var/run/docker.sock or tcp://host:2376")
	}
	if certPath == "" && (s.getenv("DOCKER_TLS_VERIFY") != "" || s.getenv("DOCKER_TLS") != "") {
		certPath = s.getenv("DOCKER_CERT_PATH")
		if certPath == "" {
			certPath = filepath.Join(dockerDir(s), "")
		}
	}
	switch scheme {
	case "unix", "npipe":
	case "tcp", "http", "https":
		e.host = "tcp://" + rest
		if certPath == "" {
			if scheme == "https" {
				return e, badEndpoint(e, "requires TLS, and no certificates are configured", "set "+optionCertPath+" to a directory with ca.pem, cert.pem and key.pem")
			}
			e.unencrypted = true
			return e, nil
		}
		e.ca, e.cert, e.key = filepath.Join(certPath, "ca.pem"), filepath.Join(certPath, "cert.pem"), filepath.Join(certPath, "key.pem")
	case "ssh":
		return e, badEndpoint(e, "would need the ssh command", "forward the engine's socket (ssh -N -L /run/engine.sock:/var/run/docker.sock HOST) and give unix:///run/engine.sock")
	default:
		return e, badEndpoint(e, "has an unknown protocol", "use unix:// or tcp://")
	}
	return e, nil
}

func badEndpoint(e endpoint, what, fix string) error {
	return &sandbar.Error{Code: sandbar.Invalid, Field: optionHost,
		Message: "the Docker Engine's address " + sandbar.Quote(e.host, 200) + " (" + e.from + ") " + what, Fix: fix}
}

// dockerDir returns the docker command's configuration directory.
func dockerDir(s environ) string {
	if dir := s.getenv("DOCKER_CONFIG"); dir != "" {
		return dir
	}
	return filepath.Join(s.home, ".docker")
}

// maxDockerFile is the size of the largest file of the docker command that is read, in bytes.
const maxDockerFile = 1 << 20

// readDocker reads a file of the docker command into v. found is false if it does not exist.
func readDocker(path string, v any) (found bool, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil && info.Size() > maxDockerFile {
		err = errors.New("it is too large")
	}
	var b []byte
	if err == nil {
		b, err = os.ReadFile(path)
	}
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return false, &sandbar.Error{Code: sandbar.Invalid, Field: optionContext, Err: err,
			Message: "the docker command's file " + sandbar.Quote(path, 200) + " cannot be read", Fix: "correct it, or set the option " + optionHost}
	}
	return true, nil
}

// currentContext returns the docker command's current context, "" for none.
func currentContext(s environ) (string, error) {
	var config struct {
		CurrentContext string `json:"currentContext"`
	}
	if _, err := readDocker(filepath.Join(dockerDir(s), "config.json"), &config); err != nil {
		return "", err
	}
	if config.CurrentContext == "default" {
		return "", nil
	}
	return config.CurrentContext, nil
}

// contextEndpoint returns the endpoint of a docker context. Contexts are in directories named after
// the SHA-256 of their names.
func contextEndpoint(name string, s environ) (endpoint, error) {
	if name == "default" {
		return addressed(ownSocket(s), "", "the context \"default\"", s)
	}
	digest := sha256.Sum256([]byte(name))
	id := hex.EncodeToString(digest[:])
	var meta struct {
		Endpoints map[string]struct {
			Host          string
			SkipTLSVerify bool
		}
	}
	e := endpoint{from: "the docker context " + sandbar.Quote(name, 80)}
	found, err := readDocker(filepath.Join(dockerDir(s), "contexts", "meta", id, "meta.json"), &meta)
	if err != nil {
		return e, err
	}
	engine := meta.Endpoints["docker"]
	if !found || engine.Host == "" {
		return e, &sandbar.Error{Code: sandbar.NotFound, Field: optionContext,
			Message: "there is no docker context " + sandbar.Quote(name, 80) + " with an engine", Fix: "see `docker context ls`, or set the option " + optionHost}
	}
	if engine.SkipTLSVerify {
		e.host = engine.Host
		return e, badEndpoint(e, "belongs to a docker context that does not verify the engine's certificate", "create the context again with the engine's ca.pem")
	}
	tlsDir := filepath.Join(dockerDir(s), "contexts", "tls", id, "docker")
	if !s.exists(tlsDir) {
		tlsDir = ""
	}
	// A context has its own TLS settings; the environment variables do not apply.
	return addressed(engine.Host, tlsDir, e.from, environ{getenv: func(string) string { return "" }, home: s.home, exists: s.exists})
}

// newClient creates the client. It sends nothing yet.
func newClient(e endpoint) (*client.Client, error) {
	// On a local socket each request has a new connection, which is cheap and leaves none behind;
	// otherwise a few are kept. HTTP/2 is disabled, because attach hijacks an HTTP/1 connection.
	local := strings.HasPrefix(e.host, "unix:") || strings.HasPrefix(e.host, "npipe:")
	transport := &http.Transport{MaxIdleConns: 6, IdleConnTimeout: 30 * time.Second, DisableKeepAlives: local, Protocols: new(http.Protocols),
		MaxResponseHeaderBytes: 1 << 20, DisableCompression: true}
	transport.Protocols.SetHTTP1(true)
	if e.cert != "" {
		config, err := tlsConfig(e)
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig = config
	}
	options := []client.Opt{client.WithHTTPClient(&http.Client{Transport: transport, CheckRedirect: client.CheckRedirect}),
		client.WithHost(e.host), client.WithUserAgent("sandbar")}
	if !strings.HasPrefix(e.host, "npipe:") { // for named pipes only the client can dial
		options = append(options, client.WithDialContext(bounded(e.dial)))
	}
	c, err := client.New(options...)
	if err != nil {
		return nil, badEndpoint(e, "cannot be used: "+err.Error(), "give one such as unix:///var/run/docker.sock or tcp://host:2376")
	}
	return c, nil
}

// dial connects to the engine. A path is that of the endpoint, whatever the address says.
func (e endpoint) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: quickBound}
	if path, ok := strings.CutPrefix(e.host, "unix://"); ok {
		return d.DialContext(ctx, "unix", path)
	}
	return d.DialContext(ctx, network, address)
}

// tlsConfig trusts only the endpoint's own certificate authority.
func tlsConfig(e endpoint) (*tls.Config, error) {
	bad := func(err error) error {
		return &sandbar.Error{Code: sandbar.Invalid, Field: optionCertPath, Err: err,
			Message: "the certificates for the Docker Engine at " + sandbar.Quote(e.host, 200) + " (" + e.from + ") cannot be used",
			Fix:     "they are ca.pem, cert.pem and key.pem in one directory, readable to the daemon"}
	}
	pem, err := os.ReadFile(e.ca)
	if err != nil {
		return nil, bad(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, bad(errors.New("ca.pem has no certificate"))
	}
	pair, err := tls.LoadX509KeyPair(e.cert, e.key)
	if err != nil {
		return nil, bad(err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: []tls.Certificate{pair}}, nil
}
