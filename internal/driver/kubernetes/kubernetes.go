package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/driver/kubernetes/agentimage"
	"github.com/sandbar-dev/sandbar/internal/driver/sweep"
	"github.com/sandbar-dev/sandbar/internal/linux/policy"
)

// Name is the driver's name in configuration and in Caps.
const Name = "kubernetes"

// Factory returns the driver's factory. programs are those of the image that is the default of the
// option agent_image.
func Factory(programs agentimage.Programs) driver.Factory {
	return driver.Factory{
		Name:    Name,
		Summary: "pods of a Kubernetes cluster",
		Options: optionHelp(),
		// New makes two pods and takes seconds, in a cluster that may not be meant for Sandbar.
		OnlyNamed: true,
		New: func(h driver.Host) (driver.Driver, error) {
			h, err := withAgentImage(h, programs)
			if err != nil {
				return nil, err
			}
			return New(h)
		},
	}
}

// Driver creates sandboxes that are pods. It implements driver.Driver, driver.Collector and
// driver.Closer.
type Driver struct {
	log      *slog.Logger
	opt      options
	mitigate bool          // see wire.Setup
	maxAge   time.Duration // see driver.Host
	api      *api
	gateway  *gateway
	pods     *podWatch
	filters  filters
	tag      policy.TagResource
	guest    bool // the pods run on gVisor; constant after New
	tried    bool // guest is what a pod said, and not what the runtime class's name says
	caps     driver.Caps
	sweeper  *sweep.Sweeper
	registry driver.Registry // of ids of sandboxes

	stop    context.CancelFunc // of everything in the background
	running sync.WaitGroup
}

// filters are the seccomp filters that the agent installs.
type filters struct{ all, programs []byte }

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Collector = (*Driver)(nil)
	_ driver.Closer    = (*Driver)(nil)
)

// remoteCreates is the number of pods that are created at once in advance. Kubelets start few at a
// time, and a larger number would only make the first one late.
const remoteCreates = 16

// openBound bounds New: it makes two pods, whose images nodes may have to pull first.
const openBound = 5 * time.Minute

// New finds the cluster and determines what it enforces. Invalid: an option is wrong. Unsupported,
// with a fix: the cluster cannot be used.
func New(h driver.Host) (*Driver, error) {
	opt, err := parseOptions(h.Options)
	if err != nil {
		return nil, err
	}
	a, err := openAPI(opt)
	if err != nil {
		return nil, err
	}
	d := &Driver{log: h.Logger, opt: opt, mitigate: !h.Speculation, maxAge: h.MaxAge, api: a}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithTimeout(context.Background(), openBound)
	defer cancel()
	if err := d.open(ctx); err != nil {
		e := *sandbar.AsError(errors.Join(err, d.Close()))
		if e.Code != sandbar.Invalid {
			e.Code = sandbar.Unsupported // the code for a driver that cannot be opened
		}
		return nil, &e
	}
	return d, nil
}

// open makes the daemon's objects and determines the cluster's properties.
func (d *Driver) open(ctx context.Context) (err error) {
	// The nodes' processor is that of the agent's image, which is known only in a pod. One of another
	// architecture refuses the filters, and so the canary.
	d.guest = gVisorName(d.opt.runtimeClass)
	if err := d.describe(); err != nil {
		return err
	}
	if err := d.api.checkRights(ctx, d.rights()); err != nil {
		return err
	}
	background, stop := context.WithCancel(context.Background())
	d.stop = stop
	d.sweeper = sweep.New(d.sweep)
	if d.gateway, err = newGateway(d.api, d.log); err != nil {
		return err
	}
	if err := d.gateway.open(ctx); err != nil {
		return err
	}
	d.pods = newPodWatch(d.api, d.gateway.selector(), d.log)
	d.running.Go(func() { d.pods.run(background) })
	d.running.Go(func() { d.gateway.keep(background) })
	if err := d.pods.synced(ctx); err != nil {
		return err
	}
	return d.tryOut(ctx)
}

// describe sets the system-call filters, and what the driver enforces on every cluster. tryOut
// completes it. On gVisor the filters apply in its kernel.
func (d *Driver) describe() (err error) {
	d.caps = driver.Caps{
		Name: Name, Boundary: driver.BoundaryContainer,
		Enforced: sandbar.Enforcements{
			Memory: sandbar.EnforcedCgroup2, CPUs: sandbar.EnforcedCgroup2, PIDs: sandbar.EnforcedRlimit,
			Disk: sandbar.EnforcedMount, Inodes: sandbar.EnforcedNone, Files: sandbar.EnforcedRlimit, CPUShares: sandbar.EnforcedNone,
		},
		PrivateFiles: true, PrivateNetwork: true, PrivateProcesses: true,
		Terminals: true,
		Setup:     createBound, RemoteCreates: remoteCreates,
		Notes: []string{"Kubernetes at " + d.api.host + ", namespace " + d.api.namespace},
	}
	compile, tag := policy.CompileSeccomp, policy.TagLocks
	if d.guest {
		d.caps.Boundary = driver.BoundaryGVisor
		d.caps.Enforced.Memory, d.caps.Enforced.CPUs = sandbar.EnforcedWatchdog, sandbar.EnforcedRuntime
		compile, tag = policy.CompileSeccompUncounted, policy.TagRSS
	}
	if d.filters.all, err = compile(runtime.GOARCH); err == nil {
		d.filters.programs, err = policy.CompilePrograms(runtime.GOARCH, tag)
	}
	if err != nil {
		return sandbar.Errorf(sandbar.Unsupported, "no system-call filter for this processor: %w", err)
	}
	d.tag = tag
	return nil
}

// gVisorName reports whether a runtime class is gVisor's by its name. A pod tells whether it is.
func gVisorName(class string) bool {
	return strings.Contains(class, "gvisor") || strings.Contains(class, "runsc")
}

// Caps returns the driver's properties and what the cluster enforces.
func (d *Driver) Caps() driver.Caps {
	c := d.caps
	c.Notes = slices.Clone(c.Notes)
	return c
}

// closeBound bounds the time in which Close removes the daemon's objects.
const closeBound = 30 * time.Second

// Close removes the daemon's objects from the cluster. All sandboxes must be destroyed. What it
// cannot remove because the API server does not answer is removed after the end of the Lease.
func (d *Driver) Close() error {
	if !d.registry.Shut() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeBound)
	defer cancel()
	var err error
	if d.sweeper != nil && d.sweeper.Close(ctx) {
		err = sandbar.Errorf(sandbar.Unavailable, "the API server at %s does not answer; pods of failed creations may stay until the Lease has expired", sandbar.Quote(d.api.host, 200))
	}
	if d.stop != nil {
		d.stop()
	}
	d.running.Wait()
	if d.gateway != nil {
		err = errors.Join(err, d.gateway.close(ctx))
	}
	d.api.close()
	return err
}

// Create creates a sandbox. Unsupported: the cluster does not enforce a limit. NotFound: it has not
// the image. Exhausted: no node has room. Unavailable: the API server does not answer in time.
func (d *Driver) Create(ctx context.Context, id sandbar.ID, s sandbar.Spec) (driver.Sandbox, error) {
	if _, err := sandbar.ParseID(string(id)); err != nil {
		return nil, err
	}
	if err := d.refuse(s); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, sandbar.Errorf(sandbar.CodeOfContext(ctx), "creating a sandbox: %w", err)
	}
	if err := d.registry.Claim(string(id)); err != nil {
		return nil, err
	}
	b := d.newResources(id)
	sb, err := b.create(ctx, s)
	if err != nil {
		b.undo(ctx)
		return nil, err
	}
	return sb, nil
}

// Bounds of limits.
const (
	minMemory = 16 << 20 // bytes; the agent and its connection need a part
	minCPUs   = 0.01
)

// refuse returns an error if the cluster cannot do or enforce what s requests.
func (d *Driver) refuse(s sandbar.Spec) error {
	switch {
	case s.Network == "" || s.Network == sandbar.NetworkNone:
	case s.Network == sandbar.NetworkOutbound:
		return &sandbar.Error{Code: sandbar.Unsupported, Field: "network", Message: "the driver kubernetes supports only sandboxes without a network",
			Fix: "use the native driver for sandboxes with a network"}
	default:
		return &sandbar.Error{Code: sandbar.Invalid, Field: "network",
			Message: "network " + sandbar.Quote(string(s.Network), 40) + " is unknown; the networks are \"none\" and \"outbound\""}
	}
	if err := sandbar.CheckEnv(s.Env); err != nil {
		return err
	}
	if s.Limits.Memory > 0 && s.Limits.Memory < minMemory {
		return &sandbar.Error{Code: sandbar.Unsupported, Field: "limits.memory", Message: "the memory limit of a pod is at least 16 MiB", Fix: "request more"}
	}
	if s.Limits.CPUs > 0 && s.Limits.CPUs < minCPUs {
		return &sandbar.Error{Code: sandbar.Unsupported, Field: "limits.cpus", Message: "the limit of processors of a pod is at least 0.01", Fix: "request more"}
	}
	if err := d.checkImage(s.Image); err != nil {
		return err
	}
	if s.AllowDegraded {
		return nil
	}
	if !d.caps.PrivateNetwork {
		return &sandbar.Error{Code: sandbar.Unsupported, Field: "network", Message: "the cluster's network does not obey NetworkPolicy objects, so programs would reach other pods and the API server",
			Fix: "install a network plugin that enforces them (such as Calico or Cilium), or allow degraded limits"}
	}
	if name := driver.Unenforced(s.Limits, d.caps.Enforced); name != "" {
		return &sandbar.Error{Code: sandbar.Unsupported, Field: "limits." + name, Message: "nothing in the cluster enforces limits." + name,
			Fix: "leave the limit out (unlimited), or allow degraded limits"}
	}
	return nil
}

// checkImage returns NotFound for an image that the operator does not allow.
func (d *Driver) checkImage(name string) error {
	if name == "" || name == sandbar.ImageHost || d.opt.preset(name) != "" || slices.Contains(d.opt.images, name) || slices.Contains(d.opt.images, anyImage) {
		return nil
	}
	return &sandbar.Error{Code: sandbar.NotFound, Field: "image",
		Message: "image " + sandbar.Quote(name, 100) + " is not known; there is \"" + sandbar.ImageHost + "\", which is " + sandbar.Quote(d.opt.image, 100) +
			", and what the option " + optionImages + " of the driver kubernetes names",
		Fix: "use the image \"" + sandbar.ImageHost + "\", or add it to that option"}
}

// image returns the image of a sandbox.
func (d *Driver) image(name string) string {
	if name == "" || name == sandbar.ImageHost {
		return d.opt.image
	}
	return cmp.Or(d.opt.preset(name), name)
}

// podName returns the name of a sandbox's pod: an id without characters that names may not have.
func podName(id string) string {
	return "sandbar-" + strings.ToLower(strings.ReplaceAll(id, "_", "-"))
}
