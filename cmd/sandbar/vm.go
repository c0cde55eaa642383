package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/cli"
	"github.com/sandbar-dev/sandbar/internal/driver/vm/guest"
	"github.com/sandbar-dev/sandbar/internal/server/config"
	"github.com/sandbar-dev/sandbar/internal/server/platform"
)

// vmDriver is the name of the driver in configuration.
const vmDriver = "vm"

func (a *app) vmCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "vm COMMAND",
		Short: "Prepare virtual machines",
		Long:  "Prepare what the virtual machines of the driver vm boot: a Linux kernel and root file systems.",
		Args:  cobra.ArbitraryArgs,
		RunE:  a.group("vm"),
	}
	cmd.AddCommand(a.vmSetupCommand())
	return cmd
}

func (a *app) vmSetupCommand() *cobra.Command {
	var o guest.SetupOptions
	cmd := &cobra.Command{
		Use:   "setup [flags]",
		Short: "Prepare the kernel and a root file system of virtual machines",
		Long: `Prepare the Linux kernel of the driver vm's machines and the root file system of an
image, and print them. What is prepared already is not prepared again.

The kernel is a package that this machine's apt knows: Debian's kernel for clouds,
otherwise the distribution's. It is downloaded, compared with the checksum in apt's
index and unpacked, not installed. Without apt it is an installed kernel. --kernel
names another one, a vmlinux or bzImage for x86-64 with CONFIG_PVH; it needs its
modules, or virtio, EROFS and overlayfs built in.

The root file system of the image "host" has the same files of this machine as the
native driver shows, as a copy. A change of these files makes a new copy.

The results are stored in sandbar/vm of the user's cache directory (XDG_CACHE_HOME),
or in --cache.`,
		Example: "  sandbar vm setup\n  sandbar vm setup --image python\n  sandbar vm setup --kernel /boot/vmlinuz-6.12.1 --modules /lib/modules/6.12.1",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.configuration(cmd)
			if err != nil {
				return err
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			return a.vmSetup(ctx, cmd, cfg, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Vmlinux, "kernel", "", "use this kernel `file`")
	f.StringVar(&o.Modules, "modules", "", "`directory` of the modules of --kernel, /lib/modules/RELEASE")
	f.StringVar(&o.Package, "package", "", "`name` of the kernel package for apt")
	f.BoolVar(&o.Refresh, "refresh", false, "prepare the kernel again, such as after apt-get update")
	f.String("image", sandbar.ImageHost, "`name` of the image whose root file system is prepared")
	f.Bool("kernel-only", false, "prepare no root file system")
	f.String("cache", "", "store the results in this `directory`")
	f.Bool("json", false, "print JSON")
	a.settings(cmd)
	return cmd
}

// vmSetupReport is the output of vm setup --json. The names are stable.
type vmSetupReport struct {
	Directory string       `json:"directory"`
	Kernel    guest.Kernel `json:"kernel"`
	Image     string       `json:"image,omitempty"`
	Root      *guest.Root  `json:"root,omitempty"`
}

func (a *app) vmSetup(ctx context.Context, cmd *cobra.Command, cfg *config.Config, o guest.SetupOptions) error {
	flags := cmd.Flags()
	cache, _ := flags.GetString("cache")
	image, _ := flags.GetString("image")
	if o.Modules != "" && o.Vmlinux == "" {
		return usagef(cmd, "--modules needs --kernel")
	}
	if cache == "" {
		cache = cfg.Drivers[vmDriver]["cache"]
	}
	dir, err := guest.OpenCache(cache)
	if err != nil {
		return cli.Fail(cli.ExitFailure, err)
	}
	bar := &stepBar{}
	if cli.OnTerminal(a.stderr) {
		bar.w = a.stderr
	}
	defer bar.end()
	o.Dir, o.Progress = dir, bar.show
	report := vmSetupReport{Directory: dir}
	if report.Kernel, err = guest.Setup(ctx, o); err != nil {
		return cli.Fail(cli.ExitFailure, err)
	}
	if only, _ := flags.GetBool("kernel-only"); !only {
		r, err := a.vmRoot(ctx, cfg, dir, image, bar.show)
		if err != nil {
			return cli.Fail(cli.ExitFailure, err)
		}
		report.Image, report.Root = image, &r
	}
	bar.end()
	if asJSON, _ := flags.GetBool("json"); asJSON {
		return cli.WriteReport(a.stdout, report)
	}
	return a.printVMSetup(report)
}

// vmRoot builds the root file system of an image.
func (a *app) vmRoot(ctx context.Context, cfg *config.Config, dir, name string, progress func(guest.Progress)) (guest.Root, error) {
	host := platform.Host(cfg, vmDriver, commandLogger(cfg, a.stderr))
	open, release, err := guest.Source(ctx, host.Images, name, cfg.Drivers[vmDriver]["paths"])
	if err != nil {
		return guest.Root{}, err
	}
	defer release()
	return guest.BuildRoot(ctx, dir, open, guest.RootOptions{Progress: progress})
}

func (a *app) printVMSetup(r vmSetupReport) error {
	_, err := fmt.Fprintf(a.stdout, "kernel %s from %s\n", cli.Printable(r.Kernel.Release), cli.Printable(r.Kernel.Source))
	if r.Root != nil && err == nil {
		_, err = fmt.Fprintf(a.stdout, "root of image %s: %d files, %s\n", cli.Printable(r.Image), r.Root.Files, cli.FormatBytes(r.Root.Size))
		if r.Root.Skipped > 0 {
			a.warn("%d files are not in the root: they are not readable, or are devices, FIFOs or sockets", r.Root.Skipped)
		}
	}
	return err
}

// stepBar shows the progress of a setup on one line of a terminal.
type stepBar struct {
	w     io.Writer // nil if not a terminal
	shown bool
}

func (b *stepBar) show(p guest.Progress) {
	if b.w == nil {
		return
	}
	line := cli.Printable(p.Step)
	if p.Total > 0 {
		line += fmt.Sprintf(": %d %% of %s", 100*p.Done/p.Total, cli.FormatBytes(p.Total))
	}
	fmt.Fprintf(b.w, "\r\x1b[K%s", line)
	b.shown = true
}

func (b *stepBar) end() {
	if b.shown {
		fmt.Fprint(b.w, "\r\x1b[K")
		b.shown = false
	}
}
