package docker

import (
	"context"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/linux/daemonid"
)

// neverStarted is the age at which a created and never started container without a live daemon
// counts as left over. Normally milliseconds pass between creation and start, at most startBound
// plus the engine's queue.
const neverStarted = 10 * time.Minute

// Collect finds, and with remove removes, the leftovers of killed daemons on the engine: containers
// and the agents' volumes. It can determine whether daemons of this host are alive. Containers of
// other hosts, and of earlier boots, end with their connection; those that were never started are
// left over at the age of neverStarted.
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
		if !daemonid.OwnerDead(v.Labels[labelOwner], daemonid.Scope(), daemonid.Alive) {
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

// leftOver reports whether no daemon uses a container any more.
func leftOver(c container.Summary, here string, alive func(string) bool, now time.Time) bool {
	if daemonid.OwnerDead(c.Labels[labelOwner], here, alive) {
		return true
	}
	place, _, _ := strings.Cut(c.Labels[labelOwner], "/")
	return (here == "" || place != here) && c.State == container.StateCreated && now.Sub(time.Unix(c.Created, 0)) > neverStarted
}
