package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/cli"
	"github.com/sandbar-dev/sandbar/internal/process/cachedir"
	"github.com/sandbar-dev/sandbar/internal/process/prespawn"
	"github.com/sandbar-dev/sandbar/internal/protocol/control"
	"github.com/sandbar-dev/sandbar/internal/protocol/e2b"
	"github.com/sandbar-dev/sandbar/internal/protocol/executor"
	"github.com/sandbar-dev/sandbar/internal/protocol/fathom"
	"github.com/sandbar-dev/sandbar/internal/protocol/mcp"
	"github.com/sandbar-dev/sandbar/internal/server/config"
	"github.com/sandbar-dev/sandbar/internal/server/console"
	"github.com/sandbar-dev/sandbar/internal/server/httpd"
	"github.com/sandbar-dev/sandbar/internal/server/peers"
	"github.com/sandbar-dev/sandbar/internal/server/platform"
	"github.com/sandbar-dev/sandbar/internal/server/tenant"
)

var serveSettings = []setting{
	listenSetting,
	driverSetting,
	{"token-file", "token_file", "`file` that holds the bearer token"},
	certSetting,
	keySetting,
	{"log-level", "log.level", "debug, info, warn or error"},
	{"iii", "iii.listen", "`address` on which to serve as an iii engine, such as 127.0.0.1:49134"},
	{"e2b", "e2b", ""},
}

func (a *app) serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the daemon",
		Long: `Run the daemon. It serves the Fathom protocol at /ws; long-lived sandboxes and
their executors at /sandboxes, for "sandbar create", "sandbar exec" and the like;
tools for agents at /mcp; the browser console at /; GET /health and GET /metrics.

Every request needs the token, as "Authorization: Bearer TOKEN". It comes from
SANDBAR_TOKEN, --token-file or the configuration. Otherwise the daemon generates a
token at its first start, prints it once, and stores it in the state directory. The
daemon listens on an address beyond loopback only with a token that you chose.

With --iii the daemon also serves as an iii engine, on a second address: the iii
SDKs find the functions sandbox::create, sandbox::exec and others there. On loopback
that address needs no token, because the SDKs send none, unless iii.open is false;
requests of web pages are always refused. Images must be allowed by
iii.image_allowlist.

With --e2b the daemon also serves the E2B protocol on the same address: set
E2B_API_URL and E2B_SANDBOX_URL of E2B's SDKs to its URL, and E2B_API_KEY to the
token. Ports of the sandboxes that they create are open to everybody who has
their host name.

SIGTERM or SIGINT shuts the daemon down: it accepts nothing new, and running
executions have shutdown_timeout to finish before they are cancelled. A second
signal kills all programs and exits.

With paused.on_shutdown the shutdown also pauses the sandboxes that their driver
can save, and the next start resumes them.

SIGHUP reloads the configuration, tokens included, without an effect on running
sandboxes. The log names changed settings that need a restart. An invalid
configuration changes nothing.

Settings come from flags, SANDBAR_ variables and one YAML file, in this order
of precedence; --print-config prints all of them with comments. The daemon also
accepts a configuration file of the iii-sandbox worker of an iii engine.`,
		Example: `  SANDBAR_TOKEN=secret sandbar serve --listen 127.0.0.1:8080
  sandbar serve --listen unix:/run/sandbar.sock
  sandbar serve --config /etc/sandbar/config.yaml --print-config
  sandbar serve --e2b
  SANDBAR_III_IMAGE_ALLOWLIST=python,node sandbar serve --iii 127.0.0.1:49134`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.configuration(cmd, serveSettings...)
			if err != nil {
				return err
			}
			if show, _ := cmd.Flags().GetBool("print-config"); show {
				_, err := io.WriteString(a.stdout, cfg.YAML())
				return err
			}
			untilEOF, _ := cmd.Flags().GetBool("until-eof")
			return a.serve(cfg, untilEOF, func() (*config.Config, error) { return a.configuration(cmd, serveSettings...) })
		},
	}
	cmd.Flags().Bool("e2b", false, "also serve the E2B protocol, for E2B's SDKs")
	cmd.Flags().Bool("until-eof", false, "shut down when standard input ends, for a daemon that is a child of a program")
	cmd.Flags().Bool("print-config", false, "print the effective configuration as a commented file and exit")
	a.settings(cmd, serveSettings...)
	return cmd
}

// The handlers of httpd that are found by their interfaces.
var _ interface {
	httpd.Admitter
	httpd.Reader
	httpd.HostHandler
} = (*control.Server)(nil)

// spareThreads is how many OS threads a serving command starts before it opens a driver.
// 200 concurrent executions on 2 processors have needed 16.
const spareThreads = 32

// serve runs the daemon until a termination signal, or with untilEOF until standard input ends.
// load reloads the configuration.
func (a *app) serve(cfg *config.Config, untilEOF bool, load func() (*config.Config, error)) error {
	signals := a.notify(os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	var ended chan struct{}
	if untilEOF {
		ended = make(chan struct{})
		go func() {
			io.Copy(io.Discard, a.stdin) // an error is an end too
			close(ended)
		}()
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	level := &slog.LevelVar{}
	level.Set(cfg.Log.Slog())
	log := loggerAt(level, cfg, a.stderr)

	token, err := a.token(cfg, log)
	if err != nil {
		return err
	}
	clients, err := cfg.ClientTokens(token.Value)
	if err != nil {
		return err
	}
	prespawn.Threads(spareThreads)
	d, err := a.newDrivers(cfg, log)
	if err != nil {
		return err
	}
	lowerOOMScore(d, log)
	caps, iiiDriver := d.First.Caps(), d.First
	if cfg.III.Listen != "" && cfg.III.Sandboxes {
		if iiiDriver, err = platform.IIIDriver(cfg, a.factories, &d, log); err != nil {
			return errors.Join(err, d.Close())
		}
	}
	reconcile(d, log)
	metrics, err := newMetrics(cfg, caps)
	if err == nil {
		err = checkNetwork(cfg, caps)
	}
	if err != nil {
		return errors.Join(err, d.Close())
	}
	pausedDir, unlock, err := openPausedDir(cfg, d, log)
	if err != nil {
		return errors.Join(err, d.Close())
	}
	defer unlock()
	auditor, closeAudit, err := openAudit(cfg, log)
	if err != nil {
		return errors.Join(err, d.Close())
	}
	defer closeAudit()
	tracer, closeTracer, err := newTracer(cfg, log)
	if err != nil {
		return errors.Join(err, d.Close())
	}
	defer closeTracer()
	tenants := openTenants(cfg, log)
	if tenants != nil {
		defer tenants.Close()
	}
	others, err := newPeers(cfg, token, log)
	if err != nil {
		return errors.Join(err, d.Close())
	}
	defer others.Close()
	e, err := a.newEngine(cfg, d, log, func(c *engine.Config) {
		if len(cfg.Peers.Addresses) > 0 {
			c.Elsewhere = usageElsewhere(others)
		}
		c.PausedDir, c.MaxPaused, c.MaxPausedBytes, c.PausedShare = pausedDir, int(cfg.Paused.Max), cfg.Paused.MaxBytes, int(cfg.Paused.ClientShare)
		c.Observe, c.ObserveRefusal, c.Audit, c.Clients, c.Tenants = metrics.Observe, metrics.ObserveRefusal, auditor, clientLimits(cfg), tenantLimits(cfg)
		c.Tracer, c.CheckLanguages = tracer, true
		c.Templates, c.ReadyMemory = templates(cfg, c.Languages, caps, iiiDriver.Caps()), cfg.TemplatesMemory
		if cfg.III.Listen != "" && cfg.III.Sandboxes {
			raiseIIILimits(cfg, c)
		}
	})
	if err != nil {
		return err
	}
	metrics.Watch(httpd.Sources{Load: e.Stats, Templates: e.Templates, Clients: e.ClientStats, Drivers: e.DriverStats})
	ws := fathom.New(e, fathomOptions(cfg, log))
	ao := controlOptions(cfg, log)
	ao.Others = others.List
	var reload *reloader
	ao.Daemon = a.aboutDaemon(cfg, d, metrics, func() []config.Setting { return reload.settings() })
	api := control.New(e, ao)
	tools := mcp.New(e, mcpOptions(cfg, api, log))
	hosts := []httpd.HostHandler{api}
	var overlay httpd.Overlay
	var foreign *e2b.Server
	if cfg.E2B {
		foreign = e2b.New(e, e2bOptions(cfg, others, log))
		hosts, overlay = append(hosts, foreign), foreign
	}
	routes := map[string]http.Handler{"GET /ws": ws,
		"/sandboxes": api, "/sandboxes/": api, "/koyeb-sandbox/": api, "/r/": api, "/v1/": api, "/openapi.json": api, mcp.Path: tools}
	var server *httpd.Server
	page, sessions := newConsole(cfg, token, auditor, log, func(token string) (sandbar.Client, error) { return server.Identify(token) })
	if page != nil {
		for _, pattern := range console.Patterns {
			routes[pattern] = page
		}
	}
	server, err = httpd.Listen(httpd.Options{
		Listen: cfg.Listen, Tokens: tenantTokens(tenants), Token: token.Value, TokenChosen: token.Explicit, Clients: clients, MaxConnections: int(cfg.MaxConnections),
		Certificate: cfg.TLS.Cert, Key: cfg.TLS.Key,
		AllowedHosts: cfg.AllowedHosts, AllowedOrigins: cfg.AllowedOrigins, MetricsOpen: cfg.MetricsOpen,
		Version: thisBuild().Version, Load: e.Stats, Metrics: metrics, Tracer: tracer,
		Sessions: httpdSessions(sessions), Routes: routes, Hosts: hosts, Overlay: overlay, Peers: others.Handler(sandboxOf(api, foreign)),
		Logger: log,
	})
	if err != nil {
		return errors.Join(err, e.Shutdown(context.Background()))
	}
	iiiListener, err := newIII(cfg, iiiDriver, e, api, token, clients, log)
	if err != nil {
		return errors.Join(err, server.StopAccepting(), e.Shutdown(context.Background()))
	}
	resumeSuspended(api, log)
	if foreign != nil {
		foreign.TakeResumed()
	}
	a.announce(token)
	log.Info("listening", "address", server.URL(), "driver", caps.Name, "boundary", string(caps.Boundary), "version", thisBuild().Version)
	reload = &reloader{app: a, started: cfg, current: cfg, load: load, level: level, log: log, engine: e, peers: others, sessions: sessions}
	reload.loaded.Store(cfg)
	p := &daemon{log: log, server: server, fathom: ws, api: api, mcp: tools, e2b: foreign, iii: iiiListener, engine: e, signals: signals, ended: ended,
		hangups: hangups, reload: reload}
	p.reload.servers = append(p.reload.servers, server)
	if iiiListener != nil {
		p.reload.servers = append(p.reload.servers, iiiListener.http)
	}
	return p.run()
}

// resumeTimeout bounds the resumption of sandboxes before the daemon accepts requests.
const resumeTimeout = time.Minute

// resumeSuspended resumes the sandboxes that an earlier daemon has paused when it shut down.
func resumeSuspended(api *control.Server, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), resumeTimeout)
	defer cancel()
	if n := api.ResumeSuspended(ctx); n > 0 {
		log.Info("resumed the sandboxes of the daemon before", "count", n)
	}
}

// openPausedDir opens the directory of paused sandboxes, and locks it for this process. dir is ""
// if no driver can pause, if another process has the lock, or if the default directory cannot be
// used.
func openPausedDir(cfg *config.Config, ds platform.Drivers, log *slog.Logger) (dir string, unlock func(), err error) {
	able := slices.ContainsFunc(ds.All(), func(d driver.Driver) bool { _, ok := driver.As[driver.Restorer](d); return ok })
	if dir = cfg.PausedDir(); dir == "" || !able {
		return "", func() {}, nil
	}
	if cfg.Paused.Dir == "" {
		err = config.PrivateDir(cfg.StateDir, "state_dir")
	}
	if err == nil {
		err = config.PrivateDir(dir, "paused.dir")
	}
	if err == nil {
		now, cancel := context.WithCancel(context.Background())
		cancel() // do not wait
		unlock, err = cachedir.Lock(now, dir)
	}
	switch {
	case err == nil:
		return dir, unlock, nil
	case errors.Is(err, context.Canceled):
		err = &sandbar.Error{Code: sandbar.Conflict, Field: "paused.dir", Message: "another daemon uses the directory of paused sandboxes " + sandbar.Quote(dir, 200),
			Fix: "give each daemon its own state_dir or paused.dir"}
	}
	if cfg.Paused.Dir != "" {
		return "", nil, err
	}
	log.Warn("sandboxes cannot be paused", "error", err)
	return "", func() {}, nil
}

// openTenants opens the tokens of tenants; nil if there is no state directory.
func openTenants(cfg *config.Config, log *slog.Logger) *tenant.Store {
	if cfg.StateDir == "" {
		return nil
	}
	return tenant.Open(filepath.Join(cfg.StateDir, tenant.FileName), log)
}

// tenantTokens returns a store as an interface, which is nil for none.
func tenantTokens(s *tenant.Store) httpd.Tokens {
	if s == nil {
		return nil
	}
	return s
}

// newConsole returns the browser console and its sessions; nil and nil if it is off.
func newConsole(cfg *config.Config, token config.Token, auditor engine.Auditor, log *slog.Logger, identify func(string) (sandbar.Client, error)) (*console.Server, *console.Sessions) {
	if !cfg.Console {
		return nil, nil
	}
	sessions := console.NewSessions(token.Value)
	return console.New(console.Options{Assets: console.Assets(), Sessions: sessions, Identify: identify, Fail: httpd.WriteError,
		PreviewDomain: previewDomain(cfg), Version: thisBuild().Version, Audit: auditor, Logger: log}), sessions
}

// httpdSessions returns sessions as an interface, which is nil for none.
func httpdSessions(s *console.Sessions) httpd.Sessions {
	if s == nil {
		return nil
	}
	return s
}

// previewDomain returns the domain of previews, in lower case.
func previewDomain(cfg *config.Config) string {
	return strings.ToLower(strings.TrimSuffix(cfg.PreviewDomain, "."))
}

// checkNetwork returns Unsupported if fathom.network is set and the driver has no outbound network.
func checkNetwork(cfg *config.Config, caps driver.Caps) error {
	if !cfg.Fathom.Network || caps.Outbound {
		return nil
	}
	return &sandbar.Error{Code: sandbar.Unsupported, Field: "fathom.network",
		Message: "fathom.network is true, but the driver " + caps.Name + " cannot give sandboxes a network on this host",
		Fix:     "set fathom.network to false, or check `sandbar doctor` and the setting network.outbound"}
}

// clientLimits returns the limits of the configured clients, by name.
func clientLimits(cfg *config.Config) map[string]engine.ClientLimits {
	limits := map[string]engine.ClientLimits{}
	for _, c := range cfg.Clients {
		limits[c.Name] = engine.ClientLimits{MaxSandboxes: int(c.MaxSandboxes), MaxQueue: int(c.MaxQueue), Rate: c.Rate, Burst: int(c.Burst)}
	}
	return limits
}

// tenantLimits returns the quotas of the configured tenants, by name.
func tenantLimits(cfg *config.Config) map[string]engine.TenantLimits {
	limits := map[string]engine.TenantLimits{}
	for _, t := range cfg.Tenants {
		limits[t.Name] = engine.TenantLimits{MaxSandboxes: int(t.MaxSandboxes), CPUs: t.CPUs, Memory: t.Memory, Disk: t.Disk, Rate: t.Rate, Burst: int(t.Burst)}
	}
	return limits
}

// token returns the configured token, or the generated one.
func (a *app) token(cfg *config.Config, log *slog.Logger) (config.Token, error) {
	token, err := cfg.ResolveToken()
	if err == nil && token.Explicit && len(token.Value) < 16 && !cfg.Loopback() {
		log.Warn("the token is short enough to guess", "length", len(token.Value), "next", "use 32 random characters or more")
	}
	return token, err
}

// announce prints a newly generated token. Tokens are printed nowhere else.
func (a *app) announce(t config.Token) {
	if t.Fresh {
		fmt.Fprintf(a.stderr, "sandbar: generated a token, stored in %s and not shown again:\n\n    %s\n\n", cli.Printable(t.File), t.Value)
	}
}

// reconcile removes leftovers of killed daemons. It logs errors; they do not prevent the start.
func reconcile(ds platform.Drivers, log *slog.Logger) {
	for _, d := range ds.All() {
		reconcileDriver(d, log)
	}
}

func reconcileDriver(d driver.Driver, log *slog.Logger) {
	left, err := collectWithin(context.Background(), d, true)
	if err != nil {
		log.Error("cannot search for leftovers of killed daemons", "error", err)
	}
	removed := 0
	for _, l := range left {
		if l.Err != nil {
			log.Error("cannot remove a leftover of a killed daemon", "kind", l.Kind, "name", l.Name, "error", l.Err)
			continue
		}
		removed++
	}
	if removed > 0 {
		log.Info("removed leftovers of killed daemons", "count", removed)
	}
}

func newMetrics(cfg *config.Config, caps driver.Caps) (*httpd.Metrics, error) {
	languages, err := cfg.Catalogue()
	if err != nil {
		return nil, err
	}
	b := thisBuild()
	return httpd.NewMetrics(languages.Names(), httpd.Build{Version: b.Version, GoVersion: b.Go, Driver: caps.Name, Boundary: string(caps.Boundary)}), nil
}

func fathomOptions(cfg *config.Config, log *slog.Logger) fathom.Options {
	return fathom.Options{
		MaxCode: cfg.MaxCode, MaxEnv: cfg.MaxEnv, MaxStdin: cfg.Fathom.MaxStdin,
		MaxExecutions:   int(cfg.Fathom.MaxPerConnection),
		Record:          cfg.Fathom.StoreCode,
		Network:         cfg.Fathom.Network,
		DisconnectGrace: cfg.Fathom.DisconnectGrace, WriteTimeout: cfg.Fathom.WriteTimeout,
		Logger: log,
	}
}

// controlOptions returns the options of the control API. Its executors check no token:
// httpd has authenticated the request before.
func controlOptions(cfg *config.Config, log *slog.Logger) control.Options {
	authorized := func(*http.Request) error { return nil }
	return control.Options{
		NewExecutor: func(s *engine.Sandbox) control.Executor {
			return executor.New(s, executorOptions(cfg, log, authorized))
		},
		IdleTimeout: cfg.IdleTimeout, MaxConnections: int(cfg.Executor.MaxConnections), StallTimeout: cfg.Executor.StallTimeout,
		PreviewDomain: previewDomain(cfg), Logger: log,
	}
}

// newPeers returns the other daemons. Denied: the operator has chosen no token for all of them.
func newPeers(cfg *config.Config, token config.Token, log *slog.Logger) (*peers.Peers, error) {
	if len(cfg.Peers.Addresses) > 0 && !token.Explicit {
		return nil, &sandbar.Error{Code: sandbar.Denied, Field: "peers.addresses", Message: "the daemons have no common token, with which they ask each other",
			Fix: "set the same SANDBAR_TOKEN or token_file for all"}
	}
	return peers.New(peers.Options{Addresses: cfg.Peers.Addresses, CA: cfg.Peers.CA, Token: token.Value, Fail: httpd.WriteError, Logger: log})
}

// usageElsewhere returns a function that asks the other daemons what a tenant has of its quotas.
func usageElsewhere(others *peers.Peers) func(context.Context, string) (engine.TenantUsage, error) {
	return func(ctx context.Context, tenant string) (engine.TenantUsage, error) {
		bodies, err := others.Ask(ctx, "/v1/usage", url.Values{"tenant": {tenant}})
		if err != nil {
			return engine.TenantUsage{}, err
		}
		return control.SumUsage(bodies)
	}
}

// sandboxOf returns a function that finds the sandbox that a request is for: first by the E2B
// protocol, which recognizes its requests.
func sandboxOf(api *control.Server, foreign *e2b.Server) func(*http.Request) (key string, here bool) {
	return func(r *http.Request) (key string, here bool) {
		if foreign != nil {
			if key, here, claimed := foreign.SandboxOf(r); claimed {
				return key, here
			}
		}
		return api.SandboxOf(r)
	}
}

// mcpOptions returns the options of the Model Context Protocol. The control API serves its
// previews.
func mcpOptions(cfg *config.Config, api *control.Server, log *slog.Logger) mcp.Options {
	return mcp.Options{Version: thisBuild().Version, IdleTimeout: cfg.IdleTimeout, StallTimeout: cfg.Executor.StallTimeout, Logger: log,
		Preview: func(r *http.Request, id sandbar.ID, port int, public bool) (string, error) {
			p, err := api.Preview(r, id, port, public)
			return p.URL, err
		}}
}

// e2bOptions returns the options of the E2B protocol.
func e2bOptions(cfg *config.Config, others *peers.Peers, log *slog.Logger) e2b.Options {
	return e2b.Options{Domain: strings.ToLower(strings.TrimSuffix(cfg.E2BDomain, ".")), MaxTimeout: cfg.MaxLifetime, MaxFile: cfg.MaxFile,
		MaxConnections: int(cfg.Executor.MaxConnections), StallTimeout: cfg.Executor.StallTimeout, Dir: filepath.Join(cfg.StateDir, "e2b"), Others: others.List, Logger: log}
}

// daemon is the running "sandbar serve".
type daemon struct {
	log          *slog.Logger
	server       *httpd.Server
	fathom       *fathom.Server
	api          *control.Server
	mcp          *mcp.Server
	e2b          *e2b.Server // nil for none
	iii          *iiiEngine  // nil for none
	engine       *engine.Engine
	signals      <-chan os.Signal // SIGINT, SIGTERM
	hangups      <-chan os.Signal // SIGHUP
	ended        <-chan struct{}  // closed at the end of standard input; nil if that has no effect
	reload       *reloader
	secondSignal atomic.Int32 // the signal that ended patience, or 0
}

// run serves until a termination signal, or until a listener fails.
func (p *daemon) run() error {
	listeners := []*httpd.Server{p.server}
	if p.iii != nil {
		listeners = append(listeners, p.iii.http)
	}
	served := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { served <- l.Serve() }()
	}
	var err error
	left := len(listeners)
wait:
	for {
		select {
		case <-p.hangups:
			p.reload.reload()
		case s := <-p.signals:
			p.log.Info("shutting down", "signal", strings.ToUpper(s.String()), "timeout", p.reload.current.ShutdownTimeout)
			break wait
		case <-p.ended:
			p.log.Info("shutting down", "reason", "standard input has ended", "timeout", p.reload.current.ShutdownTimeout)
			break wait
		case err = <-served:
			left--
			break wait
		}
	}
	go p.forceExit()
	err = errors.Join(err, p.shutdown())
	for range left {
		err = errors.Join(err, <-served)
	}
	if s := p.secondSignal.Load(); s != 0 {
		return cli.Exit(cli.ExitSignal + int(s))
	}
	p.log.Info("stopped")
	return err
}

// shutdown closes the listeners, drains the executions, and removes the sandboxes, all
// within shutdown_timeout. With paused.on_shutdown it pauses the sandboxes that it can save before
// it removes the others; that has shutdown_timeout again.
func (p *daemon) shutdown() error {
	timeout := p.reload.current.ShutdownTimeout
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var errs [7]error
	var servers sync.WaitGroup
	servers.Go(func() { errs[0] = p.server.Shutdown(ctx) })
	servers.Go(func() { errs[1] = p.fathom.Shutdown(ctx) })
	servers.Go(func() { errs[2] = p.api.Shutdown(ctx) })
	servers.Go(func() { errs[3] = p.iii.shutdown(ctx) })
	servers.Go(func() { errs[5] = p.mcp.Shutdown(ctx) })
	if p.e2b != nil {
		servers.Go(func() { errs[4] = p.e2b.Shutdown(ctx) })
	}
	servers.Wait()
	if p.reload.current.Paused.OnShutdown && p.secondSignal.Load() == 0 {
		saving, cancel := context.WithTimeout(context.Background(), timeout)
		p.engine.Suspend(saving)
		cancel()
	}
	errs[6] = p.engine.Shutdown(ctx)
	late := false
	for i, err := range errs {
		if errors.Is(err, context.DeadlineExceeded) {
			errs[i], late = nil, true // executions exceeded shutdown_timeout and were cancelled
		}
	}
	if late {
		p.log.Warn("executions were cancelled at the shutdown timeout", "timeout", timeout)
	}
	return errors.Join(errs[:]...)
}

// killTime bounds the shutdown after a second signal.
const killTime = 2 * time.Second

// forceExit waits for the second signal, kills all programs, and exits after killTime or
// at a third signal.
func (p *daemon) forceExit() {
	s := <-p.signals
	number, _ := s.(syscall.Signal)
	p.secondSignal.Store(int32(number))
	p.log.Warn("second signal: killing all programs and exiting", "signal", strings.ToUpper(s.String()), "within", killTime, "after a third", "now")
	now, cancel := context.WithCancel(context.Background())
	cancel()
	go p.fathom.Close()
	go p.api.Close()
	go p.mcp.Close()
	if p.e2b != nil {
		go p.e2b.Close()
	}
	go p.iii.shutdown(now)
	go p.engine.Shutdown(now)
	select {
	case <-p.signals:
	case <-time.After(killTime):
	}
	os.Exit(cli.ExitSignal + int(number))
}
