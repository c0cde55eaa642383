package native

import (
	"context"
	"errors"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/linux/cgroup"
	"github.com/sandbar-dev/sandbar/internal/linux/hostenv"
	"github.com/sandbar-dev/sandbar/internal/linux/policy"
	"github.com/sandbar-dev/sandbar/internal/linux/sandboxes"
	"github.com/sandbar-dev/sandbar/internal/linux/slot"
)

// Slots make sandboxes for one program each (package slot). A slot is used again if its sandbox
// ended by itself and left nothing; after any doubt it is removed, and the next sandbox has a new
// one. It keeps its id range and user namespace, its cgroups and its mount namespace, to which no
// program can write, and its network namespace if the program has not used it.

const (
	// slotTasks is the number of processes of a slot and its sandbox besides the programs.
	slotTasks = 2
	// slotLife is how long a slot is used.
	slotLife = 5 * time.Minute
	// slotMemory is the most memory in bytes that the cgroup of an empty slot holds: the slot
	// itself, and cached pages of files that its programs were the first to read.
	slotMemory = 4 << 20
	// endDelay is how long Destroy waits for the end of a sandbox whose program has ended. On a busy
	// host that takes longer than a new slot would on an idle one.
	endDelay = 2 * time.Second
)

// idleSlots is the largest number of slots that wait for a program. One takes 1.3 MiB of memory.
func idleSlots() int { return 16 * runtime.NumCPU() }

// slots is a driver's slots without a program.
type slots struct {
	failures atomic.Int32 // in succession
	works    atomic.Bool  // a program has started in one

	mu     sync.Mutex
	idle   []*slotted // the one used last is the last
	closed bool
	proc   string // the names in /proc, at readAt
	readAt time.Time
}

// slotFailures is the number of failures in succession after which the driver makes no more slots.
const slotFailures = 3

func (s *slots) broken() bool { return s.failures.Load() >= slotFailures }

// worked records that a program has started.
func (s *slots) worked() {
	s.failures.Store(0)
	s.works.Store(true)
}

// procNames returns the names in /proc except processes. It reads them at most once a second. What
// sandboxes must not see there is part of a slot's list.
func (s *slots) procNames() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.readAt) > time.Second {
		entries, err := os.ReadDir("/proc")
		if err != nil {
			return ""
		}
		var b strings.Builder
		for _, e := range entries {
			if strings.Trim(e.Name(), "0123456789") != "" {
				b.WriteString(e.Name() + " ")
			}
		}
		s.proc, s.readAt = b.String(), now
	}
	return s.proc
}

// slotted is a slot and its resources.
type slotted struct {
	sandboxes.Resources
	d      *Driver
	slot   *slot.Slot
	count  *cgroup.Counters
	before client.Usage // the counters before the next program
	// cookie of the network namespace that Driver.sockets watches; 0: none
	network uint64
	// what clean has found
	memory, processes int64
	limits            sandbar.Limits // of its sandboxes
	template          *template      // whose copies enter its sandboxes; nil: programs start there
	rlimits           []wire.Rlimit  // of programs, with the tag last
	made              time.Time
	proc              string // see procNames
}

// single is a sandbox of a slot.
type single struct {
	d    *Driver
	id   sandbar.ID
	slot *slotted
	dead chan struct{} // closed when no program can run any more

	ended   chan struct{} // closed when the program has ended
	emptied chan struct{} // closed when no process is left
	orphans chan struct{} // closed when the program has ended and left processes behind
	read    chan struct{} // closed when nothing is read from the slot any more
	pidfd   int

	run     sync.Mutex
	program *client.Direct // nil: there is none yet
	over    bool           // no program can start any more

	mu        sync.Mutex
	signalled bool // the daemon has signalled the program
	destroyed bool
}

var (
	_ driver.OneShotter = (*Driver)(nil)
	_ driver.PeakMemory = (*single)(nil)
)

// TakesOneShots implements driver.OneShotter.
func (d *Driver) TakesOneShots(s sandbar.Spec) bool {
	return d.reuse && !d.slots.broken() && d.hasSlots() && (s.Image == "" || s.Image == sandbar.ImageHost) && s.Network != sandbar.NetworkOutbound
}

// hasSlots reports whether slots are possible on this host.
func (d *Driver) hasSlots() bool {
	if d.Groups == nil || !d.IDs.Ranged || d.mode != agent.ModeSocket {
		return false
	}
	c := d.Groups.Caps()
	return c.PeakResets && c.CPUCounted && c.PIDs != sandbar.EnforcedNone && c.CPUShares != sandbar.EnforcedNone
}

// wayNote says how the only program of an execution runs.
func (d *Driver) wayNote() string {
	switch {
	case !d.hasSlots():
		return "every program gets a sandbox with an agent, for more than twice the processor time of a slot: slots need root with id ranges, and control groups for memory, processors and processes, of version 1 or with Linux 6.12"
	case !d.reuse:
		return "every program gets a sandbox with an agent, for more than twice the processor time of a slot (reuse: none)"
	}
	return "the only program of an execution runs in a slot, without an agent"
}

func notForSlots() error {
	return sandbar.Errorf(sandbar.Unsupported, "the program needs a sandbox with an agent")
}

// RunOnce implements driver.OneShotter.
func (d *Driver) RunOnce(ctx context.Context, id sandbar.ID, s sandbar.Spec, o driver.OneShot, std driver.Stdio) (driver.Single, driver.Process, error) {
	if err := d.refuse(s); err != nil {
		return nil, nil, err
	}
	if err := client.CheckCmd(o.Cmd); err != nil {
		return nil, nil, err
	}
	if !d.TakesOneShots(s) || o.Cmd.Terminal != nil || o.File != "" && path.Dir(o.File) != sandbar.DefaultDir {
		return nil, nil, notForSlots()
	}
	if err := d.Registry.Claim(string(id)); err != nil {
		return nil, nil, err
	}
	x := newSingle(d, id)
	err := x.start(ctx, s, o, std)
	if err == nil {
		return x, x.program, nil
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), sandboxes.UndoTimeout)
	defer cancel()
	if derr := x.Destroy(clean); derr != nil {
		d.Log.Error("a sandbox whose creation failed could not be removed", "sandbox", id, "error", derr)
	}
	return nil, nil, err
}

func newSingle(d *Driver, id sandbar.ID) *single {
	return &single{d: d, id: id, dead: make(chan struct{}), ended: make(chan struct{}), emptied: make(chan struct{}), orphans: make(chan struct{}), read: make(chan struct{}), pidfd: -1}
}

// start takes a slot and starts the program.
func (x *single) start(ctx context.Context, s sandbar.Spec, o driver.OneShot, std driver.Stdio) (err error) {
	if x.slot, _, err = x.d.takeSlot(ctx, s, nil); err != nil {
		close(x.read)
		return x.failed(ctx, err)
	}
	pid, err := x.launch(ctx, s, o, std)
	if err == nil {
		x.d.slots.worked()
		x.program.Begin(pid)
		go x.follow(true)
		return nil
	}
	failure, ended := errors.AsType[*slot.Failure](err)
	if !ended {
		close(x.read)
		return x.failed(ctx, err)
	}
	close(x.ended)
	go x.follow(false)
	switch {
	case failure.Code:
		return client.PutError(o.File, uint32(failure.Errno))
	case failure.Dir:
		return client.StartError(wire.FailDir, uint32(failure.Errno), o.Cmd)
	}
	return client.StartError(wire.FailExec, uint32(failure.Errno), o.Cmd)
}

// failed returns the error of a slot that failed: the program then gets a sandbox with an agent,
// unless the caller has stopped waiting or the host is exhausted.
func (x *single) failed(ctx context.Context, err error) error {
	switch code := sandbar.CodeOf(err); {
	case ctx.Err() != nil, code == sandbar.Exhausted:
		return err
	case code == sandbar.TooLarge:
	case code == sandbar.Gone && x.d.slots.works.Load(): // somebody has killed its process
		x.d.Log.Warn("a slot has ended; the program gets a sandbox with an agent", "sandbox", x.id, "error", err)
	case x.d.slots.failures.Add(1) == slotFailures:
		x.d.Log.Error("slots fail; from now on all programs get a sandbox with an agent", "error", err)
	default:
		x.d.Log.Warn("a slot failed; the program gets a sandbox with an agent", "sandbox", x.id, "error", err)
	}
	return notForSlots()
}

// launch starts the program and returns its process id in the sandbox.
func (x *single) launch(ctx context.Context, s sandbar.Spec, o driver.OneShot, std driver.Stdio) (pid int, err error) {
	j := &slot.Job{Args: o.Cmd.Args, Dir: o.Cmd.Dir, Code: o.Code}
	if o.File != "" {
		j.File = path.Base(o.File)
	}
	for _, env := range []map[string]string{s.Env, o.Cmd.Env} {
		for k, v := range env {
			j.Env = append(j.Env, k+"="+v)
		}
	}
	program, fds, err := client.NewDirect(std, x.options(x.slot.before))
	if err != nil {
		return 0, err
	}
	prepared, err := x.slot.slot.Put(j)
	if err == nil {
		x.pidfd, pid, err = prepared.Start(ctx, fds)
	}
	if err != nil {
		program.Abort()
		return 0, err
	}
	x.program = program
	return pid, nil
}

// options are what the driver adds to the program. before are the counters before its start.
func (x *single) options(before client.Usage) client.DirectOptions {
	uid, gid := x.slot.HostIDs(sandboxUID)
	return client.DirectOptions{Signal: x.signal, Kill: x.killTree, Before: before, Usage: x.slot.usage, Enforced: x.d.Facts.Enforced, UID: uid, GID: gid, ChownPipes: true}
}

// follow reads what the slot reports until no process is left.
func (x *single) follow(started bool) {
	defer close(x.read)
	defer close(x.dead)
	ctx := context.Background()
	if started {
		e, err := x.slot.slot.Ended(ctx)
		x.run.Lock()
		x.over = true
		program := x.program
		x.run.Unlock()
		if err != nil {
			if program != nil {
				program.Lost()
			}
			return
		}
		close(x.ended)
		if program != nil {
			program.Exited(e)
		}
	}
	for told := false; ; told = true {
		empty, err := x.slot.slot.Emptied(ctx)
		if err != nil {
			return
		}
		if empty {
			close(x.emptied)
			return
		}
		if !told {
			close(x.orphans)
		}
	}
}

// signal signals the program's process group.
func (x *single) signal(sig int) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.pidfd < 0 {
		return nil
	}
	x.signalled = true
	const processGroup = 1 << 2 // PIDFD_SIGNAL_PROCESS_GROUP
	err := unix.PidfdSendSignal(x.pidfd, unix.Signal(sig), nil, processGroup)
	if err == unix.EINVAL { // Linux before 6.9
		err = unix.PidfdSendSignal(x.pidfd, unix.Signal(sig), nil, 0)
	}
	if err == unix.ESRCH {
		return nil
	}
	return err
}

// killTree kills all processes of the sandbox, the program first, so that the slot reports its end.
func (x *single) killTree() error {
	if err := x.signal(int(unix.SIGKILL)); err == nil {
		t := time.NewTimer(endDelay)
		defer t.Stop()
		select {
		case <-x.ended:
		case <-x.read:
		case <-t.C:
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), sandboxes.UndoTimeout)
	defer cancel()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.destroyed {
		return nil
	}
	return x.slot.remove(ctx, x.read)
}

// PeakMemory implements driver.PeakMemory.
func (x *single) PeakMemory() int64 { return x.slot.usage().PeakMemory }

// Ended implements driver.Prober.
func (x *single) Ended() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.pidfd < 0 {
		return true
	}
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(x.pidfd), Events: unix.POLLIN}}, 0)
	return n > 0 && err == nil
}

// Dead implements driver.Single.
func (x *single) Dead() <-chan struct{} { return x.dead }

// Destroy implements driver.Single. If the sandbox has ended by itself, its slot is used again.
func (x *single) Destroy(ctx context.Context) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.destroyed {
		return nil
	}
	if x.slot != nil {
		if !x.endedAlone() || !x.d.putSlot(x.slot) {
			x.d.Log.Debug("a slot is not used again", "sandbox", x.id, "memory", x.slot.memory, "processes", x.slot.processes, "age", time.Since(x.slot.made))
			if err := x.slot.remove(ctx, x.read); err != nil {
				return err
			}
		}
	}
	if x.pidfd >= 0 {
		unix.Close(x.pidfd)
		x.pidfd = -1
	}
	x.destroyed = true
	x.d.Registry.Release(string(x.id))
	return nil
}

// endedAlone reports whether all processes have ended by themselves and the result is complete.
// x.mu is held.
func (x *single) endedAlone() bool {
	select {
	case <-x.ended:
	default:
		return false
	}
	if x.signalled {
		return false
	}
	t := time.NewTimer(endDelay)
	defer t.Stop()
	select {
	case <-x.emptied:
	case <-x.orphans:
		return false
	case <-x.read:
	case <-t.C:
		return false
	}
	select {
	case <-x.emptied:
	default:
		return false
	}
	x.run.Lock()
	program := x.program
	x.run.Unlock()
	if program == nil {
		return true
	}
	select {
	case <-program.Done():
		return true
	case <-t.C:
		return false
	}
}

// takeSlot returns a slot with a new sandbox for a Spec, and for a copy of a template if t is not
// nil. fds are what slot.Slot.Built returns.
func (d *Driver) takeSlot(ctx context.Context, s sandbar.Spec, t *template) (x *slotted, fds []int, err error) {
	limits := s.Limits
	limits.Timeout, limits.Output = 0, 0
	for {
		idle := d.idleSlot(limits, t)
		if x = idle; x == nil {
			if x, err = d.makeSlot(ctx, s, limits, t); err != nil {
				return nil, nil, err
			}
		}
		if fds, err = x.slot.Built(ctx); err == nil {
			x.watch()
			return x, fds, nil
		}
		d.dropSlot(x)
		if idle == nil || sandbar.CodeOf(err) != sandbar.Gone {
			return nil, nil, err
		}
		d.Log.Warn("an idle slot has ended", "error", err)
	}
}

// idleSlot takes the slot that was used last of those for the limits and the template; nil: there
// is none.
func (d *Driver) idleSlot(limits sandbar.Limits, t *template) *slotted {
	d.slots.mu.Lock()
	defer d.slots.mu.Unlock()
	for i := len(d.slots.idle) - 1; i >= 0; i-- {
		if x := d.slots.idle[i]; x.limits == limits && x.template == t {
			d.slots.idle = slices.Delete(d.slots.idle, i, i+1)
			return x
		}
	}
	return nil
}

// putSlot keeps a slot for the next program, and reports false if that is not possible. The oldest
// slot makes room.
func (d *Driver) putSlot(x *slotted) bool {
	if !x.clean() || x.build(!x.keepsNetwork()) != nil {
		return false
	}
	d.slots.mu.Lock()
	if d.slots.closed || x.template != nil && x.template.retired {
		d.slots.mu.Unlock()
		return false
	}
	d.slots.idle = append(d.slots.idle, x)
	var old *slotted
	if len(d.slots.idle) > idleSlots() {
		old = d.slots.idle[0]
		d.slots.idle = slices.Delete(d.slots.idle, 0, 1)
	}
	d.slots.mu.Unlock()
	if old != nil {
		d.dropSlot(old)
	}
	return true
}

// dropSlot removes an idle slot.
func (d *Driver) dropSlot(x *slotted) {
	ctx, cancel := context.WithTimeout(context.Background(), sandboxes.UndoTimeout)
	defer cancel()
	if err := x.remove(ctx, nil); err != nil {
		d.Log.Error("a slot could not be removed", "error", err)
	}
}

// closeSlots removes all idle slots and makes putSlot keep no more.
func (d *Driver) closeSlots() {
	d.slots.mu.Lock()
	d.slots.closed = true
	d.slots.mu.Unlock()
	d.dropIdle()
}

// dropIdle removes all idle slots.
func (d *Driver) dropIdle() { d.dropSlots(func(*slotted) bool { return true }) }

// retire removes the idle slots of a template and makes putSlot keep no more of them.
func (d *Driver) retire(t *template) {
	d.slots.mu.Lock()
	t.retired = true
	d.slots.mu.Unlock()
	d.dropSlots(func(x *slotted) bool { return x.template == t })
}

// dropSlots removes the idle slots for which drop returns true.
func (d *Driver) dropSlots(drop func(*slotted) bool) {
	d.slots.mu.Lock()
	var dropped []*slotted
	d.slots.idle = slices.DeleteFunc(d.slots.idle, func(x *slotted) bool {
		if drop(x) {
			dropped = append(dropped, x)
			return true
		}
		return false
	})
	d.slots.mu.Unlock()
	for _, x := range dropped {
		d.dropSlot(x)
	}
}

// clean reports whether the slot can be used again, after resetting its counters.
func (x *slotted) clean() bool {
	if time.Since(x.made) > slotLife || x.proc != x.d.slots.procNames() {
		return false
	}
	now, err := x.count.Current()
	// The process that made a copy may be about to end.
	for end := time.Now().Add(endDelay); err == nil && now.PIDsCurrent > 1 && x.template != nil && time.Now().Before(end); {
		time.Sleep(200 * time.Microsecond)
		now, err = x.count.Current()
	}
	x.memory, x.processes = now.MemoryCurrent, now.PIDsCurrent
	if err != nil || now.PIDsCurrent > 1 || now.MemoryCurrent > slotMemory {
		return false
	}
	before := x.before
	x.before = x.usage()
	return x.before.OOMKills == before.OOMKills && x.count.ResetPeak() == nil
}

// usage reads the counters.
func (x *slotted) usage() client.Usage {
	s, err := x.count.Totals()
	if err != nil { // the slot is being removed; the counters read so far are valid
		x.d.Log.Debug("a slot's counters could not be read", "error", err)
	}
	return client.Usage{PeakMemory: s.MemoryPeak, CPU: s.CPUTime, OOMKills: s.OOMKills}
}

// makeSlot makes a slot.
func (d *Driver) makeSlot(ctx context.Context, s sandbar.Spec, limits sandbar.Limits, t *template) (*slotted, error) {
	s.Env, s.Image = nil, ""
	proc := d.slots.procNames()
	setup, err := d.plan(s, nil, policy.Files{})
	if err != nil {
		return nil, err
	}
	plan := slot.Plan{Setup: setup, Cookies: d.cookies, MostTag: hostenv.HardLimit(setup.TagResource), Enter: t != nil}
	program, err := slot.Compile(plan)
	if err != nil {
		return nil, err
	}
	x := &slotted{Resources: sandboxes.Resources{ID: sandbar.NewID()}, d: d, limits: limits, template: t, rlimits: plan.Rlimits(), made: time.Now(), proc: proc}
	if err := d.Build(ctx, &x.Resources, func() error { return x.boot(ctx, program, s) }); err != nil {
		if x.slot != nil {
			x.slot.Close()
		}
		return nil, err
	}
	return x, nil
}

// boot starts the slot's process.
func (x *slotted) boot(ctx context.Context, program *slot.Program, s sandbar.Spec) (err error) {
	if err := x.TakeRange(); err != nil {
		return err
	}
	if err := x.TakeGroup(hostenv.GroupLimits(x.d.Groups.Caps(), s.Limits, slotTasks)); err != nil {
		return err
	}
	if x.count, err = x.Group.OpenCounters(); err != nil {
		return err
	}
	x.OnEnd = func() error { x.count.Close(); return nil }
	if x.slot, err = slot.New(program); err != nil {
		return err
	}
	request := x.d.IDs.Request(agent.ModeSlot, x.Range, sandboxUID)
	if x.template != nil {
		request.Owner = uint32(x.template.owner)
	}
	if x.Init, err = x.d.Spawner.Start(request, x.Group, x.slot.Socket, x.slot.Memory); err != nil {
		return err
	}
	if err := x.slot.Began(ctx); err != nil {
		return err
	}
	return x.build(false)
}

// build begins to build the next sandbox, with a new network namespace if fresh is set.
func (x *slotted) build(fresh bool) error {
	return x.slot.Build(hostenv.NewMachineID(), hostenv.NewBootID(), fresh)
}

// watch begins to watch the network namespace of a sandbox that has been built.
func (x *slotted) watch() {
	if now := x.slot.Network(); x.d.sockets != nil && now != x.network {
		x.forgetNetwork()
		if err := x.d.sockets.Begin(now); err != nil {
			x.d.Log.Debug("a slot cannot keep its network namespace", "error", err)
			return
		}
		x.network = now
	}
}

// keepsNetwork reports whether the next sandbox may have the network namespace of the last one: no
// process is left, and its program has changed nothing there.
func (x *slotted) keepsNetwork() bool {
	return x.network != 0 && !x.d.sockets.Used(x.network) && x.slot.SameNetwork()
}

// forgetNetwork ends watching.
func (x *slotted) forgetNetwork() {
	if x.network != 0 {
		x.d.sockets.End(x.network)
		x.network = 0
	}
}

// remove kills the slot with all processes of its sandbox and releases its resources. read, if not
// nil, closes when nothing is read from it any more.
func (x *slotted) remove(ctx context.Context, read <-chan struct{}) error {
	if err := x.Destroy(ctx); err != nil {
		return err
	}
	x.forgetNetwork()
	if read != nil {
		<-read
	}
	x.slot.Close()
	return nil
}
