package docker

import (
	"context"
	"io"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/volume"
	"github.com/moby/moby/client"

	"github.com/sandbar-dev/sandbar"
)

// volume returns the name of the volume with the agent's executable. Each driver has its own, so
// that no other removes it.
func (d *Driver) volume() string {
	return namePrefix + "agent-" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '.' {
			return r
		}
		return '_'
	}, d.owner)
}

// porter is the id of the container through which the agent's executable is copied to the volume.
// It is never started.
const porter = "agent"

// fillVolume sends the agent's executable to the engine, once. i is any image.
func (d *Driver) fillVolume(ctx context.Context, i image) error {
	if d.filled.Load() {
		return nil
	}
	select {
	case d.filling <- struct{}{}:
		defer func() { <-d.filling }()
	case <-ctx.Done():
		return sandbar.Errorf(sandbar.CodeOfContext(ctx), "waiting for the transfer of the agent: %w", ctx.Err())
	}
	if d.filled.Load() {
		return nil
	}
	if err := d.registry.Claim(porter); err != nil {
		return err
	}
	defer d.registry.Release(porter)
	// Other callers wait for the same transfer, so it does not end with its caller's context.
	err := d.sendAgent(context.WithoutCancel(ctx), i)
	if err == nil {
		d.filled.Store(true)
	}
	return err
}

// sendAgent creates the volume, and copies an archive to it through a container that never runs.
func (d *Driver) sendAgent(ctx context.Context, i image) (err error) {
	d.begun.Store(true)
	if err := d.engine.makeVolume(ctx, d.volume(), d.labels(porter)); err != nil {
		return err
	}
	name := d.volume()
	if err := d.engine.remove(ctx, name); err != nil { // left by a failed attempt
		return err
	}
	answered, err := d.engine.create(ctx, client.ContainerCreateOptions{Name: name,
		Config: &container.Config{Image: i.id, Entrypoint: []string{"/" + porter}, Labels: d.labels(porter), NetworkDisabled: true},
		HostConfig: &container.HostConfig{NetworkMode: "none", CapDrop: []string{"ALL"}, LogConfig: container.LogConfig{Type: "none"},
			Mounts: []mount.Mount{{Type: mount.TypeVolume, Source: name, Target: agentDir, VolumeOptions: &mount.VolumeOptions{NoCopy: true}}}}})
	defer func() {
		if rerr := d.engine.remove(ctx, name); rerr != nil {
			d.sweeper.Expect(answered)
			if err == nil {
				err = rerr
			}
		}
	}()
	if err != nil {
		return err
	}
	return d.engine.copyAgent(ctx, name, d.program)
}

func (e *engine) makeVolume(ctx context.Context, name string, labels map[string]string) error {
	return e.call(ctx, quickBound, "making a volume for the agent", func(ctx context.Context) error {
		_, err := e.api.VolumeCreate(ctx, client.VolumeCreateOptions{Name: name, Labels: labels})
		return err
	})
}

// removeVolume removes a volume. A missing one is no error.
func (e *engine) removeVolume(ctx context.Context, name string) error {
	return e.call(ctx, quickBound, "removing the agent's volume", func(ctx context.Context) error {
		if _, err := e.api.VolumeRemove(ctx, name, client.VolumeRemoveOptions{}); err != nil && !errdefs.IsNotFound(err) {
			return err
		}
		return nil
	})
}

// volumes returns all volumes with a label.
func (e *engine) volumes(ctx context.Context, label string) (list []volume.Volume, err error) {
	err = e.call(ctx, quickBound, "listing volumes", func(ctx context.Context) error {
		r, err := e.api.VolumeList(ctx, client.VolumeListOptions{Filters: make(client.Filters).Add("label", label)})
		list = r.Items
		return err
	})
	return list, err
}

func (e *engine) copyAgent(ctx context.Context, name string, program []byte) error {
	return e.call(ctx, startBound, "sending the agent to the engine", func(ctx context.Context) error {
		r, w := io.Pipe()
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			w.CloseWithError(agentArchive(w, program))
		}()
		defer func() {
			_ = r.Close()
			<-sent
		}()
		_, err := e.api.CopyToContainer(ctx, name, client.CopyToContainerOptions{DestinationPath: agentDir, Content: r})
		return err
	})
}
