package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/cli"
	"github.com/sandbar-dev/sandbar/internal/driver/kubernetes"
	"github.com/sandbar-dev/sandbar/internal/image"
	"github.com/sandbar-dev/sandbar/internal/server/config"
	"github.com/sandbar-dev/sandbar/internal/server/platform"
)

// ensureImage pulls an image if it must and may be pulled, and prints the catalogue's note
// on it. A missing image is no error here: the driver reports it.
func (a *app) ensureImage(cfg *config.Config, name string) error {
	if name == sandbar.ImageHost || (cfg.Driver == "docker" || cfg.Driver == kubernetes.Name) && isPreset(name) { // they have images of their own for presets
		return nil
	}
	c, err := platform.ImageCatalogue(cfg)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(context.Background())
	defer stop()
	bar := newPullBar(a.stderr, name)
	ready, err := c.Ensure(ctx, name, bar.show)
	bar.end()
	if image.ReasonOf(err) == image.InstallFailed {
		return err
	}
	if ready.Note != "" {
		a.warn("%s", ready.Note)
	}
	return nil
}

func isPreset(name string) bool {
	return slices.ContainsFunc(image.Presets(), func(p image.Preset) bool { return p.Name == name })
}

// interruptible returns a context that SIGINT and SIGTERM cancel, so that an unfinished
// step cleans up.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}

// pullBar shows the progress of a pull on one line of a terminal.
type pullBar struct {
	w     io.Writer // nil if not a terminal
	name  string
	shown bool
}

func newPullBar(w io.Writer, name string) *pullBar {
	if !cli.OnTerminal(w) {
		w = nil
	}
	return &pullBar{w: w, name: cli.Printable(name)}
}

func (b *pullBar) show(p image.Progress) {
	if b.w == nil {
		return
	}
	line := "pulling " + b.name
	if p.Step == "fetch" && p.Total > 0 {
		line += fmt.Sprintf(": layer %d of %d, %d %% of %s", p.Layer, p.Layers, 100*p.Bytes/p.Total, cli.FormatBytes(p.Total))
	}
	fmt.Fprintf(b.w, "\r\x1b[K%s", line)
	b.shown = true
}

func (b *pullBar) end() {
	if b.shown {
		fmt.Fprint(b.w, "\r\x1b[K")
	}
}

func (a *app) imagesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "images COMMAND",
		Short: "List, pull, import and remove images",
		Long: `List, pull, import and remove images: root file systems of sandboxes.

The image "host" always exists; it has this machine's programs. If this machine has
Python or Node.js, the images "python" and "node" use them until "sandbar images
pull python" pulls the real image.

Images are stored in the directory images.dir of the configuration. All sandboxes
share them read-only.`,
		Example: `  sandbar images pull docker.io/library/debian:stable
  docker save tool | sandbar images import - tool
  sandbar images import ./rootfs my-image
  sandbar run my-image -- sh -c 'id; ls /'
  sandbar images list`,
		Args: cobra.ArbitraryArgs,
		RunE: a.group("images"),
	}
	cmd.AddCommand(a.imagesListCommand(), a.imagesPullCommand(), a.imagesImportCommand(), a.imagesRemoveCommand(), a.imagesCollectCommand())
	return cmd
}

// withStore completes cmd as a subcommand of images with least to most arguments, or any
// number if most is -1. what names the arguments in errors.
func (a *app) withStore(cmd *cobra.Command, least, most int, what string, run func(ctx context.Context, cmd *cobra.Command, cfg *config.Config, s *image.Store, args []string) error) *cobra.Command {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return usagef(cmd, "images %s needs %s", cmd.Name(), what)
		case most >= 0 && len(args) > most:
			return usagef(cmd, "images %s does not take %s", cmd.Name(), cli.Quote(args[most]))
		}
		cfg, err := a.configuration(cmd)
		if err != nil {
			return err
		}
		s, err := platform.ImageStore(cfg)
		if err != nil {
			return cli.Fail(cli.ExitFailure, err)
		}
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		err = run(ctx, cmd, cfg, s, args)
		if _, ok := errors.AsType[*cli.ExitError](err); err == nil || ok {
			return err
		}
		if _, ok := errors.AsType[*cli.Failure](err); ok {
			return err
		}
		return cli.Fail(cli.ExitFailure, err)
	}
	cmd.Flags().Bool("json", false, "print JSON")
	a.settings(cmd)
	return cmd
}

func (a *app) imagesListCommand() *cobra.Command {
	return a.withStore(&cobra.Command{Use: "list", Short: "List the images on this host", Aliases: []string{"ls"}}, 0, 0, "",
		func(_ context.Context, cmd *cobra.Command, _ *config.Config, s *image.Store, _ []string) error {
			all, err := s.List()
			if err != nil {
				return err
			}
			if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
				return cli.WriteReport(a.stdout, struct {
					Images []image.Image `json:"images"`
				}{all})
			}
			return a.printImages(all)
		})
}

func (a *app) printImages(all []image.Image) error {
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tID\tSIZE\tADDED\tIN USE")
	for _, i := range all {
		use := "no"
		if i.InUse {
			use = "yes"
		}
		names := i.Names
		if len(names) == 0 {
			names = []string{"(none)"}
		}
		for _, name := range names {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", cli.Printable(name), shortID(i.ID), cli.FormatBytes(i.Size), i.Added.Local().Format(time.DateTime), use)
		}
	}
	return w.Flush()
}

// shortID returns the first 12 hexadecimal digits of an ID.
func shortID(id string) string {
	hex := strings.TrimPrefix(id, "sha256:")
	return hex[:min(len(hex), 12)]
}

// printImage prints the ID of an image, or with --json its description.
func (a *app) printImage(cmd *cobra.Command, i image.Image) error {
	if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
		return cli.WriteReport(a.stdout, i)
	}
	_, err := fmt.Fprintln(a.stdout, i.ID)
	return err
}

func (a *app) imagesPullCommand() *cobra.Command {
	cmd := a.withStore(&cobra.Command{
		Use:   "pull REFERENCE [flags]",
		Short: "Pull an image from its registry",
		Long: `Pull an image from its registry and print its ID. REFERENCE is
[REGISTRY/]NAME[:TAG] or [REGISTRY/]NAME@sha256:DIGEST, or the name of a preset
(python, node). If the registry's tag names a new image, the new image is pulled.

The credentials come from Docker's configuration (docker login), or from --user and
a password on standard input. A registry with a private address must be listed in
images.registries of the configuration.`,
		Example: "  sandbar images pull python\n  sandbar images pull ghcr.io/acme/tool:1.2\n  echo \"$TOKEN\" | sandbar images pull --user me --password-stdin registry.example/private",
	}, 1, 1, "a reference", a.imagesPull)
	cmd.Flags().String("user", "", "user `name` for the registry; needs --password-stdin")
	cmd.Flags().Bool("password-stdin", false, "read the user's password, one line, from standard input")
	cmd.Flags().String("arch", "", "pull the image for this `GOARCH` (default this machine's)")
	return cmd
}

func (a *app) imagesPull(ctx context.Context, cmd *cobra.Command, cfg *config.Config, s *image.Store, args []string) error {
	name, err := newReference(s, args[0])
	if err != nil {
		return err
	}
	o := platform.PullOptions(cfg)
	o.Fresh = true
	o.Arch, _ = cmd.Flags().GetString("arch")
	if o.Credentials, err = a.credentials(cmd); err != nil {
		return err
	}
	bar := newPullBar(a.stderr, args[0])
	o.Progress = bar.show
	i, err := s.Pull(ctx, name, o)
	bar.end()
	if err != nil {
		return err
	}
	return a.printImage(cmd, i)
}

// presetReference returns the reference of the preset with this name, or else name.
func presetReference(s *image.Store, name string) (string, error) {
	c, err := image.NewCatalogue(image.CatalogueConfig{Store: s, Unrestricted: true})
	if err != nil {
		return "", err
	}
	return c.Reference(name), nil
}

// newReference is presetReference for the name of an image to pull or import. It returns
// a usage error for an invalid reference and for "host".
func newReference(s *image.Store, name string) (string, error) {
	ref, err := presetReference(s, name)
	if err == nil {
		_, err = image.ParseReference(ref)
	}
	if err == nil && name == sandbar.ImageHost {
		err = sandbar.Errorf(sandbar.Invalid, "\"host\" always exists and cannot be pulled or imported")
	}
	if err != nil {
		return "", cli.Fail(cli.ExitUsage, err)
	}
	return ref, nil
}

// credentials reads --user and the password; nil without --user.
func (a *app) credentials(cmd *cobra.Command) (*image.Credentials, error) {
	user, _ := cmd.Flags().GetString("user")
	fromStdin, _ := cmd.Flags().GetBool("password-stdin")
	if (user != "") != fromStdin {
		return nil, usagef(cmd, "--user and --password-stdin go together")
	}
	if !fromStdin {
		return nil, nil
	}
	line, err := bufio.NewReader(io.LimitReader(a.stdin, 64<<10)).ReadString('\n')
	if err != nil && err != io.EOF {
		return nil, sandbar.Errorf(sandbar.Unavailable, "reading the password: %w", err)
	}
	return &image.Credentials{User: user, Password: strings.TrimRight(line, "\r\n")}, nil
}

func (a *app) imagesImportCommand() *cobra.Command {
	cmd := a.withStore(&cobra.Command{
		Use:   "import FILE|DIRECTORY|- NAME [flags]",
		Short: "Make an image from an archive or a directory",
		Long: `Make an image from an archive or a directory and print its ID. The format is
detected: the output of "docker save", an OCI layout, or else the files of a root
file system. Archives may be compressed with gzip or zstd; - reads one from standard
input.

NAME is the name of the new image. With the name of a preset (python, node) the
image replaces the preset.`,
		Example: "  docker save tool:1 | sandbar images import - tool:1\n  sandbar images import rootfs.tar.zst python\n  sandbar images import ./rootfs my-image",
	}, 2, 2, "an archive or a directory, and a name", a.imagesImport)
	cmd.Flags().String("pick", "", "`image` to import from an archive with several: a tag or a digest")
	cmd.Flags().String("arch", "", "import the image for this `GOARCH` (default this machine's)")
	return cmd
}

func (a *app) imagesImport(ctx context.Context, cmd *cobra.Command, _ *config.Config, s *image.Store, args []string) error {
	name, err := newReference(s, args[1])
	if err != nil {
		return err
	}
	o := image.ImportOptions{Name: name}
	o.Pick, _ = cmd.Flags().GetString("pick")
	o.Arch, _ = cmd.Flags().GetString("arch")
	i, err := a.importFrom(ctx, s, args[0], o)
	if err != nil {
		return err
	}
	return a.printImage(cmd, i)
}

func (a *app) importFrom(ctx context.Context, s *image.Store, from string, o image.ImportOptions) (image.Image, error) {
	if from == "-" {
		return s.Import(ctx, cli.Input{Reader: a.stdin}, o)
	}
	info, err := os.Stat(from)
	if err == nil && info.IsDir() {
		return s.ImportDir(ctx, from, o)
	}
	f, err := cli.OpenFile(from)
	if err != nil {
		return image.Image{}, &sandbar.Error{Code: sandbar.Invalid, Message: err.Error()}
	}
	defer f.Close()
	return s.Import(ctx, f, o)
}

func (a *app) imagesRemoveCommand() *cobra.Command {
	return a.withStore(&cobra.Command{
		Use:   "rm NAME...",
		Short: "Remove images that no sandbox uses",
		Long: `Remove images that no sandbox uses. NAME is a reference or an ID. Removing one of
several names keeps the image; removing the last name, or the ID, removes it.`,
	}, 1, -1, "the name of an image", func(ctx context.Context, cmd *cobra.Command, _ *config.Config, s *image.Store, args []string) error {
		report := struct {
			Removed []string `json:"removed"`
			Unnamed []string `json:"unnamed"` // only the name was removed
		}{[]string{}, []string{}}
		var errs []error
		for _, arg := range args {
			name, err := presetReference(s, arg)
			if err != nil {
				return err
			}
			switch removed, err := s.Remove(ctx, name); {
			case err != nil:
				errs = append(errs, err)
			case removed:
				report.Removed = append(report.Removed, arg)
			default:
				report.Unnamed = append(report.Unnamed, arg)
			}
		}
		if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
			errs = append(errs, cli.WriteReport(a.stdout, report))
		} else {
			for _, name := range report.Removed {
				fmt.Fprintf(a.stdout, "removed %s\n", cli.Printable(name))
			}
			for _, name := range report.Unnamed {
				fmt.Fprintf(a.stdout, "removed the name %s; the image has others\n", cli.Printable(name))
			}
		}
		return errors.Join(errs...)
	})
}

// collectedImage is a row in the output of images gc. The JSON names are stable.
type collectedImage struct {
	image.Leftover
	Removed bool   `json:"removed"`
	Error   string `json:"error,omitempty"`
}

func (a *app) imagesCollectCommand() *cobra.Command {
	cmd := a.withStore(&cobra.Command{
		Use:   "gc [flags]",
		Short: "Remove images without a name, and files of killed pulls",
		Long: `Remove images that have no name and that no sandbox uses, and files of killed pulls
and imports. Files that a live process is writing are not touched.

Exit code: 0, or 1 if something could not be removed.`,
	}, 0, 0, "", func(ctx context.Context, cmd *cobra.Command, _ *config.Config, s *image.Store, _ []string) error {
		dryRun, _ := cmd.Flags().GetBool("dry-run")
		found, err := s.GC(ctx, !dryRun)
		if err != nil {
			return err
		}
		rows, failed := []collectedImage{}, false
		for _, l := range found {
			row := collectedImage{Leftover: l, Removed: !dryRun && l.Err == nil}
			if l.Err != nil {
				row.Error, failed = l.Err.Error(), true
			}
			rows = append(rows, row)
		}
		if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
			err = cli.WriteReport(a.stdout, struct {
				DryRun    bool             `json:"dry_run"`
				Leftovers []collectedImage `json:"leftovers"`
			}{dryRun, rows})
		} else {
			err = a.printImageLeftovers(rows)
		}
		if err == nil && failed {
			err = cli.Exit(cli.ExitFailure)
		}
		return err
	})
	cmd.Flags().Bool("dry-run", false, "only show what would be removed")
	return cmd
}

func (a *app) printImageLeftovers(rows []collectedImage) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintln(a.stdout, "no leftovers")
		return err
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KIND\tNAME\tSTATE")
	for _, r := range rows {
		state := "would be removed"
		if r.Removed {
			state = "removed"
		}
		if r.Error != "" {
			state = "not removed: " + r.Error
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", r.Kind, cli.Printable(r.Name), state)
	}
	return w.Flush()
}

// imageNames returns the completions for the name of an image.
func (a *app) imageNames(cmd *cobra.Command) []string {
	names := []string{sandbar.ImageHost + "\tthis machine's programs"}
	cfg, err := a.configuration(cmd)
	if err != nil || cfg.ImagesDir() == "" {
		return names
	}
	if _, err := os.Stat(cfg.ImagesDir()); err != nil {
		return names // completion must not create the directory
	}
	c, err := platform.ImageCatalogue(cfg)
	if err != nil {
		return names
	}
	for _, e := range c.List() {
		switch {
		case e.Installed:
			names = append(names, e.Name+"\t"+e.Ref)
		case e.Substitute:
			names = append(names, e.Name+"\tthis machine's own "+e.Name)
		}
	}
	return names
}
