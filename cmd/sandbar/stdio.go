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

// stdioName is the name under which this program is its own command stdio.
const stdioName = "wasm-sandbox"

// calledStdio reports whether the program was started under that name.
func invokedAsStdio(name string) bool {
	return strings.TrimSuffix(strings.ToLower(filepath.Base(name)), ".exe") == stdioName
}

// The modes of the protocol.
const (
	modeSimple = "simple"
	modeV86    = "v86"
)

// The range of --memory-limit, in MiB.
const (
	minMemoryLimit = 4
	maxMemoryLimit = 4096
	minMachine     = v86.MinMemory >> 20
	maxMachine     = v86.MaxMemory >> 20
)

// stdioShutdown bounds the removal of the sandbox at the end.
const stdioShutdown = 10 * time.Second

func (a *app) stdioCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stdio [flags]",
		Short: "Be a sandbox that is spoken to over standard input and output",
		Long: `Be a sandbox that is spoken to over standard input and output: one JSON object a
line in, one a line out (the WASM sandbox JSON protocol). There are requests to
run a shell command, write and read files, reset the sandbox and tell its
status. It needs no daemon and, with the driver wasm, no rights and nothing of
the operating system.

Under the name ` + stdioName + ` this program is this command.

Standard output has responses and nothing else; messages are on standard error.
The end of standard input ends it, after what it is doing. Exit code: 0; 2 for a
mistake in flags or configuration, or a sandbox that cannot be made; 1 if
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
	f.Lookup("driver").Usage = "what runs the programs of mode simple (default wasm)"
	return cmd
}

// stdioRoot is the same command as a program of its own.
func (a *app) stdioRoot() *cobra.Command {
	cmd := a.stdioCommand()
	cmd.Use, cmd.Example = stdioName+" [flags]", strings.ReplaceAll(cmd.Example, "sandbar stdio", stdioName)
	cmd.Version = thisBuild().Version
	cmd.SetVersionTemplate(stdioName + " {{.Version}}\n")
	a.configureRoot(cmd)
	return cmd
}

// stdioPlan is what the flags ask for.
type stdioPlan struct {
	memory int64 // bytes
	mode   string
	image  string
}

func planStdio(cmd *cobra.Command) (stdioPlan, error) {
	f := cmd.Flags()
	mb, err := f.GetUint("memory-limit")
	if err != nil || mb < minMemoryLimit || mb > maxMemoryLimit {
		return stdioPlan{}, usagef(cmd, "--memory-limit: %s was given, and %d to %d MB are possible", f.Lookup("memory-limit").Value, minMemoryLimit, maxMemoryLimit)
	}
	p := stdioPlan{memory: int64(mb) << 20}
	p.mode, _ = f.GetString("mode")
	p.image, _ = f.GetString("disk-image")
	switch {
	case p.mode != modeSimple && p.mode != modeV86:
		return p, usagef(cmd, "--mode: there is no mode %s (allowed: %s, %s)", cli.Quote(p.mode), modeSimple, modeV86)
	case p.mode == modeV86 && p.image == "":
		return p, usagef(cmd, "--mode v86 needs --disk-image")
	case p.mode == modeV86 && (mb < minMachine || mb > maxMachine):
		return p, usagef(cmd, "--memory-limit: %d was given, and %d to %d MB are possible in mode v86", mb, minMachine, maxMachine)
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
	// Whatever else this process or a library of it writes to standard output
	// goes to standard error from here on.
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

// stdioEngine makes the platform of one sandbox.
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
			// What bounds a machine is its memory.
			none := int64(sandbar.Unlimited)
			c.Default.PIDs, c.Default.Disk, c.Default.Inodes, c.Default.Files = none, none, none, none
			c.Max.PIDs, c.Max.Disk, c.Max.Inodes, c.Max.Files = none, none, none, none
			return
		}
		if cfg.Origin("limits.default.disk") == "" {
			// The files are in the same memory.
			c.Default.Disk, c.Min.Disk = p.memory, min(c.Min.Disk, p.memory)
			c.Max.Disk = max(c.Max.Disk, p.memory)
		}
	})
}

// stdioOutput is the most output of one command, in bytes.
const stdioOutput = 16 << 20

// stdioDriver is that of the mode: for simple wasm, unless the configuration
// names another.
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
		// What fails here fails in every request again, which is answered so.
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

// serveStdio answers requests until the input ends, or a signal comes.
func (a *app) serveStdio(e *engine.Engine, p stdioPlan, out io.Writer) error {
	signals := a.terminationSignals()
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := stdio.New(ctx, e, stdio.Options{Memory: p.memory, Late: p.mode == modeV86})
	if err != nil {
		return cli.Fail(cli.ExitUsage, errors.Join(err, shutDown(e)))
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, a.stdin, out) }()
	select {
	case err = <-served:
	case sig := <-signals:
		// Serve may be in a read that nothing can end but the end of this process.
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

// takeStdout is where responses go: a duplicate of standard output, whose own
// descriptor then leads to standard error.
func takeStdout(w io.Writer) (io.WriteCloser, error) {
	f, ok := w.(*os.File)
	if !ok { // a test's
		return nopCloser{w}, nil
	}
	return redirectToStderr(f)
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
