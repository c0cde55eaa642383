package local

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/process/sigreset"
)

// Name is the driver's name in configuration and in Caps.
const Name = "local"

// Factory returns the driver's factory. It has no options.
func Factory() driver.Factory {
	return driver.Factory{
		Name:    Name,
		Summary: "plain subprocesses, for trusted code only: no boundary, no limits but open files",
		New:     New,
	}
}

// Driver creates sandboxes that are directories and subprocesses. It implements driver.Driver,
// driver.Collector and driver.Closer.
type Driver struct {
	base     string // RuntimeDir/local
	instance instance
	logger   *slog.Logger
	spawner  *spawner
	caps     driver.Caps

	mu        sync.Mutex
	closed    bool
	sandboxes map[sandbar.ID]*sandbox
}

// New opens the driver. Invalid: it has no options. Internal: the runtime directory cannot be used.
func New(h driver.Host) (driver.Driver, error) {
	for name := range h.Options {
		return nil, &sandbar.Error{Code: sandbar.Invalid, Field: name,
			Message: "driver local has no option " + sandbar.Quote(name, 40), Fix: "remove it: this driver has no options"}
	}
	_ = sigreset.Reset() // programs start with default signal actions, as with every other driver
	base, err := filepath.Abs(filepath.Join(h.RuntimeDir, Name))
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "runtime directory: %w", err)
	}
	inst, err := newInstance(base)
	if err != nil {
		return nil, err
	}
	sp, err := newSpawner()
	if err != nil {
		inst.remove()
		return nil, err
	}
	d := &Driver{base: base, instance: inst, logger: h.Logger, spawner: sp, sandboxes: map[sandbar.ID]*sandbox{}}
	if d.logger == nil {
		d.logger = slog.New(slog.DiscardHandler)
	}
	d.caps = capsOf(sp.setsLimits())
	return d, nil
}

// capsOf returns the driver's Caps. setsLimits says that this host can set rlimits before a
// program's first instruction.
func capsOf(setsLimits bool) driver.Caps {
	none := sandbar.EnforcedNone
	c := driver.Caps{
		Name:     Name,
		Boundary: driver.BoundaryNone, HostPrograms: true,
		Enforced: sandbar.Enforcements{Memory: none, CPUs: none, CPUShares: none, PIDs: none, Disk: none, Inodes: none, Files: none},
		Notes: []string{
			"local has no boundary: programs run as the daemon's user, with the host's files, network and processes. Use it for trusted code only.",
			"local does not enforce memory, cpus, cpu_shares, pids, disk and inodes.",
		},
	}
	if setsLimits {
		c.Enforced.Files = sandbar.EnforcedRlimit
	} else {
		c.Notes = append(c.Notes, "local cannot enforce the limit of open files here: on Linux that needs ptrace, which a container's seccomp profile may deny; other systems do not support it.")
	}
	return c
}

// Caps returns the driver's properties: no boundary, and the enforced limit.
func (d *Driver) Caps() driver.Caps { return d.caps }

// Create creates a sandbox: a directory. Unsupported: a limit that is not enforced (without
// AllowDegraded), or another image or network than the default. Exists: the id is in use.
// Unavailable: after Close. Canceled and Timeout: ctx has ended.
func (d *Driver) Create(ctx context.Context, id sandbar.ID, s sandbar.Spec) (driver.Sandbox, error) {
	if err := contextError(ctx); err != nil {
		return nil, err
	}
	if _, err := sandbar.ParseID(string(id)); err != nil {
		return nil, err
	}
	if err := d.check(s); err != nil {
		return nil, err
	}
	sb, err := d.add(id, s)
	if err != nil {
		return nil, err
	}
	if err := sb.makeDirs(); err != nil {
		sb.discard()
		return nil, fileError("create", "the sandbox's directory", err)
	}
	return sb, nil
}

// add registers a sandbox under its id, atomically.
func (d *Driver) add(id sandbar.ID, s sandbar.Spec) (*sandbox, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, sandbar.Errorf(sandbar.Unavailable, "driver local is closed")
	}
	if _, ok := d.sandboxes[id]; ok {
		return nil, sandbar.Errorf(sandbar.Exists, "sandbox %s exists already", id)
	}
	b := newSandbox(d, id, s)
	d.sandboxes[id] = b
	return b, nil
}

func (d *Driver) forget(id sandbar.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.sandboxes, id)
}

// check refuses a Spec that this driver cannot satisfy, before anything is created.
func (d *Driver) check(s sandbar.Spec) error {
	if s.Image != "" && s.Image != sandbar.ImageHost {
		return &sandbar.Error{Code: sandbar.Unsupported, Field: "image",
			Message: "driver local runs the host's own programs; image " + sandbar.Quote(s.Image, 80) + " is not possible",
			Fix:     "omit the image or use \"" + sandbar.ImageHost + "\""}
	}
	if s.Network != "" && s.Network != sandbar.NetworkNone {
		return &sandbar.Error{Code: sandbar.Unsupported, Field: "network",
			Message: "driver local does not support the network " + sandbar.Quote(string(s.Network), 40) + "; its programs always use the host's network"}
	}
	if err := sandbar.CheckEnv(s.Env); err != nil {
		return err
	}
	if s.AllowDegraded {
		return nil
	}
	if name := driver.Unenforced(s.Limits, d.caps.Enforced); name != "" {
		return &sandbar.Error{Code: sandbar.Unsupported, Field: name,
			Message: "driver local cannot enforce the limit " + name + ": it runs plain subprocesses",
			Fix:     "use a driver with a boundary, leave the limit unlimited, or accept it with allow_degraded"}
	}
	if max := maxFiles(); s.Limits.Files > max {
		return &sandbar.Error{Code: sandbar.Unsupported, Field: "files",
			Message: fmt.Sprintf("%d open files were requested; the daemon's own limit is %d", s.Limits.Files, max),
			Fix:     "request fewer, or raise the daemon's own limit of open files"}
	}
	return nil
}

// files returns the limit of open files for a Spec, 0 for none. With AllowDegraded it is at most
// the host's.
func (d *Driver) files(l sandbar.Limits) int64 {
	if d.caps.Enforced.Files == sandbar.EnforcedNone || l.Files <= 0 {
		return 0
	}
	return min(l.Files, maxFiles(), math.MaxInt32)
}

// Close destroys the remaining sandboxes, and releases the thread that starts programs and the
// directory of this instance.
func (d *Driver) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	var left []*sandbox
	for _, b := range d.sandboxes {
		left = append(left, b)
	}
	d.mu.Unlock()
	var first error
	for _, b := range left {
		if err := b.Destroy(context.Background()); err != nil && first == nil {
			first = err
		}
	}
	d.spawner.close()
	if err := d.instance.remove(); err != nil && first == nil {
		first = err
	}
	return first
}

// instance is one run of the driver: a directory, and a lock that the process holds while it lives.
// Collect identifies dead instances by the lock.
type instance struct {
	name string
	dir  string
	lock *os.File
}

// lockName is the name of the lock file in an instance's directory.
const lockName = "lock"

func newInstance(base string) (instance, error) {
	var b [16]byte
	rand.Read(b[:])
	in := instance{name: hex.EncodeToString(b[:])}
	in.dir = filepath.Join(base, in.name)
	if err := os.MkdirAll(in.dir, 0o700); err != nil {
		return in, fileError("make", "the runtime directory", err)
	}
	lock, err := newLock(filepath.Join(in.dir, lockName))
	if err != nil {
		removeAll(in.dir)
		return in, fileError("lock", "the runtime directory", err)
	}
	in.lock = lock
	return in, nil
}

// remove removes the directory and releases the lock. The lock file is removed last: while it is
// locked, no other process touches the directory.
func (in instance) remove() error {
	defer in.lock.Close()
	entries, err := os.ReadDir(in.dir)
	for _, e := range entries {
		if err == nil && e.Name() != lockName {
			err = removeAll(filepath.Join(in.dir, e.Name()))
		}
	}
	if err == nil {
		err = removeAll(in.dir)
	}
	if err != nil {
		return fileError("remove", "the runtime directory", err)
	}
	return nil
}
