// Command sandbar runs code that nobody has reviewed: as a daemon that serves
// the protocols (serve), or one program at a time (run, eval). doctor tells
// what this host can enforce, gc removes what killed daemons left behind.
//
// The package is wiring: each subcommand is a file that reads its flags, puts
// the parts together and turns what came of it into text and an exit code.
package main

import (
	"io"
	"log"
	"os"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/embedded"
	"github.com/sandbar-dev/sandbar/internal/cli"
	"github.com/sandbar-dev/sandbar/internal/driver/all"
	"github.com/sandbar-dev/sandbar/internal/process/pid1"
	"github.com/sandbar-dev/sandbar/internal/process/sigreset"
)

func main() {
	// Libraries write there what a guest has sent (net/http: "Unsolicited response").
	// The program's own logs are structured and go elsewhere.
	log.SetOutput(io.Discard)
	all.Main()
	pid1.Main()
	limitCoreDumps()
	a := newApp(embedded.Binary())
	root := a.rootCommand
	if invokedAsStdio(os.Args[0]) {
		root = a.stdioRoot
	}
	os.Exit(a.execute(root(), os.Args[1:]))
}

// newApp is the app of this process. agentProgram is as all.Factories has it.
func newApp(agentProgram []byte) *app {
	return &app{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		environ: os.Environ(), ignoredSignals: sigreset.Reset(),
		factories: all.Factories(agentProgram),
	}
}

// app is what the subcommands share: the process's surroundings and the
// drivers of this build.
type app struct {
	stdin          *os.File
	stdout, stderr io.Writer
	environ        []string
	ignoredSignals        []os.Signal // that are to have no effect
	factories      []driver.Factory
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
		Short:   "Run code that nobody has reviewed, in real isolation",
		Long: `Sandbar runs code that nobody has reviewed, in real isolation, and hands back
what it did. "serve" is a daemon that speaks the Fathom protocol; "run" and
"eval" run one program without a daemon.`,
		Example: `  sandbar eval python -c 'print(2+2)'
  sandbar run host -- ls -l /
  sandbar doctor
  SANDBAR_TOKEN=secret sandbar serve --listen 127.0.0.1:8080`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef(cmd, "there is no command %s%s", cli.Quote(args[0]), suggestion(args[0], commandNames(cmd)))
			}
			return cmd.Help()
		},
	}
	a.configureRoot(root)
	root.AddCommand(a.serveCommand(), a.executorCommand(), a.stdioCommand(), a.workerCommand(), a.iiiCommand(), a.runCommand(), a.evalCommand(), a.toolCommand(),
		a.createCommand(), a.execCommand(), a.listCommand(), a.stopCommand(), a.uploadCommand(), a.downloadCommand(), a.psCommand(), a.logsCommand(), a.killCommand(), a.portCommand(),
		a.doctorCommand(), a.escapeCommand(), a.gcCommand(), a.imagesCommand(), a.prepareCommand(), a.versionCommand(), a.completionCommand())
	root.SetHelpCommand(a.helpCommand())
	return root
}

// prepare gives a command that is a program its surroundings.
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
				return usagef(cmd, "there is no command %s%s", cli.Quote(args[len(args)-1]), suggestion(args[len(args)-1], commandNames(cmd.Root())))
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

// noArgs refuses arguments for commands that take none.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef(cmd, "%s takes no arguments, and %s was given", cmd.Name(), cli.Quote(args[0]))
	}
	return nil
}

// warn writes one line for a person to standard error.
func (a *app) warn(format string, args ...any) {
	cli.Warn(a.stderr, format, args...)
}
