package kubernetes

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandbar-dev/sandbar/driver"
)

// collectBound bounds the removal of one pod.
const collectBound = 30 * time.Second

// Collect finds, and with remove removes, the objects of daemons that are dead: their process on
// this host does not run any more, or this daemon has watched their Lease expire. Kubernetes
// removes the objects of a Lease by itself after the Lease; Collect waits for the pods.
func (d *Driver) Collect(ctx context.Context, remove bool) ([]driver.Leftover, error) {
	dead, err := d.gateway.dead(ctx)
	if err != nil {
		return nil, err
	}
	var found []driver.Leftover
	for _, lease := range dead {
		var list corev1.PodList
		if err := d.api.list(ctx, pods, labelGateway+"="+lease.Name, &list); err != nil {
			return found, err
		}
		for _, p := range list.Items {
			l := driver.Leftover{Kind: "pod", Name: p.Name}
			if remove {
				bounded, cancel := context.WithTimeout(ctx, collectBound)
				l.Err = d.awaitRemoval(bounded, p.Name, p.UID)
				cancel()
			}
			found = append(found, l)
		}
		l := driver.Leftover{Kind: "lease", Name: lease.Name}
		if remove {
			for _, resource := range []string{policies, secrets} {
				if l.Err == nil {
					l.Err = d.api.remove(ctx, resource, lease.Name, "", nil)
				}
			}
			if l.Err == nil {
				l.Err = d.api.remove(ctx, leases, lease.Name, lease.UID, nil)
			}
		}
		found = append(found, l)
	}
	return found, nil
}
