// Command sandbar runs untrusted code in isolated sandboxes. "serve" is a daemon for
// the network protocols; "run" and "eval" run one program without a daemon; "doctor"
// reports what this host can enforce; "gc" removes leftovers of killed daemons.
//
// The package is wiring. Each subcommand is a file that reads flags, connects the
// libraries, and turns the result into text and an exit code.
package main

import (
	"io"
	"log"
	"os"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/embedded"
	porter "github.com/sandbar-dev/sandbar/internal/agent/porter/embedded"
	"github.com/sandbar-dev/sandbar/internal/cli"
	"github.com/sandbar-dev/sandbar/internal/driver/all"
	"github.com/sandbar-dev/sandbar/internal/driver/kubernetes/agentimage"
	"github.com/sandbar-dev/sandbar/internal/process/pid1"
	"github.com/sandbar-dev/sandbar/internal/process/sigreset"
)

func main() {
	// Libraries log bytes that a guest has sent (net/http: "Unsolicited response") to
	// the standard logger. Sandbar's own logs use slog.
	log.SetOutput(io.Discard)
	all.Main()
	pid1.Main()
	limitCoreDumps()
	a := newApp(embedded.Binary(), porter.Binary())
	root := a.rootCommand
	if invokedAsStdio(os.Args[0]) {
		root = a.stdioRoot
	}
	os.Exit(a.execute(root(), os.Args[1:]))
}

// newApp returns the app of this process. agentProgram and porterProgram are the programs
// for all.Factories, or nil.
func newApp(agentProgram, porterProgram []byte) *app {
	return &app{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		environ: os.Environ(), ignoredSignals: sigreset.Reset(),
		factories:   all.Factories(agentProgram, porterProgram),
		podPrograms: agentimage.Programs{Agent: agentProgram, Porter: porterProgram},
	}
}

// app is the state that the subcommands share: standard streams, environment, and the
// drivers of this build.
type app struct {
	stdin          *os.File
	stdout, stderr io.Writer
	environ        []string
	ignoredSignals []os.Signal // ignored when this process started (nohup(1)); they stay ignored
	factories      []driver.Factory
	podPrograms    agentimage.Programs // of the image of the driver kubernetes
}

// main runs the command line and returns the exit code.
func (a *app) main(args []string) int { return a.execute(a.rootCommand(), args) }

func (a *app) execute(root *cobra.Command, args []string) int {
	root.SetArgs(args)
	err := root.Execute()
	cli.Report(a.stderr, err)
	return cli.ExitCode(err)
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:     "sandbar",
		Version: thisBuild().String(),
		Short:   "Run untrusted code in isolated sandboxes",
		Long: `Sandbar runs untrusted code in isolated sandboxes and returns its output and exit
code. "serve" is a daemon that serves the network protocols; "run" and "eval" run
one program without a daemon.`,
		Example: `  sandbar eval python -c 'print(2+2)'
  sandbar run host -- ls -l /
  sandbar doctor
  SANDBAR_TOKEN=secret sandbar serve --listen 127.0.0.1:8080`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef(cmd, "unknown command %s%s", cli.Quote(args[0]), suggestion(args[0], commandNames(cmd)))
			}
			return cmd.Help()
		},
	}
	a.configureRoot(root)
	root.AddCommand(a.serveCommand(), a.executorCommand(), a.stdioCommand(), a.mcpCommand(), a.workerCommand(), a.iiiCommand(), a.runCommand(), a.evalCommand(), a.toolCommand(),
		a.createCommand(), a.execCommand(), a.replCommand(), a.listCommand(), a.stopCommand(), a.pauseCommand(), a.resumeCommand(), a.forkCommand(), a.uploadCommand(), a.downloadCommand(), a.watchCommand(), a.statsCommand(), a.renewCommand(), a.eventsCommand(), a.previewCommand(), a.psCommand(), a.logsCommand(), a.killCommand(), a.portCommand(),
		a.doctorCommand(), a.escapeCommand(), a.gcCommand(), a.imagesCommand(), a.vmCommand(), a.kubernetesCommand(), a.prepareCommand(), a.tokenCommand(), a.versionCommand(), a.completionCommand())
	root.SetHelpCommand(a.helpCommand())
	return root
}

// configureRoot connects a root command to the streams and the error handling of a.
func (a *app) configureRoot(root *cobra.Command) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions = cobra.CompletionOptions{DisableDefaultCmd: true}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(flagError)
}

func (a *app) helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Explain a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			target, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usagef(cmd, "unknown command %s%s", cli.Quote(args[len(args)-1]), suggestion(args[len(args)-1], commandNames(cmd.Root())))
			}
			return target.Help()
		},
	}
}

func commandNames(root *cobra.Command) []string {
	var names []string
	for _, c := range root.Commands() {
		names = append(names, c.Name())
	}
	return names
}

// noArgs is the cobra.PositionalArgs of commands that take no arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef(cmd, "%s takes no arguments, got %s", cmd.Name(), cli.Quote(args[0]))
	}
	return nil
}

// warn writes one line to standard error.
func (a *app) warn(format string, args ...any) {
	cli.Warn(a.stderr, format, args...)
}
