package docker

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"github.com/sandbar-dev/sandbar"
)

// Timeouts of calls to the engine, far beyond the time that a healthy engine needs.
const (
	greetBound  = 5 * time.Second  // in New: whether there is an engine
	quickBound  = 20 * time.Second // lookups, and creating objects that do not run
	startBound  = time.Minute      // starting a container, including its runtime
	removeBound = time.Minute      // killing and removing a container
	copyBound   = 15 * time.Minute // sending an image

	// createGrace is the additional wait for a creation after its caller has left. An engine
	// needs milliseconds.
	createGrace = 2 * time.Second
)

// engine is a Docker Engine. Every call has its own timeout besides its caller's context, and
// returns a *sandbar.Error.
type engine struct {
	api *client.Client
	at  endpoint
}

// call makes one call that takes at most bound.
func (e *engine) call(ctx context.Context, bound time.Duration, what string, f func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	return e.failed(ctx, what, f(bounded))
}

// probe determines which engine this is.
func (e *engine) probe(ctx context.Context) (info system.Info, err error) {
	err = e.call(ctx, greetBound, "asking the engine for its properties", func(ctx context.Context) error {
		// The first call negotiates the API version. It is separate, because the client continues
		// other calls without an answer.
		if _, err := e.api.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
			return err
		}
		r, err := e.api.Info(ctx, client.InfoOptions{})
		info = r.Info
		return err
	})
	return info, err
}

// create creates a container without starting it. An engine completes a creation even if the client
// leaves. So after the end of ctx the call continues for a little longer, and answered is closed
// when the engine has answered or cannot answer any more.
func (e *engine) create(ctx context.Context, o client.ContainerCreateOptions) (answered <-chan struct{}, err error) {
	const what = "creating a container"
	var cause error
	done := make(chan struct{})
	go func() {
		defer close(done)
		cause = e.call(context.WithoutCancel(ctx), quickBound, what, func(ctx context.Context) error {
			_, err := e.api.ContainerCreate(ctx, o)
			return err
		})
	}()
	select {
	case <-done:
		return done, cause
	case <-ctx.Done():
	}
	select {
	case <-done:
	case <-time.After(createGrace):
	}
	return done, sandbar.Errorf(sandbar.CodeOfContext(ctx), "%s: %w", what, ctx.Err())
}

// attach connects to a container's standard streams, before its start, so that no output is lost.
func (e *engine) attach(ctx context.Context, name string) (s *stream, err error) {
	err = e.call(ctx, quickBound, "attaching to a container", func(ctx context.Context) error {
		free := new(atomic.Bool)
		r, err := e.api.ContainerAttach(context.WithValue(ctx, freeKey{}, free), name, client.ContainerAttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
		if err == nil {
			free.Store(true)
			s = newStream(r.Conn, r.Reader)
		}
		return err
	})
	return s, err
}

// start starts a container. An error here is not caused by the request: the engine has accepted the
// same parameters before.
func (e *engine) start(ctx context.Context, name string) error {
	err := e.call(ctx, startBound, "starting a container", func(ctx context.Context) error {
		_, err := e.api.ContainerStart(ctx, name, client.ContainerStartOptions{})
		return err
	})
	if code := sandbar.CodeOf(err); code == sandbar.Unsupported || code == sandbar.NotFound || code == sandbar.Conflict {
		failed := *sandbar.AsError(err)
		failed.Code, failed.Fix = sandbar.Internal, ""
		return &failed
	}
	return err
}

// inspect returns a container's state. NotFound: there is none.
func (e *engine) inspect(ctx context.Context, name string) (c container.InspectResponse, err error) {
	err = e.call(ctx, quickBound, "looking at a container", func(ctx context.Context) error {
		r, err := e.api.ContainerInspect(ctx, name, client.ContainerInspectOptions{})
		c = r.Container
		return err
	})
	return c, err
}

// remove kills a container, and returns when no container of that name exists.
func (e *engine) remove(ctx context.Context, name string) error {
	return e.call(ctx, removeBound, "removing a container", func(ctx context.Context) error {
		for pause := 5 * time.Millisecond; ; pause = min(2*pause, time.Second) {
			_, err := e.api.ContainerRemove(ctx, name, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
			switch {
			case err == nil, errdefs.IsNotFound(err):
				return nil
			case !errdefs.IsConflict(err):
				return err
			}
			// The container has stopped by itself, and the engine removes it already.
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(pause):
			}
		}
	})
}

// setPIDs changes the process limit of a container.
func (e *engine) setPIDs(ctx context.Context, name string, n int64) error {
	return e.call(ctx, quickBound, "limiting the processes of a container", func(ctx context.Context) error {
		_, err := e.api.ContainerUpdate(ctx, name, client.ContainerUpdateOptions{Resources: &container.Resources{PidsLimit: &n}})
		return err
	})
}

// labelled returns all containers with a label, including those that do not run.
func (e *engine) labelled(ctx context.Context, label string) (list []container.Summary, err error) {
	err = e.call(ctx, quickBound, "listing containers", func(ctx context.Context) error {
		r, err := e.api.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: make(client.Filters).Add("label", label)})
		list = r.Items
		return err
	})
	return list, err
}
