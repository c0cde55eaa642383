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
)

var workerSettings = []setting{
	{"engine", "iii.worker.engine", "`address` of the iii engine, ws://HOST:PORT (default $III_ENGINE_URL, $III_URL or ws://127.0.0.1:49134)"},
	{"name", "iii.worker.name", "what the worker is called there (default iii-sandbox)"},
	{"token", "iii.worker.token", "what it authorizes itself with there; others on this machine can see it, so rather:"},
	{"token-file", "iii.worker.token_file", "`file` that holds the token"},
	driverSetting,
	{"log-level", "log.level", "debug, info, warn or error"},
}

func (a *app) workerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Join an iii engine and give it sandboxes",
		Long: `Join an iii engine and give it sandboxes: the functions sandbox::create,
sandbox::exec and so on, in the place of the engine's own iii-sandbox worker. A
connection that breaks is made again, and the functions are registered again;
sandboxes remain meanwhile.

An engine that authorizes its workers gets the token as "authorization: Bearer
TOKEN".

Images must be allowed by iii.image_allowlist. A configuration of the iii-sandbox
worker, or the engine's that has one in it, is taken as it is.

SIGTERM, SIGINT or SIGHUP ends it: the connection, and then the sandboxes, which
have shutdown_timeout. A second signal ends it at once.`,
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

// worker stays joined until a signal ends it.
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
	reconcile(d, log)
	if p.engine, err = a.newEngine(cfg, d, log, func(c *engine.Config) {
		raiseWorkerLimits(cfg, c)
		if cfg.Templates.Auto {
			c.Templates, c.ReadyMemory = iiiTemplates(cfg, d.First.Caps()), cfg.TemplatesMemory
		}
	}); err != nil {
		return err
	}
	o.Options = iiiOptions(cfg, d.First, p.engine, log)
	if p.worker, err = iii.NewWorker(o); err != nil {
		return errors.Join(err, p.engine.Shutdown(context.Background()))
	}
	caps := p.engine.Caps()
	log.Info("joining an iii engine", "engine", o.URL, "name", o.Name, "driver", caps.Name, "boundary", string(caps.Boundary), "version", o.Version)
	return p.run()
}

// workerOptions are what concerns the engine that is joined.
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
		log.Warn("joining an engine beyond loopback without TLS: the token and all programs travel in the clear", "next", "use wss://")
	}
	return o, nil
}

// loopbackURL reports whether an engine is on this machine.
func loopbackURL(url string) bool {
	address, _, _ := strings.Cut(strings.TrimPrefix(url, "ws://"), "/")
	return config.Loopback(address)
}

// workerRoom is iiiRoom where nobody but the engine makes sandboxes: programs may
// then run as long as the protocol's settings say.
func raiseWorkerLimits(cfg *config.Config, c *engine.Config) {
	raiseIIILimits(cfg, c)
	if cfg.Origin("limits.max.timeout") == "" && c.Max.Timeout != sandbar.Unlimited {
		c.Max.Timeout = max(c.Max.Timeout, iiiSettings(cfg.III).MaxExecTimeout())
	}
}

// joined is a worker until its end.
type workerRun struct {
	cfg     *config.Config
	log     *slog.Logger
	engine  *engine.Engine
	worker  *iii.Worker
	signals <-chan os.Signal
}

// run stays connected until a signal, and removes everything.
func (p *workerRun) run() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	left := make(chan error, 1)
	go func() { left <- p.worker.Run(ctx) }()
	var err error
	select {
	case s := <-p.signals:
		p.log.Info("ending", "signal", strings.ToUpper(s.String()), "patience", p.cfg.ShutdownTimeout)
		go p.forceExit()
		cancel()
		<-left
	case err = <-left:
		go p.forceExit()
	}
	err = errors.Join(err, p.shutdown())
	p.log.Info("ended")
	return err
}

// shutdown stops the sandboxes.
func (p *workerRun) shutdown() error {
	ctx, cancel := context.WithTimeout(context.Background(), p.cfg.ShutdownTimeout)
	defer cancel()
	err := errors.Join(p.worker.Close(ctx), p.engine.Shutdown(ctx))
	if errors.Is(err, context.DeadlineExceeded) {
		p.log.Warn("sandboxes were killed because the time to end was over", "patience", p.cfg.ShutdownTimeout)
		return nil
	}
	return err
}

// endAtOnce waits for the second signal, and then no longer than killTime.
func (p *workerRun) forceExit() {
	s := <-p.signals
	number, _ := s.(syscall.Signal)
	p.log.Warn("second signal: all programs are killed, and this process ends", "signal", strings.ToUpper(s.String()), "within", killTime, "after a third", "now")
	now, cancel := context.WithCancel(context.Background())
	cancel()
	go p.engine.Shutdown(now)
	select {
	case <-p.signals:
	case <-time.After(killTime):
	}
	os.Exit(cli.ExitSignal + int(number))
}
