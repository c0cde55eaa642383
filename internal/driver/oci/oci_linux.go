package oci

import (
	"context"
	"errors"
	"os"
	goruntime "runtime"
	"strings"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/linux/hostenv"
	"github.com/sandbar-dev/sandbar/internal/linux/policy"
	"github.com/sandbar-dev/sandbar/internal/linux/sandboxes"
	"github.com/sandbar-dev/sandbar/internal/linux/spawn"
)

// The drivers' names in configuration.
const (
	Name       = "oci"
	NameGVisor = "gvisor"
)

// Factories returns the factories of the drivers oci and gvisor. binary is the agent's program. nil
// means the running binary, which must then call agent.Main when agent.IsAgent.
func Factories(binary []byte) []driver.Factory {
	options := func(runtime string) map[string]string {
		return map[string]string{
			optionRuntime: "name or path of the container runtime; " + runtime,
			optionArgs:    "arguments for the runtime before its command, separated by blanks",
			optionPaths:   "colon-separated directories of this machine that sandboxes see read-only, besides /usr, /bin and /lib*",
		}
	}
	return []driver.Factory{
		{
			Name: Name, Summary: "containers of runc, crun or runsc, which run without privileges on this machine",
			Options:      options("default: the first of runc, crun and runsc that works on this machine"),
			Alternatives: driver.Alternatives{Option: optionRuntime, Values: []string{string(kindRunc), string(kindCrun), string(kindRunsc)}},
			New:          func(h driver.Host) (driver.Driver, error) { return New(h, Name, binary) },
		},
		{
			Name: NameGVisor, Summary: "gVisor: programs run on a kernel in user space (runsc)",
			Options: options("default: runsc"),
			New:     func(h driver.Host) (driver.Driver, error) { return New(h, NameGVisor, binary) },
		},
	}
}

// Driver creates sandboxes with a container runtime. It is safe for concurrent use.
type Driver struct {
	sandboxes.Base
	name        string
	runtime     *runtime
	runtimeFile *os.File
	layout      hostenv.Layout
	tagResource policy.TagResource // the rlimit in which the agent stores process tags
	profile     *policy.Profile    // system-call filter of the whole container; nil on gVisor
}

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Collector = (*Driver)(nil)
	_ driver.Closer    = (*Driver)(nil)
)

// New opens a driver. name is Name or NameGVisor; binary is as for Factories. Unsupported: this
// host lacks a requirement; the error's Fix says how to provide it. Invalid: an option is
// malformed.
func New(h driver.Host, name string, binary []byte) (*Driver, error) {
	d := &Driver{Base: sandboxes.New(h), name: name, tagResource: policy.TagLocks}
	if err := d.configure(h.Options); err != nil {
		return nil, err
	}
	if err := d.open(binary); err != nil {
		return nil, errors.Join(err, d.release())
	}
	return d, nil
}

// configure parses the options, checks this host, and finds the runtime.
func (d *Driver) configure(options map[string]string) error {
	for k := range options {
		if k != optionRuntime && k != optionArgs && k != optionPaths {
			return &sandbar.Error{Code: sandbar.Invalid, Field: "drivers." + d.name + "." + k,
				Message: "the driver " + d.name + " has no option " + sandbar.Quote(k, 40) + "; it has: " + strings.Join([]string{optionArgs, optionPaths, optionRuntime}, ", ")}
		}
	}
	extra, err := hostenv.ParsePaths(options[optionPaths])
	if err != nil {
		return err
	}
	names := []kind{kindRunc, kindCrun, kindRunsc}
	if d.name == NameGVisor {
		names = []kind{kindRunsc}
	}
	if err := hostenv.Probe(d.name); err != nil {
		return err
	}
	if !d.IDs.Ranged {
		// Without ranges the agent and the programs have the same uid, so the driver could neither
		// limit nor hide processes as it promises.
		return &sandbar.Error{Code: sandbar.Unsupported, Message: "the driver " + d.name + " needs root, and a range of ids for each sandbox",
			Fix: "run the daemon as root, or use the native driver, which works for ordinary users"}
	}
	if d.runtime, err = findRuntime(options[optionRuntime], strings.Fields(options[optionArgs]), names...); err != nil {
		return err
	}
	d.layout, err = hostenv.ReadLayout(extra)
	return err
}

// open opens the resources that release closes.
func (d *Driver) open(binary []byte) (err error) {
	if err = d.Open(binary); err != nil {
		return err
	}
	if d.runtimeFile, err = d.runtime.open(); err != nil {
		return err
	}
	d.describe()
	if err = d.compile(); err != nil {
		return err
	}
	return d.Start()
}

// compile compiles the system-call filters. On gVisor they apply in gVisor's kernel, and the
// container has no profile.
func (d *Driver) compile() (err error) {
	if d.runtime.guestKernel() {
		d.tagResource = policy.TagRSS
	} else if d.profile, err = policy.CompileProfile(goruntime.GOARCH); err != nil {
		return sandbar.Errorf(sandbar.Unsupported, "no system-call filter for this processor: %w", err)
	}
	return d.Compile(d.tagResource)
}

// release closes the resources that open has opened.
func (d *Driver) release() error {
	err := d.Release()
	if d.runtimeFile != nil {
		err = errors.Join(err, d.runtimeFile.Close())
	}
	return err
}

// Close releases the driver's resources. All its sandboxes must be destroyed.
func (d *Driver) Close() error {
	if !d.Registry.Shut() {
		return nil
	}
	return d.release()
}

// Caps returns the driver's properties and the limits that it can enforce on this host.
func (d *Driver) Caps() driver.Caps { return d.Facts }

// describe sets Facts. On gVisor nice values and rlimits of the host have no effect on programs, so
// without a cgroup only the watchdog is left.
func (d *Driver) describe() {
	d.Describe(d.name, driver.BoundaryContainer)
	c := &d.Facts
	c.Notes = append([]string{"the container runtime is " + d.runtime.path + ": " + d.runtime.version}, c.Notes...)
	if !d.runtime.guestKernel() {
		return
	}
	c.Boundary = driver.BoundaryGVisor
	c.Enforced.Memory, c.Enforced.PIDs, c.OOMCounted = sandbar.EnforcedWatchdog, sandbar.EnforcedRuntime, false
	c.Enforced.CPUShares = d.Groups.Caps().CPUShares
	if !d.runtime.kvm {
		c.Notes = append(c.Notes, "gVisor uses its systrap platform: /dev/kvm does not exist, or not every user may open it")
	}
}

// memorySlack returns the difference between the cgroup's memory limit and the sandbox's, which is
// memory, in bytes. On gVisor the agent's watchdog enforces the sandbox's limit.
func (d *Driver) memorySlack(memory int64) int64 {
	if d.runtime.guestKernel() {
		return policy.GVisorSlack(memory)
	}
	return 0
}

// refuse returns Unsupported if s asks for a network or a limit that this host cannot provide.
func (d *Driver) refuse(s sandbar.Spec) error {
	if s.Network != "" && s.Network != sandbar.NetworkNone {
		return &sandbar.Error{Code: sandbar.Unsupported, Field: "network",
			Message: "the driver " + d.name + " supports only sandboxes without a network", Fix: "use the native driver for sandboxes with a network"}
	}
	return d.Refuse(s)
}

// Create creates a sandbox; see driver.Driver.
func (d *Driver) Create(ctx context.Context, id sandbar.ID, s sandbar.Spec) (sandbox driver.Sandbox, err error) {
	if err := d.refuse(s); err != nil {
		return nil, err
	}
	r := &resources{Resources: sandboxes.Resources{ID: id}, d: d}
	err = d.Build(ctx, &r.Resources, func() (err error) {
		sandbox, err = r.build(ctx, s)
		return err
	})
	if err != nil {
		return nil, err
	}
	return sandbox, nil
}

// containerID returns the id of a container for the runtime: the daemon's id and the sandbox's id.
func containerID(owner string, id sandbar.ID) string { return owner + "." + string(id) }

// Collect lists the stages, runtimes and cgroups that killed daemons have left. With remove it also
// kills and removes them.
func (d *Driver) Collect(ctx context.Context, remove bool) ([]driver.Leftover, error) {
	return spawn.Collect(ctx, d.Groups, ownerOf, remove)
}

// ownerOf is the spawn.OwnerFunc for all processes that this driver starts on the host.
func ownerOf(args []string) (string, bool) {
	if name, ok := spawn.AgentOwner(args); ok {
		return name, true
	}
	if k := kind(args[0]); k != kindRunc && k != kindCrun && k != kindRunsc {
		return "", false
	}
	name, id, ok := strings.Cut(args[len(args)-1], ".")
	return name, ok && strings.HasPrefix(id, "sb_")
}
