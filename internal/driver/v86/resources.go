package v86

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/process/child"
	"github.com/sandbar-dev/sandbar/internal/wasm/v86/worker"
)

// undoTimeout bounds the removal of a sandbox whose creation failed, and the exit of a worker that
// has booted an image.
const undoTimeout = 10 * time.Second

// resources is one sandbox on the host: a worker process.
type resources struct {
	d  *Driver
	id sandbar.ID

	mu     sync.Mutex
	worker *child.Process
	gone   bool
}

// sandbox is a driver.Sandbox that can also be reset.
type sandbox struct {
	*client.Sandbox
	b   *resources
	env map[string]string
}

var (
	_ driver.Sandbox       = (*sandbox)(nil)
	_ driver.Resetter      = (*sandbox)(nil)
	_ driver.CurrentMemory = (*sandbox)(nil)
)

// make starts the worker with a snapshot. On an error the caller must call discard.
func (b *resources) make(ctx context.Context, snapshot string, env map[string]string) (driver.Sandbox, error) {
	status := &statusLines{progress: func(string) {}, log: b.d.log}
	job := worker.Job{Mode: worker.ModeRun, Modules: b.d.snaps.modules, Cache: b.d.snaps.compiled(), Path: snapshot}
	p, err := child.Start(job.Args(), worker.Env(), status)
	if err != nil {
		return nil, err
	}
	b.worker = p
	// On systems without deadlines for pipes, only the worker's exit ends a blocked read.
	defer context.AfterFunc(ctx, p.Kill)()
	c, err := client.New(ctx, p.Conn(), client.Options{Destroy: b.destroy, Enforced: b.d.caps.Enforced})
	if err != nil {
		return nil, status.explain(err)
	}
	return &sandbox{c, b, env}, nil
}

// destroy ends the worker.
func (b *resources) destroy(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return nil
	}
	if b.worker != nil {
		if err := b.worker.Stop(ctx); err != nil {
			return sandbar.Errorf(sandbar.Timeout, "ending the sandbox: %w", err)
		}
		b.worker = nil
	}
	b.gone = true
	b.d.registry.Release(string(b.id))
	return nil
}

// discard removes a sandbox whose creation failed.
func (b *resources) discard(ctx context.Context) {
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if err := b.destroy(clean); err != nil {
		b.d.log.Error("a sandbox whose creation failed could not be removed", "sandbox", b.id, "error", err)
	}
}

// Start starts a program. Its environment is the sandbox's, overridden by c.Env.
func (s *sandbox) Start(ctx context.Context, c sandbar.Cmd, std driver.Stdio) (driver.Process, error) {
	if len(s.env) > 0 {
		env := maps.Clone(s.env)
		maps.Copy(env, c.Env)
		c.Env = env
	}
	return s.Sandbox.Start(ctx, c, std)
}

// Reset ends every program and restores the snapshot from which the machine started.
func (s *sandbox) Reset(ctx context.Context) error {
	_, _, err := s.Setup(ctx, &wire.Setup{})
	return err
}

// CurrentMemory returns the memory that the guest uses, in bytes.
func (s *sandbox) CurrentMemory(ctx context.Context) (int64, error) { return s.Usage(ctx) }
