package vm

import (
	"context"
	"errors"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/driver/vm/guest"
	"github.com/sandbar-dev/sandbar/internal/driver/vm/monitor"
	"github.com/sandbar-dev/sandbar/internal/driver/vm/qemu"
	"github.com/sandbar-dev/sandbar/internal/linux/egress"
	"github.com/sandbar-dev/sandbar/internal/linux/hostenv"
	"github.com/sandbar-dev/sandbar/internal/linux/policy"
	"github.com/sandbar-dev/sandbar/internal/linux/sandboxes"
	"github.com/sandbar-dev/sandbar/internal/linux/spawn"
)

// Name is the driver's name in configuration.
const Name = "vm"

// The options.
const (
	OptionQEMU        = "qemu"
	OptionAccelerator = "accelerator"
	OptionCache       = "cache"
	OptionPaths       = "paths"
	OptionRoot        = "root"
)

// acceleratorAuto is KVM if a machine boots on it, otherwise TCG.
const acceleratorAuto = "auto"

// The range of a memory limit, and the limit of a sandbox without one, in bytes.
const (
	MinMemory     = 64 << 20
	MaxMemory     = 64 << 30
	DefaultMemory = 1 << 30
)

// Factory returns the driver's factory. binary is the agent's program. nil means the running
// binary, which must then call agent.Main when agent.IsAgent, and boot.Main.
func Factory(binary []byte) driver.Factory {
	return driver.Factory{
		Name:    Name,
		Summary: "virtual machines of qemu, each with its own Linux kernel; with KVM or by emulation",
		Options: map[string]string{
			OptionQEMU:        "name or path of qemu-system-x86_64, version 8.2 or later; the one in PATH if empty",
			OptionAccelerator: "kvm, tcg (emulation), or auto, which is kvm if a machine boots on it; auto if empty",
			OptionCache:       "directory of kernels, roots and snapshots; sandbar/vm in the user's cache directory if empty",
			OptionRoot:        "path of a root that `sandbar vm setup` has built, in place of this machine's programs for the image \"host\"",
			OptionPaths:       "colon-separated directories of this machine in the root of the image \"host\", besides /usr, /bin and /lib*",
		},
		New: func(h driver.Host) (driver.Driver, error) { return New(h, binary) },
	}
}

// Driver creates sandboxes that are virtual machines. It is safe for concurrent use.
type Driver struct {
	sandboxes.Base
	host      driver.Host
	binary    []byte // the agent's program
	qemu      *qemu.QEMU
	cache     string
	layout    hostenv.Layout
	filter    []byte // system calls of monitors
	templates *templates
	network   *egress.Host // nil: no sandbox can have a network
	noNetwork string       // why network is nil, "" if it is not

	readyMu   sync.Mutex
	monitor   monitor.Monitor // nil until ready has succeeded, which sets the fields below
	kernel    guest.Kernel
	noKVM     error  // why machines are emulated, nil if by the options
	initramfs string // path
	initSum   string
	initSize  int64 // in bytes

	rootMu sync.Mutex
	roots  map[string]guest.Root // by the image's id, "" for host
	fixed  bool                  // the root of the image "host" is that of the option
}

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Closer    = (*Driver)(nil)
	_ driver.Collector = (*Driver)(nil)
	_ driver.Preparer  = (*Driver)(nil)
)

// New opens the driver. binary is as for Factory. Unsupported: this host lacks a requirement; the
// error's Fix says how to provide it. Invalid: an option is malformed. If the cache directory has
// no guest kernel, Prepare or the first Create prepares one.
func New(h driver.Host, binary []byte) (*Driver, error) {
	names := []string{OptionAccelerator, OptionCache, OptionPaths, OptionQEMU, OptionRoot}
	for name := range h.Options {
		if !slices.Contains(names, name) {
			return nil, &sandbar.Error{Code: sandbar.Invalid, Field: "drivers." + Name + "." + name,
				Message: "the driver vm has no option " + sandbar.Quote(name, 40) + "; it has: " + strings.Join(names, ", ")}
		}
	}
	if runtime.GOARCH != "amd64" {
		return nil, &sandbar.Error{Code: sandbar.Unsupported, Message: "machines of the vm driver run on amd64 only; this is " + runtime.GOARCH, Fix: "use another driver"}
	}
	if _, err := hostenv.ParsePaths(h.Options[OptionPaths]); err != nil {
		return nil, err
	}
	if err := knownAccelerator(h.Options[OptionAccelerator]); err != nil {
		return nil, err
	}
	q, err := qemu.Find(h.Options[OptionQEMU])
	if err != nil {
		return nil, err
	}
	if err := hostenv.Probe(Name); err != nil {
		return nil, err
	}
	d := &Driver{Base: sandboxes.New(h), host: h, binary: binary, qemu: q, roots: map[string]guest.Root{}}
	if d.layout, err = hostenv.ReadLayout(nil); err != nil {
		return nil, err
	}
	if path := h.Options[OptionRoot]; path != "" {
		root, err := guest.OpenRoot(path)
		if err != nil {
			return nil, err
		}
		d.roots[""], d.fixed = root, true
	}
	if err := d.open(); err != nil {
		return nil, errors.Join(err, d.release())
	}
	return d, nil
}

// open opens the resources that release closes.
func (d *Driver) open() (err error) {
	if d.cache, err = guest.OpenCache(d.host.Options[OptionCache]); err != nil {
		return err
	}
	if err = d.Open(d.binary); err != nil {
		return err
	}
	if d.templates, err = newTemplates(d); err != nil {
		return err
	}
	if err = d.openNetwork(); err != nil {
		return err
	}
	d.Describe(Name, driver.BoundaryVM)
	if d.filter, err = policy.Compile(runtime.GOARCH, policy.MonitorRules()); err != nil {
		return sandbar.Errorf(sandbar.Unsupported, "no system-call filter for this processor: %w", err)
	}
	if err = d.Start(); err != nil {
		return err
	}
	if _, err := guest.OpenKernel(d.cache); err == nil {
		if err := d.ready(context.Background()); err != nil {
			return err
		}
	}
	d.describe()
	return nil
}

// ready prepares the guest kernel, which may download a package, and selects the accelerator. After
// an error the next call tries again.
func (d *Driver) ready(ctx context.Context) (err error) {
	d.readyMu.Lock()
	defer d.readyMu.Unlock()
	if d.monitor != nil {
		return nil
	}
	if err := d.prepareKernel(ctx); err != nil {
		return err
	}
	m, err := d.accelerated(d.qemu)
	if err == nil {
		d.monitor = m
	}
	return err
}

// prepareKernel opens or prepares the guest kernel and its initial file system.
func (d *Driver) prepareKernel(ctx context.Context) (err error) {
	if d.kernel, err = guest.OpenKernel(d.cache); sandbar.CodeOf(err) == sandbar.NotFound {
		done := d.host.Wait("preparing a kernel for virtual machines")
		d.kernel, err = guest.Setup(ctx, guest.SetupOptions{Dir: d.cache})
		done()
	}
	if err != nil {
		return err
	}
	if d.initramfs, d.initSum, err = guest.BuildInitramfs(d.cache, d.kernel, d.binary); err != nil {
		return err
	}
	info, err := os.Stat(d.initramfs)
	if err == nil {
		d.initSize = info.Size()
	}
	return err
}

// describe adds what is different from a sandbox of namespaces to Facts.
func (d *Driver) describe() {
	c := &d.Facts
	c.OOMCounted, c.HostPrograms, c.SavesPrograms = false, !d.fixed, true
	c.Setup = setupTimeout
	c.Enforced.Memory, c.Enforced.PIDs = sandbar.EnforcedRuntime, sandbar.EnforcedRuntime
	c.Enforced.CPUShares = d.Groups.Caps().CPUShares
	notes := []string{"the monitor is " + d.qemu.Facts().Build}
	switch {
	case d.monitor == nil:
		notes = append(notes, "no guest kernel is prepared: `sandbar vm setup` or the first sandbox prepares one")
	case d.monitor.Facts().Accelerator == qemu.TCG:
		notes = append(notes, "machines are emulated (TCG), because KVM was not asked for or no machine boots on it: programs run several times slower than on this host")
	}
	if c.Outbound = d.noNetwork == ""; c.Outbound {
		c.Egress = true
	} else {
		notes = append(notes, d.noNetwork)
	}
	c.Notes = append(notes, c.Notes...)
}

// release closes the resources that open has opened.
func (d *Driver) release() error {
	if d.templates != nil {
		d.templates.close()
	}
	return errors.Join(d.closeNetwork(), d.Release())
}

// Close cancels boots in progress and releases the driver's resources. All its sandboxes must be
// destroyed.
func (d *Driver) Close() error {
	if !d.Registry.Shut() {
		return nil
	}
	return d.release()
}

// Caps returns the driver's properties and the limits that it can enforce on this host.
func (d *Driver) Caps() driver.Caps { return d.Facts }

// Prepare prepares the guest kernel and the root of the image "host", which takes a minute once.
func (d *Driver) Prepare(ctx context.Context) error {
	if err := d.ready(ctx); err != nil {
		return err
	}
	_, _, err := d.root(ctx, sandbar.ImageHost)
	return err
}

// refuse returns an error if the driver cannot do or enforce what s requests.
func (d *Driver) refuse(s sandbar.Spec) error {
	if err := egress.Refuse(Name, s.Network, d.noNetwork); err != nil {
		return err
	}
	if m := s.Limits.Memory; m > 0 && (m < MinMemory || m > MaxMemory) {
		return &sandbar.Error{Code: sandbar.Unsupported, Field: "limits.memory",
			Message: "a machine needs a memory limit of 64 MiB to 64 GiB", Fix: "ask for a memory limit in this range"}
	}
	return d.Refuse(s)
}

// Create restores a machine. The first one of a template waits until it has booted.
func (d *Driver) Create(ctx context.Context, id sandbar.ID, s sandbar.Spec) (driver.Sandbox, error) {
	if err := d.refuse(s); err != nil {
		return nil, err
	}
	sb, err := d.make(ctx, id, s, nil, driver.Stdio{})
	if err != nil {
		return nil, err // not sb: a nil *sandbox in the interface would not be nil
	}
	return sb, nil
}

// make restores a machine, in which an interpreter with the streams std waits if i is not nil.
func (d *Driver) make(ctx context.Context, id sandbar.ID, s sandbar.Spec, i *interpreter, std driver.Stdio) (sb *sandbox, err error) {
	t, err := d.template(ctx, s, i)
	if err != nil {
		return nil, err
	}
	r := newResources(d, id)
	err = d.Build(ctx, &r.Resources, func() (err error) {
		sb, err = r.restore(ctx, t, s, std)
		return err
	})
	return sb, err
}

// template returns the template of a Spec and an interpreter, which may be nil. The first call
// waits until a machine has booted.
func (d *Driver) template(ctx context.Context, s sandbar.Spec, i *interpreter) (*template, error) {
	if err := ctx.Err(); err != nil {
		return nil, sandbar.Errorf(sandbar.Canceled, "creating a sandbox: %w", err)
	}
	if err := d.ready(ctx); err != nil {
		return nil, err
	}
	k, err := d.kind(ctx, s)
	if err != nil {
		return nil, err
	}
	k.Interpreter = i
	return d.templates.get(ctx, k)
}

// kind returns the kind of machine for a Spec.
func (d *Driver) kind(ctx context.Context, s sandbar.Spec) (kind, error) {
	root, host, err := d.root(ctx, s.Image)
	if err != nil {
		return kind{}, err
	}
	processors := runtime.NumCPU()
	switch {
	case s.Limits.CPUs > 0:
		processors = min(processors, int(math.Ceil(s.Limits.CPUs)))
	case d.monitor.Facts().Accelerator == qemu.TCG:
		processors = 1 // emulated processors cost much to keep consistent
	}
	k := kind{
		Root: root.Digest, Host: host, Memory: kindMemory(s.Limits), Processors: processors,
		Kernel: d.kernel.Digest, Initramfs: d.initSum, InitramfsSize: d.initSize, Cmdline: guest.Cmdline(guest.Boot{}), Monitor: d.monitor.Facts(), rootPath: root.Path,
	}
	k.bounds = boundsOf(k.machineMemory(), s.Limits)
	return k, nil
}

// kindMemory is the memory of a sandbox's programs, in bytes.
func kindMemory(l sandbar.Limits) int64 {
	memory := l.Memory
	if memory <= 0 {
		memory = DefaultMemory
	}
	return (memory + 1<<20 - 1) &^ (1<<20 - 1)
}

// root returns the root of an image, and whether it is the image "host". It builds the root if the
// cache directory does not have it. The programs of the host are read once in a driver's life.
func (d *Driver) root(ctx context.Context, name string) (root guest.Root, host bool, err error) {
	image, err := hostenv.OpenImage(ctx, d.Images, name)
	if err != nil {
		return guest.Root{}, false, err
	}
	id := ""
	if image != nil {
		id = image.ID
		image.Close()
	}
	d.rootMu.Lock()
	defer d.rootMu.Unlock()
	if r, ok := d.roots[id]; ok {
		if _, err := os.Stat(r.Path); err == nil {
			return r, image == nil && !d.fixed, nil
		}
	}
	open, release, err := guest.Source(ctx, d.Images, name, d.host.Options[OptionPaths])
	if err != nil {
		return guest.Root{}, false, err
	}
	defer release()
	done := func() {}
	tell := sync.OnceFunc(func() { done = d.host.Wait("copying the files of the image into the root file system of machines") })
	r, err := guest.BuildRoot(ctx, d.cache, open, guest.RootOptions{Progress: func(guest.Progress) { tell() }})
	done()
	if err != nil {
		return guest.Root{}, false, err
	}
	d.roots[id] = r
	return r, image == nil, nil
}

// Collect lists the monitors, cgroups and unfinished snapshots that killed daemons have left, and
// the snapshots that nothing has used for unusedFor. With remove it also removes them.
func (d *Driver) Collect(ctx context.Context, remove bool) ([]driver.Leftover, error) {
	found, err := spawn.Collect(ctx, d.Groups, ownerOf, remove)
	if err != nil {
		return found, err
	}
	more, err := d.templates.collect(remove)
	return append(found, more...), err
}

// ownerOf is the spawn.OwnerFunc for all processes that this driver starts on the host.
func ownerOf(args []string) (string, bool) {
	if name, ok := spawn.AgentOwner(args); ok {
		return name, true
	}
	if len(args) < 3 || args[0] != qemu.Program || args[1] != "-name" {
		return "", false
	}
	name, id, ok := strings.Cut(args[2], ".")
	return name, ok && strings.HasPrefix(id, "sb_")
}

// machineName is the name of a machine in its monitor's command line, for ownerOf.
func machineName(owner string, id sandbar.ID) string { return owner + "." + string(id) }
