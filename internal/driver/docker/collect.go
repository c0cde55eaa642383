package docker

import (
	"context"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/linux/daemonid"
)

// neverStarted is how old a container is that was made and never started, and
// that no live daemon has any business with: between the two are milliseconds,
// and at most startBound and what an engine's queue adds.
const neverStarted = 10 * time.Minute

// Collect finds, and with remove removes, what daemons that were killed have
// left on the engine: containers and the agents' volumes. Of daemons of this
// host it is known whether they live. Those of other hosts, and of earlier boots,
// end by themselves with their connection; what was never started of theirs is
// left over when it is old.
func (d *Driver) Collect(ctx context.Context, remove bool) ([]driver.Leftover, error) {
	list, err := d.engine.labelled(ctx, labelOwner)
	if err != nil {
		return nil, err
	}
	var found []driver.Leftover
	for _, c := range list {
		if !leftOver(c, daemonid.Scope(), daemonid.Alive, time.Now()) {
			continue
		}
		l := driver.Leftover{Kind: "container", Name: strings.TrimPrefix(strings.Join(c.Names, " "), "/")}
		if remove {
			l.Err = d.engine.remove(ctx, c.ID)
		}
		found = append(found, l)
	}
	volumes, err := d.engine.volumes(ctx, labelOwner)
	if err != nil {
		return found, err
	}
	for _, v := range volumes {
		if !ownerDead(v.Labels[labelOwner], daemonid.Scope(), daemonid.Alive) {
			continue
		}
		l := driver.Leftover{Kind: "volume", Name: v.Name}
		if remove {
			l.Err = d.engine.removeVolume(ctx, v.Name)
		}
		found = append(found, l)
	}
	return found, nil
}

// leftOver reports whether nobody has any business with a container.
func leftOver(c container.Summary, here string, alive func(string) bool, now time.Time) bool {
	if ownerDead(c.Labels[labelOwner], here, alive) {
		return true
	}
	place, _, _ := strings.Cut(c.Labels[labelOwner], "/")
	return (here == "" || place != here) && c.State == container.StateCreated && now.Sub(time.Unix(c.Created, 0)) > neverStarted
}

// ownerDead reports whether an owner is known to be dead. here is where this
// process can tell.
func ownerDead(label, here string, alive func(string) bool) bool {
	parts := strings.Split(label, "/")
	return len(parts) == 3 && here != "" && parts[0] == here && !alive(parts[1])
}
