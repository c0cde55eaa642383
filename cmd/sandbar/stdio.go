package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/cli"
	"github.com/sandbar-dev/sandbar/internal/driver/v86"
	"github.com/sandbar-dev/sandbar/internal/driver/wasm"
	"github.com/sandbar-dev/sandbar/internal/protocol/stdio"
	"github.com/sandbar-dev/sandbar/internal/server/config"
	"github.com/sandbar-dev/sandbar/internal/server/platform"
)

// stdioName is the program name (argv[0]) that selects the command stdio.
const stdioName = "wasm-sandbox"

// invokedAsStdio reports whether argv[0] is stdioName.
func invokedAsStdio(name string) bool {
	return strings.TrimSuffix(strings.ToLower(filepath.Base(name)), ".exe") == stdioName
}

// The modes of the protocol.
const (
	modeSimple = "simple"
	modeV86    = "v86"
)

// The range of --memory-limit, in MiB: for mode simple, and for a machine of mode v86.
const (
	minMemoryLimit = 4
	maxMemoryLimit = 4096
	minMachine     = v86.MinMemory >> 20
	maxMachine     = v86.MaxMemory >> 20
)

// stdioShutdown bounds the removal of the sandbox at exit.
const stdioShutdown = 10 * time.Second

func (a *app) stdioCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stdio [flags]",
		Short: "Serve one sandbox over standard input and output",
		Long: `Serve one sandbox over standard input and output with the WASM sandbox JSON
protocol: each line of input is a request, each line of output a response, both JSON
objects. Requests run a shell command, write and read files, reset the sandbox, and
query its status. No daemon is needed; the driver wasm needs no privileges and no
support of the operating system.

A copy of or a link to this program named ` + stdioName + ` runs this command.

Standard output carries only responses; messages go to standard error. At the end of
standard input the command finishes the current request and exits. Exit code: 0; 2
for a mistake in flags or configuration, or if the sandbox cannot be created; 1 if
standard input or output fails.`,
		Example: `  sandbar stdio --memory-limit 128
  echo '{"type":"shell","command":"echo Hello","id":"1"}' | sandbar stdio
  sandbar stdio --driver native`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.stdio(cmd) },
	}
	f := cmd.Flags()
	f.Uint("memory-limit", 64, "memory limit in `MB`")
	f.String("disk-image", "", "disk image `path` (for mode v86, which needs it)")
	f.String("mode", modeSimple, "\"simple\" or \"v86\"")
	a.settings(cmd, driverSetting)
	f.Lookup("driver").Usage = "driver that runs the programs of mode simple (default wasm)"
	return cmd
}

// stdioRoot returns the command stdio as a root command, for the name stdioName.
func (a *app) stdioRoot() *cobra.Command {
	cmd := a.stdioCommand()
	cmd.Use, cmd.Example = stdioName+" [flags]", strings.ReplaceAll(cmd.Example, "sandbar stdio", stdioName)
	cmd.Version = thisBuild().Version
	cmd.SetVersionTemplate(stdioName + " {{.Version}}\n")
	a.configureRoot(cmd)
	return cmd
}

// stdioPlan holds the parsed flags of stdio.
type stdioPlan struct {
	memory int64 // bytes
	mode   string
	image  string
}

func planStdio(cmd *cobra.Command) (stdioPlan, error) {
	f := cmd.Flags()
	mb, err := f.GetUint("memory-limit")
	if err != nil || mb < minMemoryLimit || mb > maxMemoryLimit {
		return stdioPlan{}, usagef(cmd, "--memory-limit: %s is out of range (allowed: %d to %d MB)", f.Lookup("memory-limit").Value, minMemoryLimit, maxMemoryLimit)
	}
	p := stdioPlan{memory: int64(mb) << 20}
	p.mode, _ = f.GetString("mode")
	p.image, _ = f.GetString("disk-image")
	switch {
	case p.mode != modeSimple && p.mode != modeV86:
		return p, usagef(cmd, "--mode: unknown mode %s (allowed: %s, %s)", cli.Quote(p.mode), modeSimple, modeV86)
	case p.mode == modeV86 && p.image == "":
		return p, usagef(cmd, "--mode v86 needs --disk-image")
	case p.mode == modeV86 && (mb < minMachine || mb > maxMachine):
		return p, usagef(cmd, "--memory-limit: %d is out of range (allowed in mode v86: %d to %d MB)", mb, minMachine, maxMachine)
	case p.mode == modeV86 && f.Changed("driver"):
		return p, usagef(cmd, "--driver is for --mode simple")
	case p.mode == modeSimple && p.image != "":
		return p, usagef(cmd, "--disk-image is for --mode v86")
	}
	return p, nil
}

func (a *app) stdio(cmd *cobra.Command) error {
	p, err := planStdio(cmd)
	if err != nil {
		return err
	}
	cfg, err := a.configuration(cmd, driverSetting)
	if err != nil {
		return err
	}
	// From here on, other writes of this process or a library to standard output go to
	// standard error.
	out, err := takeStdout(a.stdout)
	if err != nil {
		return err
	}
	defer out.Close()
	e, err := a.stdioEngine(cfg, p)
	if err != nil {
		return cli.Fail(cli.ExitUsage, err)
	}
	return a.serveStdio(e, p, out)
}

// stdioEngine makes the engine for one sandbox.
func (a *app) stdioEngine(cfg *config.Config, p stdioPlan) (*engine.Engine, error) {
	log := commandLogger(cfg, a.stderr)
	d, err := a.stdioDriver(cfg, p)
	if err != nil {
		return nil, err
	}
	return a.newEngine(cfg, d, log, func(c *engine.Config) {
		c.MaxSandboxes, c.IdleTimeout, c.MaxLifetime, c.Grace = 2, -1, -1, 20*time.Millisecond
		c.Min.Memory, c.Max.Memory, c.Default.Memory = minMemoryLimit<<20, maxMemoryLimit<<20, p.memory
		c.Min.Timeout, c.Max.Timeout, c.Default.Timeout = time.Millisecond, time.Hour, 5*time.Second
		c.Max.Output, c.Default.Output = stdioOutput, stdioOutput
		if p.mode == modeV86 {
			// The machine's memory is its only limit.
			none := int64(sandbar.Unlimited)
			c.Default.PIDs, c.Default.Disk, c.Default.Inodes, c.Default.Files = none, none, none, none
			c.Max.PIDs, c.Max.Disk, c.Max.Inodes, c.Max.Files = none, none, none, none
			return
		}
		if cfg.Origin("limits.default.disk") == "" {
			// The driver wasm stores files in the sandbox's memory.
			c.Default.Disk, c.Min.Disk = p.memory, min(c.Min.Disk, p.memory)
			c.Max.Disk = max(c.Max.Disk, p.memory)
		}
	})
}

// stdioOutput is the most output of one command, in bytes.
const stdioOutput = 16 << 20

// stdioDriver opens the driver of the mode. Mode simple uses wasm unless the configuration
// names another driver.
func (a *app) stdioDriver(cfg *config.Config, p stdioPlan) (platform.Drivers, error) {
	log := commandLogger(cfg, a.stderr)
	if p.mode == modeV86 {
		h := platform.Host(cfg, v86.Name, log)
		options := map[string]string{}
		maps.Copy(options, h.Options)
		options[v86.OptionImage] = p.image
		h.Options = options
		d, err := v86.New(h, func(text string) { fmt.Fprintln(a.stderr, "sandbar: "+text) })
		if err != nil {
			return platform.Drivers{}, err
		}
		// An error occurs again in each request, which reports it.
		_ = d.Prepare(context.Background(), p.memory)
		return platform.Drivers{First: d}, nil
	}
	if cfg.Origin("driver") != "" {
		return a.newDriver(cfg, log)
	}
	h := platform.Host(cfg, wasm.Name, log)
	h.Waiting = a.showProgress
	d, err := wasm.New(h)
	if err != nil {
		return platform.Drivers{}, err
	}
	return prepareHost(platform.Drivers{First: d})
}

// serveStdio serves requests until the end of input or a termination signal.
func (a *app) serveStdio(e *engine.Engine, p stdioPlan, out io.Writer) error {
	signals := a.terminationSignals()
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := stdio.New(ctx, e, stdio.Options{Memory: p.memory, AllowNoSandbox: p.mode == modeV86})
	if err != nil {
		return cli.Fail(cli.ExitUsage, errors.Join(err, shutDown(e)))
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, a.stdin, out) }()
	select {
	case err = <-served:
	case sig := <-signals:
		// Serve may block in a read of standard input, which only the process's exit ends.
		number, _ := sig.(syscall.Signal)
		err = cli.Exit(cli.ExitSignal + int(number))
	}
	return errors.Join(err, shutDown(e))
}

func shutDown(e *engine.Engine) error {
	ctx, cancel := context.WithTimeout(context.Background(), stdioShutdown)
	defer cancel()
	return e.Shutdown(ctx)
}

// takeStdout returns the writer for responses: a duplicate of standard output, whose own
// descriptor becomes a duplicate of standard error.
func takeStdout(w io.Writer) (io.WriteCloser, error) {
	f, ok := w.(*os.File)
	if !ok { // in a test
		return nopCloser{w}, nil
	}
	return redirectToStderr(f)
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
