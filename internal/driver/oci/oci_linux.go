package oci

import (
	"context"
	"errors"
	"log/slog"
	"os"
	goruntime "runtime"
	"strings"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/linux/cgroup"
	"github.com/sandbar-dev/sandbar/internal/linux/daemonid"
	"github.com/sandbar-dev/sandbar/internal/linux/hostenv"
	"github.com/sandbar-dev/sandbar/internal/linux/policy"
	"github.com/sandbar-dev/sandbar/internal/linux/spawn"
)

// The drivers' names in configuration.
const (
	Name       = "oci"
	NameGVisor = "gvisor"
)

// Factories returns the driver of any runtime, and that of gVisor. binary is the
// agent's program; nil has the running binary start itself as the agent (it must
// then call agent.Main when agent.IsAgent).
func Factories(binary []byte) []driver.Factory {
	options := func(runtime string) map[string]string {
		return map[string]string{
			optionRuntime: "name or path of the container runtime; " + runtime,
			optionArgs:    "arguments for the runtime, separated by blanks, that come before its command",
			optionPaths:   "colon-separated directories of this machine that sandboxes see read-only, besides /usr, /bin and /lib*",
		}
	}
	return []driver.Factory{
		{
			Name: Name, Summary: "containers by runc, crun or runsc, which run without rights over this machine",
			Options:      options("default: the first of runc, crun and runsc that works here"),
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

// Driver makes sandboxes with a container runtime.
type Driver struct {
	name     string
	log      *slog.Logger
	owner    string // names this process, see package daemonid
	runtime  *runtime
	mitigate bool     // see wire.Setup
	program  *os.File // the runtime's
	ids      spawn.IDs
	host     hostenv.Layout
	images   driver.Images // nil: there are none
	cgroups  *cgroup.Manager
	caps     driver.Caps
	exe      *spawn.Program
	spawner  *spawn.Spawner
	uids     *spawn.Ranges

	mark          policy.TagResource
	filter        []byte          // of the agent and all programs
	programFilter []byte          // of programs besides
	profile       *policy.Profile // the runtime's own, coarser filter
	roster        driver.Roster
}

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Collector = (*Driver)(nil)
	_ driver.Closer    = (*Driver)(nil)
)

// New makes the driver called name, Name or NameGVisor, or says with Unsupported
// what this host lacks and how to get it.
func New(h driver.Host, name string, binary []byte) (*Driver, error) {
	d := &Driver{name: name, log: h.Logger, images: h.Images,
		mitigate: !h.Speculation, ids: spawn.DetectIDs(), uids: spawn.NewRanges(), mark: policy.TagLocks}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if err := d.configure(h.Options); err != nil {
		return nil, err
	}
	if err := d.open(binary); err != nil {
		return nil, errors.Join(err, d.release())
	}
	return d, nil
}

// configure reads the driver's options and looks for what they name.
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
	if !d.ids.Ranged {
		// The container's first program and the others would be one user, whose
		// processes nothing here can count and hide as the driver promises.
		return &sandbar.Error{Code: sandbar.Unsupported, Message: "the driver " + d.name + " needs root, with ids to give to its sandboxes",
			Fix: "run the daemon as root, or use the native driver, which an ordinary user can"}
	}
	if d.runtime, err = findRuntime(options[optionRuntime], strings.Fields(options[optionArgs]), names...); err != nil {
		return err
	}
	d.host, err = hostenv.ReadLayout(extra)
	return err
}

// open opens what release closes.
func (d *Driver) open(binary []byte) (err error) {
	if d.owner, err = daemonid.Self(); err != nil {
		return err
	}
	if d.cgroups, err = cgroup.Detect(d.owner); err != nil {
		return err
	}
	if d.exe, err = spawn.OpenProgram(binary, d.ids); err != nil {
		return err
	}
	if d.program, err = d.runtime.open(); err != nil {
		return err
	}
	d.caps = d.describe()
	if err := d.compile(); err != nil {
		return sandbar.Errorf(sandbar.Unsupported, "no system-call filter for this processor: %w", err)
	}
	d.spawner, err = spawn.New(d.exe, d.owner)
	return err
}

// compile makes the filters of system calls. gVisor's own kernel, which is what
// a program's calls meet there, answers to the same as the host's, but for the
// runtime's coarser filter.
func (d *Driver) compile() (err error) {
	filter := policy.CompileSeccomp
	if d.caps.Enforced.Memory == sandbar.EnforcedWatchdog {
		filter = policy.CompileSeccompUncounted
	}
	if d.filter, err = filter(goruntime.GOARCH); err != nil {
		return err
	}
	if d.runtime.guestKernel() {
		d.mark = policy.TagRSS
	} else if d.profile, err = policy.CompileProfile(goruntime.GOARCH); err != nil {
		return err
	}
	d.programFilter, err = policy.CompilePrograms(goruntime.GOARCH, d.mark)
	return err
}

// release closes what open has opened, the last first: the spawner is in the
// control groups.
func (d *Driver) release() (err error) {
	if d.spawner != nil {
		d.spawner.Close()
	}
	if d.exe != nil {
		err = d.exe.Close()
	}
	if d.program != nil {
		err = errors.Join(err, d.program.Close())
	}
	if d.cgroups != nil {
		err = errors.Join(err, d.cgroups.Close())
	}
	return err
}

// Close releases what the driver holds; all its sandboxes must be destroyed.
func (d *Driver) Close() error {
	if !d.roster.Shut() {
		return nil
	}
	return d.release()
}

// Caps tells what this driver is and can enforce on this host.
func (d *Driver) Caps() driver.Caps { return d.caps }

// describe computes Caps from what was found.
func (d *Driver) describe() driver.Caps {
	e := d.cgroups.Caps()
	c := driver.Caps{
		Name: d.name, Boundary: driver.BoundaryContainer,
		Enforced: sandbar.Enforcements{
			Memory: e.Memory, CPUs: e.CPUs, CPUShares: e.CPUShares, PIDs: e.PIDs,
			Disk: sandbar.EnforcedMount, Inodes: sandbar.EnforcedMount, Files: sandbar.EnforcedRlimit,
		},
		OOMCounted:   e.Memory != sandbar.EnforcedNone && e.OOMCounted,
		PrivateFiles: true, PrivateNetwork: true, PrivateProcesses: true, PrivateQuotas: true,
		HostPrograms: true,
		Notes:        append([]string{"the container runtime is " + d.runtime.path + ": " + d.runtime.version}, e.Notes...),
	}
	if d.runtime.guestKernel() {
		c.Boundary = driver.BoundaryGVisor
		c.Enforced.Memory, c.Enforced.PIDs, c.OOMCounted = sandbar.EnforcedWatchdog, sandbar.EnforcedRuntime, false
		if !d.runtime.kvm {
			c.Notes = append(c.Notes, "gVisor intercepts system calls by its systrap platform: this host has no virtualization that a process without rights may use (/dev/kvm)")
		}
		return c
	}
	if c.Enforced.Memory == sandbar.EnforcedNone {
		c.Enforced.Memory = sandbar.EnforcedWatchdog
	}
	if c.Enforced.CPUShares == sandbar.EnforcedNone {
		c.Enforced.CPUShares = sandbar.EnforcedNice
	}
	if c.Enforced.PIDs == sandbar.EnforcedNone && !d.ids.Ranged {
		c.Enforced.PIDs = sandbar.EnforcedRlimit
	}
	return c
}

// What gVisor's kernel and the bursts between two looks of the agent may take
// together, beyond what that kernel had at the beginning: nearly a quarter of the
// sandbox's memory, but not less than minSlack and not more than maxSlack bytes.
const (
	minSlack = 12 << 20
	maxSlack = 48 << 20
)

// slack is how far the control group's limit of memory lies above the sandbox's,
// which is memory, in bytes. On gVisor the agent holds that, and needs the time of
// a look.
func (d *Driver) slack(memory int64) int64 {
	if d.runtime.guestKernel() {
		return min(max(memory/4-memory/64, minSlack), maxSlack)
	}
	return 0
}

// refuse returns an error if s asks for what cannot be done or enforced here.
func (d *Driver) refuse(s sandbar.Spec) error {
	if s.Network != "" && s.Network != sandbar.NetworkNone {
		return &sandbar.Error{Code: sandbar.Unsupported, Field: "network",
			Message: "the driver " + d.name + " makes sandboxes without a network only", Fix: "use the native driver for sandboxes that reach out"}
	}
	for k, v := range s.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return &sandbar.Error{Code: sandbar.Invalid, Field: "env",
				Message: "environment variable " + sandbar.Quote(k, 40) + ": a name is not empty and has no \"=\", and neither name nor value has a NUL"}
		}
	}
	if s.AllowDegraded {
		return nil
	}
	for _, l := range []struct {
		field string
		set   bool
		by    sandbar.Enforcement
	}{
		{"limits.memory", s.Limits.Memory > 0, d.caps.Enforced.Memory},
		{"limits.cpus", s.Limits.CPUs > 0, d.caps.Enforced.CPUs},
		{"limits.cpu_shares", s.Limits.CPUShares > 0, d.caps.Enforced.CPUShares},
		{"limits.pids", s.Limits.PIDs > 0, d.caps.Enforced.PIDs},
	} {
		if l.set && l.by == sandbar.EnforcedNone || l.field == "limits.cpu_shares" && l.by == sandbar.EnforcedNice && s.Limits.CPUShares > 1024 {
			return &sandbar.Error{Code: sandbar.Unsupported, Field: l.field,
				Message: "this host cannot enforce " + l.field + " as asked: no cgroup with that controller can be used",
				Fix:     "run `sandbar doctor` for what is missing, or allow degraded limits"}
		}
	}
	return nil
}

// openImage finds the root of a sandbox: nil for the host's own programs.
func (d *Driver) openImage(ctx context.Context, name string) (*driver.Image, error) {
	image, err := hostenv.OpenImage(ctx, d.images, name)
	if image == nil || err != nil {
		return nil, err
	}
	if note := hostenv.ImageNote(); note != "" {
		image.Close()
		return nil, &sandbar.Error{Code: sandbar.Unsupported, Field: "image", Message: note, Fix: "use the image \"host\", or a newer kernel"}
	}
	return image, nil
}

// Create makes a sandbox.
func (d *Driver) Create(ctx context.Context, id sandbar.ID, s sandbar.Spec) (driver.Sandbox, error) {
	if err := d.refuse(s); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, sandbar.Errorf(sandbar.Canceled, "creating a sandbox: %w", err)
	}
	if err := d.roster.Claim(string(id)); err != nil {
		return nil, err
	}
	b := &box{d: d, id: id}
	box, err := b.make(ctx, s)
	if err != nil {
		// What was made is unmade in any case, so not within ctx.
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		defer cancel()
		if uerr := b.destroy(clean); uerr != nil {
			d.log.Error("a sandbox that failed could not be removed", "sandbox", id, "error", uerr)
		}
		return nil, err
	}
	return box, nil
}

// containerID is what the runtime calls a container: its owner's name and the
// sandbox's id.
func containerID(owner string, id sandbar.ID) string { return owner + "." + string(id) }

// Collect finds, and with remove ends, what daemons that were killed have left:
// stages and runtimes that have not noticed yet, and the groups of their
// sandboxes.
func (d *Driver) Collect(ctx context.Context, remove bool) ([]driver.Leftover, error) {
	return spawn.Collect(ctx, d.cgroups, owned, remove)
}

// owned is spawn.Owned for all that this driver starts on the host.
func owned(args []string) (string, bool) {
	if name, ok := spawn.Agents(args); ok {
		return name, true
	}
	if k := kind(args[0]); k != kindRunc && k != kindCrun && k != kindRunsc {
		return "", false
	}
	name, id, ok := strings.Cut(args[len(args)-1], ".")
	return name, ok && strings.HasPrefix(id, "sb_")
}
