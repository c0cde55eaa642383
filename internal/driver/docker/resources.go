package docker

import (
	"context"
	"errors"
	"strings"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
)

// resources has the parts of one sandbox. Its fields are set as the parts are created.
type resources struct {
	d     *Driver
	id    sandbar.ID
	image image
	// closed after the engine has answered the creation; nil before the request
	asked   <-chan struct{}
	stream  *stream
	account *usageReader
}

func (b *resources) name() string { return containerName(b.id) }

// create creates the sandbox. On an error the caller must call undo.
func (b *resources) create(ctx context.Context, s sandbar.Spec) (*client.Sandbox, error) {
	var err error
	if b.image, err = b.d.openImage(ctx, s.Image); err != nil {
		return nil, err
	}
	p, err := b.d.planFor(b.id, s, b.image)
	if err != nil {
		return nil, err
	}
	if err := b.d.fillVolume(ctx, b.image); err != nil {
		return nil, err
	}
	if b.asked, err = b.d.engine.create(ctx, p.container); err != nil {
		return nil, err
	}
	if b.stream, err = b.d.engine.attach(ctx, b.name()); err != nil {
		return nil, err
	}
	if err := b.d.engine.start(ctx, b.name()); err != nil {
		b.d.filled.Store(false) // the agent may have been removed from its volume
		return nil, err
	}
	return b.setUpAgent(ctx, p, s)
}

// setUpAgent waits for the agent, and makes it confine itself and its programs.
func (b *resources) setUpAgent(ctx context.Context, p *plan, s sandbar.Spec) (*client.Sandbox, error) {
	bounded, cancel := context.WithTimeout(ctx, quickBound)
	defer cancel()
	b.account = b.d.openUsage(bounded, b.name())
	sb, err := client.New(bounded, b.stream, client.Options{Destroy: b.destroy, Usage: b.account.usage, Enforced: b.d.caps.Enforced})
	if err != nil {
		return nil, b.agentError(ctx, err)
	}
	threads, _, err := sb.Setup(bounded, &p.setup)
	if err == nil {
		err = b.limitPIDs(bounded, s.Limits.PIDs, int64(threads))
	}
	if err != nil {
		_ = b.stream.Close()
		<-sb.Dead() // the reader goroutine has ended
		return nil, b.agentError(ctx, err)
	}
	return sb, nil
}

// agentError returns the error for an agent that does not answer correctly.
func (b *resources) agentError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return sandbar.Errorf(sandbar.CodeOfContext(ctx), "waiting for the agent: %w", ctx.Err())
	}
	e := *sandbar.AsError(err)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		e.Code, e.Message = sandbar.Unavailable, "the agent in a new container does not answer"
	case e.Code == sandbar.Gone:
		e.Code, e.Message, e.Fix = sandbar.Unavailable, "a new container ended, or its engine did, before it was ready", "try again; see docker info"
	}
	if said := strings.TrimSpace(b.stream.Stderr()); said != "" {
		e.Message += "; its container says " + sandbar.Quote(said, maxEngineText)
	}
	return &e
}

// limitPIDs sets the process limit to the requested number plus the agent's own threads.
func (b *resources) limitPIDs(ctx context.Context, asked, threads int64) error {
	was := b.d.agentThreads()
	b.d.threads.Store(threads)
	if asked <= 0 || threads == was || b.d.caps.Enforced.PIDs == sandbar.EnforcedNone {
		return nil
	}
	return b.d.engine.setPIDs(ctx, b.name(), asked+threads)
}

// destroy kills the container and removes it.
func (b *resources) destroy(ctx context.Context) error {
	if err := b.d.engine.remove(ctx, b.name()); err != nil {
		return err
	}
	b.release()
	return nil
}

// release releases the sandbox's local resources.
func (b *resources) release() {
	if b.account != nil {
		b.account.close()
	}
	b.image.close()
	b.d.registry.Release(string(b.id))
}

// undo removes a sandbox whose creation failed, even after the end of ctx. The sweeper removes what
// the engine does not remove now.
func (b *resources) undo(ctx context.Context) {
	if b.stream != nil {
		_ = b.stream.Close()
	}
	if b.asked != nil {
		remove := func(ctx context.Context) error { return b.d.engine.remove(ctx, b.name()) }
		if err := b.d.sweeper.Undo(ctx, b.asked, remove); err != nil {
			b.d.log.Warn("a container that failed could not be removed yet", "sandbox", b.id, "error", err)
		}
	}
	b.release()
}
