package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/cli"
	"github.com/sandbar-dev/sandbar/internal/cli/outcome"
	"github.com/sandbar-dev/sandbar/internal/process/prespawn"
	"github.com/sandbar-dev/sandbar/internal/protocol/executor"
	"github.com/sandbar-dev/sandbar/internal/server/config"
	"github.com/sandbar-dev/sandbar/internal/server/httpd"
)

// The environment variables of the executor's protocol, and a default.
const (
	secretVariable    = "SANDBOX_SECRET"
	secretPath        = "SANDBOX_SECRET_PATH"
	claimVariable     = "SANDBOX_CLAIM_TOKEN"
	authVariable      = "SANDBOX_AUTH_MODE"
	portVariable      = "PORT"
	proxyPortVariable = "PROXY_PORT"
	levelVariable     = "LOG_LEVEL"

	defaultSecretPath = "/var/lib/sandbox-container/sandbox-secret"
)

const (
	executorDrain = 5 * time.Second // grace period of running requests at shutdown
	commandGrace  = 5 * time.Second // grace period of the main command after a signal
)

// levelTrace is below slog's own levels.
const levelTrace = slog.LevelDebug - 4

// executorLimits are the default limits of the executor's sandbox, which is long-lived and
// general. Output bounds /run, which buffers it in memory; streams have no limit.
var executorLimits = sandbar.Limits{Memory: 1 << 30, PIDs: 1024, Inodes: 1 << 18, Files: 4096, Timeout: sandbar.Unlimited, Output: 64 << 20}

func (a *app) executorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "executor [flags] [-- COMMAND ARGUMENT...]",
		Short: "Create one sandbox and serve it over HTTP",
		Long: `Create one sandbox and serve the sandbox executor API for it: commands, files,
background processes and a TCP proxy to one of its ports. The sandbox lives as long
as this process and is removed at its exit.

COMMAND runs inside the sandbox as its main program, with this process's standard
input and outputs. SIGINT, SIGTERM and SIGHUP are forwarded to it; after 5 s it is
killed. The executor exits when COMMAND exits.

Environment variables:
  SANDBOX_SECRET       the bearer token of every request; required in mode static
  PORT                 port of the API (default 3030)
  PROXY_PORT           port of the TCP proxy (default 3031)
  SANDBOX_AUTH_MODE    static: the token is SANDBOX_SECRET (default)
                       pool: the token of the first request that may claim the
                       sandbox becomes the secret; 16 bytes or more
  SANDBOX_SECRET_PATH  file in which mode pool stores the secret
                       (default ` + defaultSecretPath + `)
  SANDBOX_CLAIM_TOKEN  if set, only requests with the header
                       "X-Sandbox-Claim: TOKEN" may claim the sandbox; if not,
                       only requests that come directly over loopback
  LOG_LEVEL            TRACE, DEBUG, INFO, WARN or ERROR (default INFO)

The API and the TCP proxy listen on loopback. In a container, or behind a router
on another machine, use --bind 0.0.0.0; SANDBOX_SECRET must then have 16 bytes or
more, and without --tls-cert and --tls-key it is sent unencrypted. The API accepts
any Host header. The TCP proxy checks no token: every client that can connect to it
can connect to the bound port. --proxy-bind gives it another address. The sandbox
sees neither the token nor any other part of this process's environment.

Exit code: COMMAND's own, as for "sandbar run"; without COMMAND 0 after a signal;
1 if the API could not be served; 2 for a mistake in flags, environment or
configuration.`,
		Example: `  export SANDBOX_SECRET=$(head -c 32 /dev/urandom | base64)
  sandbar executor
  sandbar executor --bind 0.0.0.0 --tls-cert cert.pem --tls-key key.pem
  PORT=8080 sandbar executor --memory 2GiB -- python3 -m http.server 8000
  SANDBOX_AUTH_MODE=pool SANDBOX_SECRET_PATH=/run/sandbox/secret sandbar executor`,
		RunE: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			switch {
			case dash < 0 && len(args) > 0 || dash > 0:
				return usagef(cmd, "the command comes after \"--\", got %s before it", cli.Quote(args[0]))
			case dash == 0 && (len(args) == 0 || args[0] == ""):
				return usagef(cmd, "no command was given after \"--\"")
			}
			prespawn.Threads(spareThreads)
			x, err := a.newExecutor(cmd, args)
			if err != nil {
				return err
			}
			return x.run()
		},
	}
	f := cmd.Flags()
	f.String("port", "", "`port` of the API; 0 is any free one (default $PORT or 3030)")
	f.String("proxy-port", "", "`port` of the TCP proxy (default $PROXY_PORT or 3031)")
	f.String("bind", "127.0.0.1", "`address` to listen on; 0.0.0.0 for all addresses")
	f.String("proxy-bind", "", "`address` of the TCP proxy (default that of --bind)")
	f.String("image", sandbar.ImageHost, "the sandbox's root file system")
	for _, l := range []struct{ flag, help string }{
		{"memory", "`size` of the sandbox's total memory, in MiB without a unit, or unlimited (default 1GiB)"},
		{"cpus", "`number` of processors, or unlimited (default unlimited)"},
		{"shares", "CPU `weight` relative to other sandboxes; 1024 is one share (default 512)"},
		{"pids", "`number` of processes and threads at once, or unlimited (default 1024)"},
		{"disk", "`size` of all writable files together, or unlimited (default 1GiB)"},
		{"output", "`size` of the output of one /run (default 64MiB)"},
	} {
		f.String(l.flag, "", l.help)
	}
	f.StringArrayP("env", "e", nil, "environment variable of the sandbox, `NAME=VALUE`, or NAME to pass on your own; may be repeated")
	f.Bool("network", false, networkHelp)
	f.Bool("allow-degraded", false, "run even if this host cannot enforce a limit")
	a.settings(cmd, driverSetting, certSetting, keySetting)
	return cmd
}

// executorRun is the running "sandbar executor".
type executorRun struct {
	app       *app
	cfg       *config.Config
	log       *slog.Logger
	spec      sandbar.Spec
	main      []string // the main command; empty for none
	authorize func(*http.Request) error
	listen    string // of the API
	proxy     string // address of the TCP proxy
	signals   chan os.Signal

	engine  *engine.Engine
	sandbox *engine.Sandbox
	server  *executor.Server
	http    *httpd.Server
}

// newExecutor reads flags and environment. It creates no sandbox and no listener.
func (a *app) newExecutor(cmd *cobra.Command, main []string) (*executorRun, error) {
	cfg, err := a.configuration(cmd, driverSetting, certSetting, keySetting)
	if err != nil {
		return nil, err
	}
	x := &executorRun{app: a, cfg: cfg, main: main}
	f := cmd.Flags()
	bind, _ := f.GetString("bind")
	proxyBind, _ := f.GetString("proxy-bind")
	var errs [6]error
	x.log, errs[0] = a.executorLog()
	x.listen, errs[1] = a.portOf(cmd, "port", portVariable, bind, "3030")
	x.proxy, errs[2] = a.portOf(cmd, "proxy-port", proxyPortVariable, cmp.Or(proxyBind, bind), "3031")
	x.spec.Image, _ = f.GetString("image")
	x.spec.AllowDegraded, _ = f.GetBool("allow-degraded")
	x.spec.Network = networkFlag(cmd)
	errs[3] = limitsOf(cmd, &x.spec.Limits)
	names, _ := f.GetStringArray("env")
	x.spec.Env, errs[4] = a.parseEnv(cmd, names)
	if _, given := x.spec.Env[secretVariable]; given {
		errs[5] = usagef(cmd, "--env: %s must not be passed into the sandbox", secretVariable)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	x.authorize, err = a.executorAuth(config.Loopback(x.listen))
	return x, err
}

// executorLog returns a logger with the level LOG_LEVEL.
func (a *app) executorLog() (*slog.Logger, error) {
	levels := map[string]slog.Level{"TRACE": levelTrace, "DEBUG": slog.LevelDebug, "INFO": slog.LevelInfo, "WARN": slog.LevelWarn, "ERROR": slog.LevelError}
	name, _ := lookupEnv(a.environ, levelVariable)
	level, ok := levels[strings.ToUpper(name)]
	if !ok && name != "" {
		return nil, &sandbar.Error{Code: sandbar.Invalid, Field: levelVariable, Message: levelVariable + ": " + cli.Quote(name) + " is not known", Fix: "allowed: TRACE, DEBUG, INFO, WARN, ERROR"}
	}
	return slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: level, ReplaceAttr: nameTrace})), nil
}

// nameTrace is a slog.HandlerOptions.ReplaceAttr that prints levelTrace as TRACE.
func nameTrace(_ []string, attr slog.Attr) slog.Attr {
	if attr.Key == slog.LevelKey && attr.Value.Any() == levelTrace {
		attr.Value = slog.StringValue("TRACE")
	}
	return attr
}

// portOf returns the address to listen on. The port comes from the flag, else from the
// environment variable, else it is initial.
func (a *app) portOf(cmd *cobra.Command, flag, variable, bind, initial string) (string, error) {
	from, text := variable, initial
	if given, _ := lookupEnv(a.environ, variable); given != "" {
		text = given
	}
	if f := cmd.Flags().Lookup(flag); f.Changed {
		from, text = "--"+flag, f.Value.String()
	}
	if n, err := strconv.ParseUint(text, 10, 16); err != nil || strconv.FormatUint(n, 10) != text {
		return "", &sandbar.Error{Code: sandbar.Invalid, Field: from, Message: from + ": " + cli.Quote(text) + " is not a port", Fix: "allowed: 0 to 65535; 0 picks a free port"}
	}
	return net.JoinHostPort(strings.Trim(bind, "[]"), text), nil
}

// executorAuth returns the authorization of requests, as SANDBOX_AUTH_MODE says. loopback
// reports whether the API listens on loopback only; otherwise it refuses short secrets.
func (a *app) executorAuth(loopback bool) (func(*http.Request) error, error) {
	secret, _ := lookupEnv(a.environ, secretVariable)
	claim, claimed := lookupEnv(a.environ, claimVariable)
	mode, _ := lookupEnv(a.environ, authVariable)
	switch strings.ToLower(mode) {
	case "", "static":
		switch {
		case secret == "":
			return nil, cli.Fail(cli.ExitFailure, errors.New(secretVariable+" environment variable not set"))
		case claimed:
			return nil, &sandbar.Error{Code: sandbar.Invalid, Field: claimVariable, Message: claimVariable + " is set, but only mode pool uses it",
				Fix: "unset it, or set " + authVariable + "=pool"}
		case !loopback && len(secret) < executor.MinSecret:
			return nil, shortSecretError(secretVariable, secret, "listen on loopback (--bind 127.0.0.1)")
		}
		return executor.Static(secret), nil
	case "pool":
		if secret != "" {
			return nil, &sandbar.Error{Code: sandbar.Invalid, Field: secretVariable, Message: secretVariable + " is set, but in mode pool the first client chooses the secret",
				Fix: "unset it, or unset " + authVariable}
		}
		may := executor.ClaimLocally
		if claimed {
			if len(claim) < executor.MinSecret {
				return nil, shortSecretError(claimVariable, claim, "unset it: then only requests over loopback may claim the sandbox")
			}
			may = executor.ClaimWith(claim)
		}
		path, _ := lookupEnv(a.environ, secretPath)
		if path == "" {
			path = defaultSecretPath
		}
		return executor.Pool(path, may)
	}
	return nil, &sandbar.Error{Code: sandbar.Invalid, Field: authVariable, Message: authVariable + ": " + cli.Quote(mode) + " is not known", Fix: "allowed: static, pool"}
}

// shortSecretError returns the error for a secret that is shorter than executor.MinSecret.
func shortSecretError(variable, value, otherwise string) error {
	return &sandbar.Error{Code: sandbar.Invalid, Field: variable,
		Message: fmt.Sprintf("%s can be guessed: it has %d bytes (at least %d)", variable, len(value), executor.MinSecret),
		Fix:     "make one with: head -c 32 /dev/urandom | base64; or " + otherwise}
}

// run creates the sandbox and the listeners, serves until the end, and removes all.
func (x *executorRun) run() error {
	x.signals = x.app.terminationSignals()
	defer signal.Stop(x.signals)
	// Bind first: an address in use is the likely error, and then no sandbox needs removal.
	api, err := httpd.Bind(x.listen)
	if err != nil {
		return err
	}
	defer api.Close()
	proxy, err := httpd.Bind(x.proxy)
	if err != nil {
		return err
	}
	defer proxy.Close()
	if err := x.make(); err != nil {
		return err
	}
	defer x.app.removeSandbox(x.engine)
	if x.http, err = httpd.Unguarded(api, x.server, httpd.Options{Certificate: x.cfg.TLS.Cert, Key: x.cfg.TLS.Key,
		MaxConnections: int(x.cfg.MaxConnections), Logger: x.log}); err != nil {
		return err
	}
	if !config.Loopback(proxy.Addr().String()) {
		x.log.Warn("the TCP proxy listens beyond loopback: clients reach the bound port without a token", "next", "--proxy-bind 127.0.0.1")
	}
	served := make(chan error, 2)
	go func() { served <- x.http.Serve() }()
	go func() { served <- x.server.ServeProxy(proxy) }()
	x.log.Info("listening", "address", x.http.URL(), "proxy", proxy.Addr().String(), "sandbox", x.sandbox.ID(), "driver", x.engine.Caps().Name, "version", thisBuild().Version)
	err = x.wait(served)
	go x.forceExit()
	x.shutdown()
	return err
}

// make creates the sandbox and its server.
func (x *executorRun) make() error {
	d, err := x.app.newDriver(x.cfg, x.log)
	if err != nil {
		return err
	}
	reconcile(d, x.log)
	if x.engine, err = x.app.newEngine(x.cfg, d, x.log, x.adjust); err != nil {
		return err
	}
	if x.sandbox, err = x.engine.Create(context.Background(), x.spec); err != nil {
		x.app.removeSandbox(x.engine)
		return err
	}
	x.server = executor.New(x.sandbox, executorOptions(x.cfg, x.log, x.authorize))
	return nil
}

// adjust replaces a daemon's limits by those of one sandbox that lives as long as this
// process. Configured defaults stay, and no default exceeds its maximum.
func (x *executorRun) adjust(c *engine.Config) {
	ownLimits(x.cfg, c)
	c.IdleTimeout, c.MaxLifetime = -1, -1
	unset := func(name string) bool { return x.cfg.Origin("limits.default."+name) == "" }
	for name, l := range map[string]struct {
		limit            *int64
		generous, atMost int64
	}{"memory": {&c.Default.Memory, executorLimits.Memory, c.Max.Memory}, "pids": {&c.Default.PIDs, executorLimits.PIDs, c.Max.PIDs},
		"inodes": {&c.Default.Inodes, executorLimits.Inodes, c.Max.Inodes},
		"files":  {&c.Default.Files, executorLimits.Files, c.Max.Files}, "output": {&c.Default.Output, executorLimits.Output, c.Max.Output}} {
		if unset(name) && *l.limit != sandbar.Unlimited {
			*l.limit = l.generous
			if l.atMost != sandbar.Unlimited {
				*l.limit = min(l.generous, l.atMost)
			}
		}
	}
	if unset("timeout") {
		c.Default.Timeout = c.Max.Timeout
	}
}

// executorOptions returns the options of an executor from the configuration.
func executorOptions(cfg *config.Config, log *slog.Logger, authorize func(*http.Request) error) executor.Options {
	e := cfg.Executor
	return executor.Options{Authorize: authorize, MaxJSON: e.MaxJSON, MaxContent: e.MaxContent, MaxOutput: e.MaxOutput, KeepLines: int(e.KeepLines), KeepBytes: e.KeepBytes, KeepFinished: int(e.KeepFinished),
		Heartbeat: e.Heartbeat, Stall: e.StallTimeout, MaxProxied: int(e.MaxConnections), Logger: log}
}

// wait starts the main command and waits for a reason to exit: a signal, the command's or
// the sandbox's end, or a failed listener. The error holds the exit code.
func (x *executorRun) wait(served <-chan error) error {
	command, err := x.startMain()
	if err != nil {
		return err
	}
	var late <-chan time.Time
	var forwarded int
	for {
		select {
		case s := <-x.signals:
			x.log.Info("shutting down", "signal", strings.ToUpper(s.String()))
			if command == nil {
				return nil
			}
			if forwarded++; forwarded == 1 {
				late = time.After(commandGrace)
				command.forward(s)
			} else {
				command.process.Kill()
			}
		case <-late:
			command.process.Kill()
		case <-command.done():
			return command.ended()
		case <-x.sandbox.Done():
			if command != nil {
				return command.ended()
			}
			return sandbar.Errorf(sandbar.Gone, "the sandbox has died")
		case err := <-served:
			if err == nil {
				err = errors.New("the listener was closed")
			}
			return err
		}
	}
}

// mainCommand is the command that the executor was started with.
type mainCommand struct {
	process *engine.Process
	out     *outcome.Streams
}

// startMain starts the main command; nil if there is none.
func (x *executorRun) startMain() (*mainCommand, error) {
	if len(x.main) == 0 {
		return nil, nil
	}
	c := &mainCommand{out: outcome.NewStreams(x.app.stdout, x.app.stderr, sandbar.Unlimited)}
	var err error
	c.process, err = x.sandbox.StartSink(context.Background(), sandbar.Cmd{Args: x.main}, cli.Input{Reader: x.app.stdin}, sandbar.Limits{}, c.out)
	if err != nil {
		return nil, cli.Fail(outcome.PlatformCode(err, 0), err)
	}
	return c, nil
}

// done returns a channel that is closed at the command's end; nil, which blocks for ever,
// if there is no command.
func (c *mainCommand) done() <-chan struct{} {
	if c == nil {
		return nil
	}
	return c.process.Done()
}

// forward sends a signal to the command. An error is ignored: the command is killed after
// commandGrace.
func (c *mainCommand) forward(s os.Signal) {
	if number, ok := s.(syscall.Signal); ok {
		c.process.Signal(int(number))
	}
}

// ended returns the exit code for the command's result, as an error.
func (c *mainCommand) ended() error {
	r, err := c.process.Wait(context.Background())
	switch {
	case err != nil:
		return cli.Fail(outcome.PlatformCode(err, 0), err)
	case c.out.Err != nil:
		return cli.OutputError(c.out.Err)
	case r.Outcome == sandbar.Cancelled: // wait cancels only by SIGKILL
		return cli.Exit(cli.ExitSignal + cli.SignalKill)
	case r.Outcome == sandbar.Lost:
		return cli.Fail(cli.ExitPlatform, sandbar.Errorf(sandbar.Gone, "the sandbox died while the command ran; the command's result is unknown"))
	}
	return cli.Exit(outcome.ResultCode(r, 0))
}

// shutdown drains running requests for at most executorDrain.
func (x *executorRun) shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), executorDrain)
	defer cancel()
	if err := x.http.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		x.log.Error("cannot close the listener", "error", err)
	}
	x.server.Close()
}

// forceExit is daemon.forceExit for an executor.
func (x *executorRun) forceExit() {
	s := <-x.signals
	number, _ := s.(syscall.Signal)
	x.log.Warn("second signal: killing all programs and exiting", "signal", strings.ToUpper(s.String()), "within", killTime, "after a third", "now")
	now, cancel := context.WithCancel(context.Background())
	cancel()
	go x.server.Close()
	go x.engine.Shutdown(now)
	select {
	case <-x.signals:
	case <-time.After(killTime):
	}
	os.Exit(cli.ExitSignal + int(number))
}
