package main

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/cli"
	"github.com/sandbar-dev/sandbar/internal/process/cachedir"
	"github.com/sandbar-dev/sandbar/internal/protocol/control"
	"github.com/sandbar-dev/sandbar/internal/protocol/mcp"
	"github.com/sandbar-dev/sandbar/internal/server/config"
	"github.com/sandbar-dev/sandbar/internal/server/httpd"
	"github.com/sandbar-dev/sandbar/internal/server/platform"
)

// Where the sandboxes of a session of "sandbar mcp" are.
const (
	mcpPerSession = "per-session"
	mcpDaemon     = "daemon"
)

func (a *app) mcpCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mcp [flags]",
		Short: "Serve tools for agents over standard input and output",
		Long: `Serve tools for agents over standard input and output with the Model Context
Protocol: run code and commands in a sandbox, work with its files, open its ports.
An agent starts this command; docs/mcp.md says what to enter in its settings.

With --sandbox per-session no daemon is needed: this process makes the session's
sandboxes. With --sandbox daemon it connects the agent with /mcp of a daemon. The
default is daemon if --url, SANDBAR_URL or the configuration names one, and
otherwise per-session. All sandboxes end with the session: at the end of standard
input, or at a signal.
` + remoteHelp + `

Exit code: 0; 1 if a stream or the daemon fails; 2 for a mistake in flags or
configuration, or if the driver cannot be used.`,
		Example: `  sandbar mcp
  sandbar mcp --sandbox per-session --driver vm
  sandbar mcp --url http://127.0.0.1:8080`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.mcp(cmd) },
	}
	cmd.Flags().String("sandbox", "", "per-session (in this process) or daemon")
	cmd.RegisterFlagCompletionFunc("sandbox", cobra.FixedCompletions([]string{mcpPerSession, mcpDaemon}, cobra.ShellCompDirectiveNoFileComp))
	a.settings(cmd, append([]setting{driverSetting}, remoteSettings...)...)
	return cmd
}

func (a *app) mcp(cmd *cobra.Command) error {
	cfg, err := a.configuration(cmd, append([]setting{driverSetting}, remoteSettings...)...)
	if err != nil {
		return err
	}
	where, _ := cmd.Flags().GetString("sandbox")
	switch {
	case cmd.Flags().Changed("sandbox") && where != mcpPerSession && where != mcpDaemon:
		return usagef(cmd, "--sandbox: unknown value %s (allowed: %s, %s)", cli.Quote(where), mcpPerSession, mcpDaemon)
	case where == "" && cfg.URL != "":
		where = mcpDaemon
	case where == "":
		where = mcpPerSession
	}
	if where == mcpDaemon && cmd.Flags().Changed("driver") {
		return usagef(cmd, "--driver is for --sandbox %s; a daemon has its own", mcpPerSession)
	}
	// From here on, other writes of this process or a library to standard output go to
	// standard error.
	out, err := takeStdout(a.stdout)
	if err != nil {
		return err
	}
	defer out.Close()
	if where == mcpDaemon {
		return a.mcpOfDaemon(cmd, out)
	}
	return a.mcpPerSession(cfg, out)
}

// mcpOfDaemon connects the agent with a daemon.
func (a *app) mcpOfDaemon(cmd *cobra.Command, out io.Writer) error {
	r, err := a.connect(cmd)
	if err != nil {
		return err
	}
	defer r.close()
	err = r.ServeMCP(r.ctx, a.stdin, out)
	if s := r.signal(); s != 0 {
		return cli.Exit(cli.ExitSignal + s)
	}
	return err
}

// mcpPerSession serves one session with an engine of its own.
func (a *app) mcpPerSession(cfg *config.Config, out io.WriteCloser) error {
	log := commandLogger(cfg, a.stderr)
	signals := a.terminationSignals()
	defer signal.Stop(signals)
	d, err := a.newDriver(cfg, log)
	if err != nil {
		return cli.Fail(cli.ExitUsage, err)
	}
	pausedDir, clear, err := sessionPausedDir(cfg, d)
	if err != nil {
		return cli.Fail(cli.ExitUsage, errors.Join(err, d.Close()))
	}
	defer clear()
	e, err := a.newEngine(cfg, d, log, func(c *engine.Config) {
		platform.OwnLimits(cfg, c)
		c.PausedDir = pausedDir
	})
	if err != nil {
		return cli.Fail(cli.ExitUsage, err)
	}
	p := &ownPreviews{engine: e, options: controlOptions(cfg, log)}
	s := mcp.New(e, mcp.Options{Version: thisBuild().Version, Preview: p.preview, Logger: log})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, io.NopCloser(a.stdin), out) }()
	select {
	case err = <-served:
	case sig := <-signals:
		// Serve may block in a read of standard input, which only the process's exit ends.
		cancel()
		<-served
		number, _ := sig.(syscall.Signal)
		err = cli.Exit(cli.ExitSignal + int(number))
	}
	return errors.Join(err, p.close(), shutDown(e))
}

// maxMCPProcesses bounds the processes of "sandbar mcp" with one state directory that can save
// snapshots at once.
const maxMCPProcesses = 256

// sessionPausedDir returns a directory for the snapshots of this process, and a function that
// empties it. What a killed process has left there is removed. dir is "" if no driver saves states.
func sessionPausedDir(cfg *config.Config, ds platform.Drivers) (dir string, clear func(), err error) {
	none := func() {}
	if _, ok := driver.As[driver.Restorer](ds.First); !ok {
		return "", none, nil
	}
	parent := filepath.Join(cfg.StateDir, "mcp")
	if err := errors.Join(config.PrivateDir(cfg.StateDir, "state_dir"), config.PrivateDir(parent, "state_dir")); err != nil {
		return "", none, nil // the tool snapshot is then refused
	}
	now, cancel := context.WithCancel(context.Background())
	cancel() // do not wait
	for n := range maxMCPProcesses {
		dir := filepath.Join(parent, strconv.Itoa(n))
		if err := config.PrivateDir(dir, "state_dir"); err != nil {
			return "", none, nil
		}
		unlock, err := cachedir.Lock(now, dir)
		if errors.Is(err, context.Canceled) {
			continue // of another process
		}
		if err != nil {
			return "", none, err
		}
		return dir, func() { emptyDir(dir); unlock() }, emptyDir(dir)
	}
	return "", none, nil
}

// emptyDir removes everything in a directory but the file of cachedir.Lock.
func emptyDir(dir string) error {
	all, err := os.ReadDir(dir)
	for _, e := range all {
		if e.Name() != "lock" {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// ownPreviews serves previews on a loopback address from the first one on.
type ownPreviews struct {
	engine  *engine.Engine
	options control.Options

	mu       sync.Mutex
	api      *control.Server
	listener *httpd.Server
	served   chan error
}

func (p *ownPreviews) preview(_ *http.Request, id sandbar.ID, port int, public bool) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.api == nil {
		api := control.New(p.engine, p.options)
		l, err := httpd.Listen(httpd.Options{Listen: net.JoinHostPort("127.0.0.1", "0"), Token: rand.Text(), Hosts: []httpd.HostHandler{api}, Logger: p.options.Logger})
		if err != nil {
			return "", errors.Join(err, api.Close())
		}
		p.api, p.listener, p.served = api, l, make(chan error, 1)
		go func() { p.served <- l.Serve() }()
	}
	r, err := http.NewRequest(http.MethodPost, p.listener.URL(), strings.NewReader(""))
	if err != nil {
		return "", err
	}
	made, err := p.api.Preview(r, id, port, public)
	return made.URL, err
}

// close ends the previews.
func (p *ownPreviews) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.api == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stdioShutdown)
	defer cancel()
	return errors.Join(p.api.Close(), p.listener.Shutdown(ctx), <-p.served)
}
