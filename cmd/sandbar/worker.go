package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/cli"
	"github.com/sandbar-dev/sandbar/internal/process/prespawn"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii"
	"github.com/sandbar-dev/sandbar/internal/server/config"
	"github.com/sandbar-dev/sandbar/internal/server/platform"
)

var workerSettings = []setting{
	{"engine", "iii.worker.engine", "`address` of the iii engine, ws://HOST:PORT (default $III_ENGINE_URL, $III_URL or ws://127.0.0.1:49134)"},
	{"name", "iii.worker.name", "name of the worker in the engine (default iii-sandbox)"},
	{"token", "iii.worker.token", "token for the engine; visible to other users of this machine, prefer --token-file"},
	{"token-file", "iii.worker.token_file", "`file` that holds the token"},
	driverSetting,
	{"log-level", "log.level", "debug, info, warn or error"},
}

func (a *app) workerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Connect to an iii engine as its sandbox worker",
		Long: `Connect to an iii engine as a worker and register the functions sandbox::create,
sandbox::exec and the others of the engine's own iii-sandbox worker. If the
connection breaks, the worker reconnects and registers the functions again;
sandboxes survive meanwhile.

The worker sends its token as "authorization: Bearer TOKEN".

Images must be allowed by iii.image_allowlist. The worker also accepts a
configuration file of the iii-sandbox worker, or of an engine with such a block.

SIGTERM, SIGINT or SIGHUP closes the connection and removes the sandboxes within
shutdown_timeout. A second signal kills all programs and exits.`,
		Example: `  SANDBAR_III_IMAGE_ALLOWLIST=python,node sandbar worker --engine ws://127.0.0.1:49134
  sandbar worker --config iii-config.yaml --token-file /run/secrets/iii`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.configuration(cmd, workerSettings...)
			if err != nil {
				return err
			}
			return a.worker(cfg)
		},
	}
	a.settings(cmd, workerSettings...)
	return cmd
}

// worker serves the iii engine until a termination signal.
func (a *app) worker(cfg *config.Config) error {
	signals := a.terminationSignals()
	defer signal.Stop(signals)
	log := logger(cfg, a.stderr)
	p := &workerRun{cfg: cfg, log: log, signals: signals}
	o, err := a.workerOptions(cfg, log)
	if err != nil {
		return err
	}
	prespawn.Threads(spareThreads)
	d, err := a.newDriver(cfg, log)
	if err != nil {
		return err
	}
	own, err := platform.IIIDriver(cfg, a.factories, &d, log)
	if err != nil {
		return errors.Join(err, d.Close())
	}
	reconcile(d, log)
	if p.engine, err = a.newEngine(cfg, d, log, func(c *engine.Config) {
		raiseWorkerLimits(cfg, c)
		if cfg.Templates.Auto {
			c.Templates, c.ReadyMemory = iiiTemplates(cfg, d.First.Caps(), own.Caps()), cfg.TemplatesMemory
		}
	}); err != nil {
		return err
	}
	o.Options = iiiOptions(cfg, own, p.engine, log)
	if p.worker, err = iii.NewWorker(o); err != nil {
		return errors.Join(err, p.engine.Shutdown(context.Background()))
	}
	caps := own.Caps()
	log.Info("connecting to an iii engine", "engine", o.URL, "name", o.Name, "driver", caps.Name, "boundary", string(caps.Boundary), "version", o.Version)
	return p.run()
}

// workerOptions returns the options for the connection to the engine.
func (a *app) workerOptions(cfg *config.Config, log *slog.Logger) (o iii.WorkerOptions, err error) {
	o.Name, o.Version = cfg.III.Worker.Name, thisBuild().Version
	if o.URL, err = cfg.III.EngineURL(a.environ); err != nil {
		return o, err
	}
	token, err := cfg.III.WorkerToken()
	if err != nil || token == "" {
		return o, err
	}
	o.Header = http.Header{"Authorization": {"Bearer " + token}}
	if strings.HasPrefix(o.URL, "ws://") && !loopbackURL(o.URL) {
		log.Warn("connecting to an engine beyond loopback without TLS: the token and all programs are sent unencrypted", "next", "use wss://")
	}
	return o, nil
}

// loopbackURL reports whether a ws:// URL has a loopback address.
func loopbackURL(url string) bool {
	address, _, _ := strings.Cut(strings.TrimPrefix(url, "ws://"), "/")
	return config.Loopback(address)
}

// raiseWorkerLimits is raiseIIILimits for a worker, where only the engine creates
// sandboxes: the maximum timeout becomes the protocol's, unless limits.max.timeout is set.
func raiseWorkerLimits(cfg *config.Config, c *engine.Config) {
	raiseIIILimits(cfg, c)
	if cfg.Origin("limits.max.timeout") == "" && c.Max.Timeout != sandbar.Unlimited {
		c.Max.Timeout = max(c.Max.Timeout, iiiSettings(cfg.III).MaxExecTimeout())
	}
}

// workerRun is a connected worker.
type workerRun struct {
	cfg     *config.Config
	log     *slog.Logger
	engine  *engine.Engine
	worker  *iii.Worker
	signals <-chan os.Signal
}

// run serves until a termination signal or a permanent error, then removes the sandboxes.
func (p *workerRun) run() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	left := make(chan error, 1)
	go func() { left <- p.worker.Run(ctx) }()
	var err error
	select {
	case s := <-p.signals:
		p.log.Info("shutting down", "signal", strings.ToUpper(s.String()), "timeout", p.cfg.ShutdownTimeout)
		go p.forceExit()
		cancel()
		<-left
	case err = <-left:
		go p.forceExit()
	}
	err = errors.Join(err, p.shutdown())
	p.log.Info("stopped")
	return err
}

// shutdown removes the sandboxes within shutdown_timeout.
func (p *workerRun) shutdown() error {
	ctx, cancel := context.WithTimeout(context.Background(), p.cfg.ShutdownTimeout)
	defer cancel()
	err := errors.Join(p.worker.Close(ctx), p.engine.Shutdown(ctx))
	if errors.Is(err, context.DeadlineExceeded) {
		p.log.Warn("sandboxes were killed at the shutdown timeout", "timeout", p.cfg.ShutdownTimeout)
		return nil
	}
	return err
}

// forceExit is daemon.forceExit for a worker.
func (p *workerRun) forceExit() {
	s := <-p.signals
	number, _ := s.(syscall.Signal)
	p.log.Warn("second signal: killing all programs and exiting", "signal", strings.ToUpper(s.String()), "within", killTime, "after a third", "now")
	now, cancel := context.WithCancel(context.Background())
	cancel()
	go p.engine.Shutdown(now)
	select {
	case <-p.signals:
	case <-time.After(killTime):
	}
	os.Exit(cli.ExitSignal + int(number))
}
