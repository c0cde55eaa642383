package main

import (
	"bufio"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/cli"
	"github.com/sandbar-dev/sandbar/internal/driver/kubernetes/agentimage"
	"github.com/sandbar-dev/sandbar/internal/image"
)

func (a *app) kubernetesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kubernetes COMMAND",
		Short: "Prepare a cluster for the driver kubernetes",
		Long:  "Prepare a cluster for the driver kubernetes, whose sandboxes are pods.",
		Args:  cobra.ArbitraryArgs,
		RunE:  a.group("kubernetes"),
	}
	images := &cobra.Command{
		Use:   "image COMMAND",
		Short: "Build the image with the agent for pods",
		Long: `Build the image from which pods take the agent and the porter, two programs in this
binary. Its digest depends on these programs only. The nodes get it in one of two ways:

load writes an archive, which you import on every node. The driver uses this image if
the option agent_image is not set.

push pushes it to a registry from which the nodes pull, and prints the name for the
option agent_image.

With --daemon the image is that of the daemon: this binary and nothing else, for the
Deployment of deploy/kubernetes.`,
		Args: cobra.ArbitraryArgs,
		RunE: a.group("kubernetes image"),
	}
	images.AddCommand(a.kubernetesShowCommand(), a.kubernetesLoadCommand(), a.kubernetesPushCommand())
	cmd.AddCommand(images)
	return cmd
}

// group returns the function of a command that only has subcommands.
func (a *app) group(name string) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usagef(cmd, "unknown command %s%s", cli.Quote(name+" "+args[0]), suggestion(args[0], commandNames(cmd)))
		}
		return cmd.Help()
	}
}

// agentImageReport is the output of kubernetes image show --json. The names are stable.
type agentImageReport struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
	Arch   string `json:"arch"`
	Size   int64  `json:"size"` // bytes
}

func (a *app) kubernetesShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show",
		Short:   "Print the name of the image",
		Long:    "Print the name that the image has on nodes that have imported the archive of\n\"kubernetes image load\". It contains the image's digest.",
		Example: "  sandbar kubernetes image show\n  sandbar kubernetes image show --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			i, err := a.podImage(cmd)
			if err != nil {
				return cli.Fail(cli.ExitFailure, err)
			}
			if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
				return cli.WriteReport(a.stdout, agentImageReport{Name: i.Name(), Digest: i.Digest, Arch: i.Arch, Size: i.Size})
			}
			_, err = fmt.Fprintln(a.stdout, i.Name())
			return err
		},
	}
	cmd.Flags().Bool("json", false, "print JSON")
	daemonFlag(cmd)
	return cmd
}

// daemonFlag adds the flag that podImage reads.
func daemonFlag(cmd *cobra.Command) {
	cmd.Flags().Bool("daemon", false, "the image of the daemon, instead of the agent's")
}

// podImage builds the image of the command.
func (a *app) podImage(cmd *cobra.Command) (*agentimage.Image, error) {
	if daemon, _ := cmd.Flags().GetBool("daemon"); !daemon {
		return agentimage.Build(a.podPrograms)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "the path of this program: %w", err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "reading this program: %w", err)
	}
	return agentimage.BuildDaemon(program)
}

func (a *app) kubernetesLoadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "load [flags]",
		Short: "Write the image as an archive for nodes",
		Long: `Write the image as an archive to standard output, or to the file of --output. Import it
on every node; the driver then finds it by its default name. containerd, k3s, kind,
minikube and Docker read the archive. There its tag is latest.`,
		Example: `  sandbar kubernetes image load | sudo k3s ctr images import -
  sandbar kubernetes image load | ssh node1 sudo ctr -n k8s.io images import -
  sandbar kubernetes image load --daemon | sudo k3s ctr images import -
  sandbar kubernetes image load -o agent.tar && kind load image-archive agent.tar`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			i, err := a.podImage(cmd)
			if err != nil {
				return cli.Fail(cli.ExitFailure, err)
			}
			name, _ := cmd.Flags().GetString("output")
			if name == "" && cli.OnTerminal(a.stdout) {
				return usagef(cmd, "the archive is not written to a terminal; give --output FILE, or pipe it into the import of a node")
			}
			if err := a.writeTo(name, func(w io.Writer) error { return i.WriteArchive(w, "latest") }); err != nil {
				return cli.Fail(cli.ExitFailure, err)
			}
			fmt.Fprintln(a.stderr, i.Name())
			return nil
		},
	}
	daemonFlag(cmd)
	cmd.Flags().StringP("output", "o", "", "write the archive to this `file`")
	return cmd
}

// writeTo writes to a new file, or to standard output if name is empty. It removes a file that it
// could not write completely.
func (a *app) writeTo(name string, write func(io.Writer) error) error {
	if name == "" {
		b := bufio.NewWriter(a.stdout)
		if err := write(b); err != nil {
			return err
		}
		return b.Flush()
	}
	f, err := os.Create(name)
	if err != nil {
		return &sandbar.Error{Code: sandbar.Invalid, Field: "--output", Err: err, Message: "the file " + cli.Quote(name) + " cannot be written: " + cli.Cause(err).Error(), Fix: "name a file in an existing directory"}
	}
	err = write(f)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		os.Remove(name)
		return &sandbar.Error{Code: sandbar.NoSpace, Field: "--output", Err: err, Message: "writing " + cli.Quote(name) + ": " + cli.Cause(err).Error()}
	}
	return nil
}

func (a *app) kubernetesPushCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "push NAME[:TAG]",
		Short: "Push the image to a registry",
		Long: `Push the image to a registry and print its name with its digest, which is the value
for the option agent_image of the driver. The default tag is the version of this
binary. The credentials are those of "docker login" (~/.docker/config.json). A registry
without TLS must be listed in the setting images.insecure_registries.`,
		Example: `  sandbar kubernetes image push registry.example.com/team/sandbar-agent
  export SANDBAR_DRIVERS="{kubernetes: {agent_image: $(sandbar kubernetes image push registry.example.com/agent)}}"`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef(cmd, "kubernetes image push needs one name, such as registry.example.com/team/sandbar-agent")
			}
			cfg, err := a.configuration(cmd)
			if err != nil {
				return err
			}
			i, err := a.podImage(cmd)
			if err != nil {
				return cli.Fail(cli.ExitFailure, err)
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			name, err := image.Push(ctx, i.V1, args[0], image.PushOptions{Tag: agentimage.Tag(thisBuild().Version), InsecureRegistries: cfg.Images.InsecureRegistries})
			if err != nil {
				return cli.Fail(cli.ExitFailure, err)
			}
			_, err = fmt.Fprintln(a.stdout, name)
			return err
		},
	}
	daemonFlag(cmd)
	a.settings(cmd)
	return cmd
}
