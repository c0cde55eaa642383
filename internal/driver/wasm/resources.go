package wasm

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/process/child"
	"github.com/sandbar-dev/sandbar/internal/wasm/worker"
)

// undoTimeout bounds the removal of a sandbox whose creation failed.
const undoTimeout = 10 * time.Second

// plan computes a worker's Setup from a Spec. It is pure.
func plan(s sandbar.Spec) *worker.Setup {
	bound := func(n int64) int64 { return max(n, 0) } // Unlimited is 0
	w := &worker.Setup{
		Memory: bound(s.Limits.Memory), Disk: bound(s.Limits.Disk), Inodes: bound(s.Limits.Inodes),
		PIDs: bound(s.Limits.PIDs), Files: bound(s.Limits.Files), Dir: sandbar.DefaultDir,
		Env: []string{"HOME=" + sandbar.DefaultDir, "PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "USER=user", "LOGNAME=user", "SHELL=/bin/sh", "TMPDIR=/tmp"},
	}
	names := make([]string, 0, len(s.Env))
	for k := range s.Env {
		names = append(names, k)
	}
	slices.Sort(names)
	for _, k := range names {
		w.Env = append(w.Env, k+"="+s.Env[k])
	}
	return w
}

// resources is one sandbox on the host: a worker process, which ends its own runners.
type resources struct {
	d     *Driver
	id    sandbar.ID
	setup *worker.Setup

	mu     sync.Mutex
	worker *child.Process
	gone   bool
}

// sandbox is a driver.Sandbox that can also be reset.
type sandbox struct {
	*client.Sandbox
	b *resources
}

var (
	_ driver.Sandbox       = (*sandbox)(nil)
	_ driver.Resetter      = (*sandbox)(nil)
	_ driver.CurrentMemory = (*sandbox)(nil)
)

// make starts the worker and makes it build the sandbox. On an error the caller must call discard.
func (b *resources) make(ctx context.Context, compiled string) (driver.Sandbox, error) {
	p, err := child.Start(worker.Args(compiled, b.d.cache.modules), worker.Env(), nil)
	if err != nil {
		return nil, err
	}
	b.worker = p
	conn := p.Conn()
	// On systems without deadlines for pipes, only the worker's exit ends a blocked read.
	defer context.AfterFunc(ctx, p.Kill)()
	c, err := client.New(ctx, conn, client.Options{Destroy: b.destroy, Enforced: b.d.caps.Enforced, NoWatch: true})
	if err != nil {
		return nil, err
	}
	if _, _, err := c.Setup(ctx, b.setup.Wire()); err != nil {
		conn.Close()
		return nil, sandbar.Errorf(sandbar.CodeOf(err), "the sandbox could not be built within its limits of disk and inodes: %w", err)
	}
	return &sandbox{c, b}, nil
}

// destroy ends the worker, which first ends its runners, so that no process is left when the worker
// has exited. A worker that does not exit is killed together with them.
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

// Reset kills every program of the sandbox and restores the initial files.
func (s *sandbox) Reset(ctx context.Context) error {
	_, _, err := s.Sandbox.Setup(ctx, s.b.setup.Wire())
	if sandbar.CodeOf(err) == sandbar.Unsupported {
		return sandbar.Errorf(sandbar.Internal, "a program of the sandbox does not end: %w", errors.Unwrap(err))
	}
	return err
}

// CurrentMemory returns the memory that files and programs of the sandbox use, in bytes.
func (s *sandbox) CurrentMemory(ctx context.Context) (int64, error) { return s.Sandbox.Usage(ctx) }
