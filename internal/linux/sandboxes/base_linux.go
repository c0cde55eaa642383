package sandboxes

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/linux/cgroup"
	"github.com/sandbar-dev/sandbar/internal/linux/daemonid"
	"github.com/sandbar-dev/sandbar/internal/linux/hostenv"
	"github.com/sandbar-dev/sandbar/internal/linux/policy"
	"github.com/sandbar-dev/sandbar/internal/linux/spawn"
)

// Base has the resources that all sandboxes of a driver share. A driver embeds it, and calls New,
// Open, Describe, Compile and Start in this order.
type Base struct {
	Log      *slog.Logger
	Mitigate bool // see wire.Setup
	IDs      spawn.IDs
	Images   driver.Images // nil: there are none
	Ranges   *spawn.Ranges
	Registry driver.Registry

	// Open sets these.
	Owner   string // names this process, see package daemonid
	Groups  *cgroup.Manager
	Program *spawn.Program // the agent's

	Facts         driver.Caps // set by Describe
	Filter        []byte      // system calls of the agent and all programs; set by Compile
	ProgramFilter []byte      // system calls of programs, besides Filter; set by Compile
	Spawner       *spawn.Spawner
}

// New returns a Base with the settings of h. It opens nothing.
func New(h driver.Host) Base {
	log := h.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return Base{Log: log, Mitigate: !h.Speculation, IDs: spawn.DetectIDs(), Images: h.Images, Ranges: spawn.NewRanges()}
}

// Open opens the cgroups and the agent's program. binary is the program; nil means the running
// binary. After an error the caller must call Release.
func (b *Base) Open(binary []byte) (err error) {
	if b.Owner, err = daemonid.Self(); err != nil {
		return err
	}
	if b.Groups, err = cgroup.Detect(b.Owner); err != nil {
		return err
	}
	b.Program, err = spawn.OpenProgram(binary, b.IDs)
	return err
}

// Start starts the spawner process. After an error the caller must call Release.
func (b *Base) Start() (err error) {
	if b.Spawner, err = spawn.New(b.Program, b.Owner); err != nil {
		return err
	}
	b.Spawner.Lost = func(err error) {
		b.Log.Warn("the process that starts sandboxes has ended, and with it all sandboxes; it is started again", "error", err)
	}
	return nil
}

// Release releases the resources of Open and Start. The spawner process ends first, because it is
// in the cgroups. All sandboxes must be destroyed.
func (b *Base) Release() (err error) {
	if b.Spawner != nil {
		b.Spawner.Close()
	}
	if b.Program != nil {
		err = b.Program.Close()
	}
	if b.Groups != nil {
		err = errors.Join(err, b.Groups.Close())
	}
	return err
}

// Describe sets Facts for a driver with this name and boundary. For a limit without a cgroup it
// selects a weaker enforcement if the host has one. It must be called after Open.
func (b *Base) Describe(name string, boundary driver.Boundary) {
	e := b.Groups.Caps()
	c := driver.Caps{
		Name: name, Boundary: boundary,
		Enforced: sandbar.Enforcements{
			Memory: e.Memory, CPUs: e.CPUs, CPUShares: e.CPUShares, PIDs: e.PIDs,
			Disk: sandbar.EnforcedMount, Inodes: sandbar.EnforcedMount, Files: sandbar.EnforcedRlimit,
		},
		OOMCounted:   e.Memory != sandbar.EnforcedNone && e.OOMCounted,
		PrivateFiles: true, PrivateNetwork: true, PrivateProcesses: true, PrivateQuotas: true,
		HostPrograms: true, Terminals: true,
		Notes: e.Notes,
	}
	if c.Enforced.Memory == sandbar.EnforcedNone {
		c.Enforced.Memory = sandbar.EnforcedWatchdog
	}
	if c.Enforced.CPUShares == sandbar.EnforcedNone {
		if n, ok := hostenv.Sysctl("/proc/sys/kernel/sched_autogroup_enabled"); ok && n == 1 {
			c.Notes = append(c.Notes, "CPU shares cannot be enforced: no cgroup has the cpu controller, and with autogroup scheduling nice values have no effect between sessions (as root: sysctl kernel.sched_autogroup_enabled=0)")
		} else {
			c.Enforced.CPUShares = sandbar.EnforcedNice
		}
	}
	if c.Enforced.PIDs == sandbar.EnforcedNone && hostenv.KernelAtLeast(5, 14) && !b.IDs.Ranged {
		// Since 5.14 RLIMIT_NPROC counts in the sandbox's own user namespace.
		c.Enforced.PIDs = sandbar.EnforcedRlimit
	}
	b.Facts = c
}

// Compile sets the system-call filters. If Facts says that the watchdog enforces the memory limit,
// Filter also denies allocations that the watchdog cannot count. tag is the rlimit with the process
// tags. It must be called after Describe.
func (b *Base) Compile(tag policy.TagResource) (err error) {
	compile := policy.CompileSeccomp
	if b.Facts.Enforced.Memory == sandbar.EnforcedWatchdog {
		compile = policy.CompileSeccompUncounted
	}
	if b.Filter, err = compile(runtime.GOARCH); err == nil {
		b.ProgramFilter, err = policy.CompilePrograms(runtime.GOARCH, tag)
	}
	if err != nil {
		return sandbar.Errorf(sandbar.Unsupported, "no system-call filter for this processor: %w", err)
	}
	return nil
}

// HasCgroups reports whether sandboxes have cgroups on this host.
func (b *Base) HasCgroups() bool { return b.Groups.Caps().Any() }

// Refuse returns Invalid if s has a malformed environment, and Unsupported if this host cannot
// enforce one of its limits, unless s.AllowDegraded.
func (b *Base) Refuse(s sandbar.Spec) error {
	if err := sandbar.CheckEnv(s.Env); err != nil {
		return err
	}
	if s.AllowDegraded {
		return nil
	}
	held := b.Facts.Enforced
	for _, l := range []struct {
		field string
		set   bool
		by    sandbar.Enforcement
	}{
		{"limits.memory", s.Limits.Memory > 0, held.Memory},
		{"limits.cpus", s.Limits.CPUs > 0, held.CPUs},
		{"limits.cpu_shares", s.Limits.CPUShares > 0, held.CPUShares},
		{"limits.pids", s.Limits.PIDs > 0, held.PIDs},
	} {
		if l.set && l.by == sandbar.EnforcedNone {
			return &sandbar.Error{Code: sandbar.Unsupported, Field: l.field,
				Message: "this host cannot enforce " + l.field + ": no cgroup with that controller can be used",
				Fix:     "run `sandbar doctor` for what is missing, or allow degraded limits"}
		}
	}
	if s.Limits.CPUShares > 1024 && held.CPUShares == sandbar.EnforcedNice {
		return &sandbar.Error{Code: sandbar.Unsupported, Field: "limits.cpu_shares",
			Message: "this host enforces CPU shares by nice values, so at most 1024 is possible",
			Fix:     "run `sandbar doctor` for what is missing, or allow degraded limits"}
	}
	return nil
}

// OpenImage opens a sandbox's image. nil means the image "host". Unsupported: this kernel cannot
// mount an overlay over an image.
func (b *Base) OpenImage(ctx context.Context, name string) (*driver.Image, error) {
	image, err := hostenv.OpenImage(ctx, b.Images, name)
	if image == nil || err != nil {
		return nil, err
	}
	if note := hostenv.ImageNote(); note != "" {
		image.Close()
		return nil, &sandbar.Error{Code: sandbar.Unsupported, Field: "image", Message: note, Fix: "use the image \"host\", or a newer kernel"}
	}
	return image, nil
}

// UndoTimeout bounds the removal of a sandbox whose creation failed.
const UndoTimeout = 10 * time.Second

// Build registers the sandbox's id and calls build. If build fails, Build releases the resources of
// r and the id. Canceled: ctx has ended. Exists: the id is in use.
func (b *Base) Build(ctx context.Context, r *Resources, build func() error) error {
	if err := ctx.Err(); err != nil {
		return sandbar.Errorf(sandbar.Canceled, "creating a sandbox: %w", err)
	}
	if err := b.Registry.Claim(string(r.ID)); err != nil {
		return err
	}
	r.base = b
	err := build()
	if err == nil {
		return nil
	}
	// The removal must not end with ctx, which may be why build failed.
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), UndoTimeout)
	defer cancel()
	if uerr := r.Destroy(clean); uerr != nil {
		b.Log.Error("a sandbox whose creation failed could not be removed", "sandbox", r.ID, "error", uerr)
	}
	return err
}
