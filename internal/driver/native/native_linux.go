package native

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/linux/cgroup"
	"github.com/sandbar-dev/sandbar/internal/linux/daemonid"
	"github.com/sandbar-dev/sandbar/internal/linux/hostenv"
	"github.com/sandbar-dev/sandbar/internal/linux/policy"
	"github.com/sandbar-dev/sandbar/internal/linux/spawn"
)

// Name is the driver's name in configuration.
const Name = "native"

// Factory returns the native driver's factory. binary is the agent's program;
// nil has the running binary start itself as the agent (it must then call
// agent.Main when agent.IsAgent).
func Factory(binary []byte) driver.Factory {
	return driver.Factory{
		Name:    Name,
		Summary: "Linux namespaces, with this machine's own programs; nothing to install",
		Options: map[string]string{
			optionPaths: "colon-separated directories of this machine that sandboxes see read-only, besides /usr, /bin and /lib*; for interpreters in /opt, say",
		},
		New: func(h driver.Host) (driver.Driver, error) { return New(h, binary) },
	}
}

// Driver makes sandboxes out of namespaces.
type Driver struct {
	log      *slog.Logger
	mitigate bool   // see wire.Setup
	cookies  bool   // the kernel gives forks core scheduling cookies of their own
	mode     string // how the agent is spoken to: agent.ModeSocket, and in tests also agent.ModeStream
	forked   bool   // in tests: templates make copies without keepers
	owner    string // names this process, see package daemonid
	ids      spawn.IDs
	host     hostenv.Layout
	filter   []byte // of the agent and all programs
	programs []byte // of programs besides
	cgroups  *cgroup.Manager
	caps     driver.Caps
	exe      *spawn.Program
	spawner  *spawn.Spawner
	uids     *spawn.Ranges
	net      network
	images   driver.Images // nil: there are none
	roster   driver.Roster
}

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Collector = (*Driver)(nil)
	_ driver.Closer    = (*Driver)(nil)
)

// New makes the driver, or says with Unsupported what this host lacks and how
// to get it.
func New(h driver.Host, binary []byte) (*Driver, error) {
	extra, err := parseOptions(h.Options)
	if err != nil {
		return nil, err
	}
	if err := hostenv.Probe(Name); err != nil {
		return nil, err
	}
	d := &Driver{log: h.Logger, mode: agent.ModeSocket, ids: spawn.DetectIDs(), images: h.Images, mitigate: !h.Speculation}
	d.cookies = d.mitigate && coreScheduling()
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if d.host, err = hostenv.ReadLayout(extra); err != nil {
		return nil, err
	}
	if err := d.open(h, binary); err != nil {
		return nil, errors.Join(err, d.release())
	}
	return d, nil
}

// open opens what release closes.
func (d *Driver) open(h driver.Host, binary []byte) (err error) {
	if d.owner, err = daemonid.Self(); err != nil {
		return err
	}
	if d.cgroups, err = cgroup.Detect(d.owner); err != nil {
		return err
	}
	if d.exe, err = spawn.OpenProgram(binary, d.ids); err != nil {
		return err
	}
	if d.net, err = openNetwork(h, d.ids); err != nil {
		return err
	}
	d.uids, d.caps = spawn.NewRanges(), d.describe()
	if d.filter, d.programs, err = compileFilters(d.caps); err != nil {
		return err
	}
	d.spawner, err = spawn.New(d.exe, d.owner)
	return err
}

// release closes what open has opened, the last first: the spawner is in the
// control groups.
func (d *Driver) release() error {
	if d.spawner != nil {
		d.spawner.Close()
	}
	err := d.net.close()
	if d.exe != nil {
		_ = d.exe.Close()
	}
	if d.cgroups != nil {
		err = errors.Join(err, d.cgroups.Close())
	}
	return err
}

// compileFilters makes the system-call filters, that of all and what programs
// have besides. Where the watchdog counts memory the first also forbids the
// kinds of memory that the watchdog cannot see.
func compileFilters(c driver.Caps) (all, programs []byte, err error) {
	compile := policy.CompileSeccomp
	if c.Enforced.Memory == sandbar.EnforcedWatchdog {
		compile = policy.CompileSeccompUncounted
	}
	if all, err = compile(runtime.GOARCH); err == nil {
		programs, err = policy.CompilePrograms(runtime.GOARCH, policy.TagLocks)
	}
	if err != nil {
		return nil, nil, sandbar.Errorf(sandbar.Unsupported, "no system-call filter for this processor: %w", err)
	}
	return all, programs, nil
}

// Close releases what the driver holds; all its sandboxes must be destroyed.
func (d *Driver) Close() error {
	if !d.roster.Shut() {
		return nil
	}
	return d.release()
}

// Caps tells what this driver is and can enforce on this host.
func (d *Driver) Caps() driver.Caps {
	c := d.caps
	c.Outbound = d.canReachOut()
	return c
}

// describe computes Caps from what was found.
func (d *Driver) describe() driver.Caps {
	e := d.cgroups.Caps()
	c := driver.Caps{
		Name: Name, Boundary: driver.BoundaryNamespaces,
		Enforced: sandbar.Enforcements{
			Memory: e.Memory, CPUs: e.CPUs, CPUShares: e.CPUShares, PIDs: e.PIDs,
			Disk: sandbar.EnforcedMount, Inodes: sandbar.EnforcedMount, Files: sandbar.EnforcedRlimit,
		},
		OOMCounted:   e.Memory != sandbar.EnforcedNone && e.OOMCounted,
		PrivateFiles: true, PrivateNetwork: true, PrivateProcesses: true, PrivateQuotas: true,
		HostPrograms: true,
		Notes:        e.Notes,
	}
	for _, note := range []string{hostenv.ImageNote(), hostenv.LocalNote(), d.net.note} {
		if note != "" {
			c.Notes = append(c.Notes, note)
		}
	}
	// What no cgroup holds is held by weaker means where there are any.
	if c.Enforced.Memory == sandbar.EnforcedNone {
		c.Enforced.Memory = sandbar.EnforcedWatchdog
	}
	if c.Enforced.CPUShares == sandbar.EnforcedNone {
		if n, ok := hostenv.Sysctl("/proc/sys/kernel/sched_autogroup_enabled"); ok && n == 1 {
			c.Notes = append(c.Notes, "weights cannot be held: no control group has the cpu controller, and the kernel weighs sessions rather than nice values (as root: sysctl kernel.sched_autogroup_enabled=0)")
		} else {
			c.Enforced.CPUShares = sandbar.EnforcedNice
		}
	}
	if c.Enforced.PIDs == sandbar.EnforcedNone && hostenv.KernelAtLeast(5, 14) && !d.ids.Ranged {
		// Since 5.14 RLIMIT_NPROC counts in the sandbox's own user namespace.
		c.Enforced.PIDs = sandbar.EnforcedRlimit
	}
	return c
}

// refuse returns an error if s asks for what cannot be done or enforced here.
func (d *Driver) refuse(s sandbar.Spec) error {
	if err := d.refuseNetwork(s.Network); err != nil {
		return err
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
		if l.set && l.by == sandbar.EnforcedNone {
			return &sandbar.Error{Code: sandbar.Unsupported, Field: l.field,
				Message: "this host cannot enforce " + l.field + ": no cgroup with that controller can be used",
				Fix:     "run `sandbar doctor` for what is missing, or allow degraded limits"}
		}
	}
	if s.Limits.CPUShares > 1024 && d.caps.Enforced.CPUShares == sandbar.EnforcedNice {
		return &sandbar.Error{Code: sandbar.Unsupported, Field: "limits.cpu_shares",
			Message: "this host holds weights by nice values, which can only lower one: at most 1024 is possible",
			Fix:     "run `sandbar doctor` for what is missing, or allow degraded limits"}
	}
	return nil
}

// Create makes a sandbox.
func (d *Driver) Create(ctx context.Context, id sandbar.ID, s sandbar.Spec) (driver.Sandbox, error) {
	box, _, err := d.create(ctx, id, s, 0)
	if err != nil {
		return nil, err
	}
	return box, nil
}

// create is Create with another owner of the sandbox's user namespace than an id of the
// sandbox's own range, if owner is not 0.
func (d *Driver) create(ctx context.Context, id sandbar.ID, s sandbar.Spec, owner int) (*client.Sandbox, *box, error) {
	if err := d.refuse(s); err != nil {
		return nil, nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, sandbar.Errorf(sandbar.Canceled, "creating a sandbox: %w", err)
	}
	if err := d.roster.Claim(string(id)); err != nil {
		return nil, nil, err
	}
	b := &box{d: d, id: id, owner: owner}
	box, err := b.make(ctx, s)
	if err != nil {
		// What was made is unmade in any case, so not within ctx.
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		defer cancel()
		if uerr := b.destroy(clean); uerr != nil {
			d.log.Error("a sandbox that failed could not be removed", "sandbox", id, "error", uerr)
		}
		return nil, nil, err
	}
	return box, b, nil
}

// Collect finds, and with remove ends, what daemons that were killed have left:
// agents that have not noticed yet, and the groups of their sandboxes.
func (d *Driver) Collect(ctx context.Context, remove bool) ([]driver.Leftover, error) {
	return spawn.Collect(ctx, d.cgroups, spawn.Agents, remove)
}
