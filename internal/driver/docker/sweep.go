package docker

import "context"

// sweep removes containers with this driver's label that belong to no known sandbox.
func (d *Driver) sweep(ctx context.Context) (found int, err error) {
	list, err := d.engine.labelled(ctx, labelOwner+"="+d.owner)
	if err != nil {
		return 0, err
	}
	for _, c := range list {
		if d.registry.Has(c.Labels[labelSandbox]) {
			continue
		}
		found++
		if err := d.engine.remove(ctx, c.ID); err != nil {
			return found, err
		}
	}
	return found, nil
}
