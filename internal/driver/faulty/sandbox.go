package faulty

import (
	"context"
	"io"
	"net"
	"slices"
	"sync"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// sandbox is a sandbox without optional abilities.
type sandbox struct {
	d    *Driver
	id   sandbar.ID
	spec sandbar.Spec
	fs   *memoryFS
	dead chan struct{} // closed when the sandbox has ended

	mu       sync.Mutex
	ended    bool // dead is closed
	removed  bool
	rests    bool
	running  map[*process]struct{}
	left     map[*process]int // number of leftovers by program
	started  int              // number of programs ever started
	ports    map[int]bool
	conns    []net.Conn
	connects sync.WaitGroup
}

// fullSandbox is a sandbox with the abilities driver.Dialer, driver.Meter, driver.Rester,
// driver.Watcher and driver.Explainer.
type fullSandbox struct{ *sandbox }

// Dead is closed when the sandbox has ended.
func (b fullSandbox) Dead() <-chan struct{} { return b.dead }

// Death returns Driver.Death.
func (b fullSandbox) Death() error { return b.d.Death }

// Measure returns what Driver.Use returns.
func (b fullSandbox) Measure(context.Context) (driver.Use, error) {
	if b.d.Use == nil {
		return driver.Use{}, sandbar.Errorf(sandbar.Unsupported, "the driver %q cannot measure a sandbox", b.d.Caps().Name)
	}
	return b.d.Use()
}

// DialPort connects to a port that a program serves.
func (b fullSandbox) DialPort(_ context.Context, port int) (net.Conn, error) {
	if port < 1 || port > 65535 {
		return nil, sandbar.Errorf(sandbar.Invalid, "port %d is outside 1 to 65535", port)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return nil, gone()
	}
	if !b.ports[port] {
		return nil, sandbar.Errorf(sandbar.Unavailable, "nothing listens on port %d", port)
	}
	here, there := net.Pipe()
	b.conns = append(b.conns, there)
	b.connects.Go(func() {
		defer there.Close()
		_, _ = io.Copy(there, there)
	})
	return here, nil
}

// Rest makes Start fail until Wake.
func (b fullSandbox) Rest(ctx context.Context) error { return b.setRests(ctx, b.d.OnRest, true) }

// Wake ends Rest.
func (b fullSandbox) Wake(ctx context.Context) error { return b.setRests(ctx, b.d.OnWake, false) }

func (b *sandbox) setRests(ctx context.Context, h Hook, rests bool) error {
	if err := b.d.hook(ctx, h); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rests = rests
	return nil
}

func newSandbox(d *Driver, id sandbar.ID, s sandbar.Spec) *sandbox {
	return &sandbox{d: d, id: id, spec: s, fs: newMemoryFS(s.Limits.Disk, d.NoFiles), dead: make(chan struct{}),
		running: map[*process]struct{}{}, left: map[*process]int{}, ports: map[int]bool{}}
}

// Start starts a script.
func (b *sandbox) Start(ctx context.Context, c sandbar.Cmd, std driver.Stdio) (driver.Process, error) {
	if err := b.d.hook(ctx, b.d.OnStart); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := driver.RefuseTerminal("faulty", c); err != nil {
		return nil, err
	}
	p, err := newProcess(b, c, std)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return nil, gone()
	}
	if b.rests {
		return nil, sandbar.Errorf(sandbar.Internal, "faulty: the sandbox rests")
	}
	b.running[p] = struct{}{}
	b.started++
	p.pid = 1 + b.started // 1 would be the sandbox's init
	b.d.mu.Lock()
	b.d.processes++
	b.d.events = append(b.d.events, "start")
	b.d.mu.Unlock()
	b.d.started.Add(1)
	p.start()
	return p, nil
}

// FS returns the sandbox's files.
func (b *sandbox) FS() sandbar.FS { return b.fs }

// Destroy ends the sandbox and waits for its programs, except for those that hang.
func (b *sandbox) Destroy(ctx context.Context) error {
	if err := b.d.hook(ctx, b.d.OnDestroy); err != nil {
		return err
	}
	b.destroy()
	return nil
}

func (b *sandbox) destroy() {
	for _, p := range b.die() {
		select {
		case <-p.ended:
		case <-p.hung:
		}
	}
	b.mu.Lock()
	first := !b.removed
	b.removed = true
	for _, c := range b.conns {
		_ = c.Close()
	}
	b.conns = nil
	b.mu.Unlock()
	b.connects.Wait()
	if !first {
		return
	}
	b.d.mu.Lock()
	delete(b.d.sandboxes, b.id)
	b.d.events = append(b.d.events, "destroy")
	b.d.mu.Unlock()
	b.d.destroyed.Add(1)
}

// die ends the sandbox and returns the programs that were running.
func (b *sandbox) die() []*process {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.ended = true
		close(b.dead)
	}
	var all []*process
	for p := range b.running {
		p.stop(sandbar.Result{Outcome: sandbar.Lost})
		all = append(all, p)
	}
	for p := range b.left {
		b.clear(p)
	}
	return slices.Clip(all)
}

// leave adds a leftover of p.
func (b *sandbox) leave(p *process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return
	}
	b.left[p]++
	b.d.mu.Lock()
	b.d.left++
	b.d.mu.Unlock()
}

// clear removes the leftovers of p. The caller holds mu.
func (b *sandbox) clear(p *process) {
	b.d.mu.Lock()
	b.d.left -= b.left[p]
	b.d.mu.Unlock()
	delete(b.left, p)
}

// forget removes a program that has ended. Destroy, which waits for the programs in b.running
// only, then finds it counted no more.
func (b *sandbox) forget(p *process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.running, p)
	b.d.mu.Lock()
	b.d.processes--
	b.d.events = append(b.d.events, "end")
	b.d.mu.Unlock()
}
