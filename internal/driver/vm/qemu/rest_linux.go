package qemu

import "context"

// Stop implements monitor.VM.
func (v *machine) Stop(ctx context.Context) error {
	return v.explain("stopping a machine", v.qmp.run(ctx, command{Execute: "stop"}))
}

// Continue implements monitor.VM.
func (v *machine) Continue(ctx context.Context) error {
	return v.explain("continuing a machine", v.qmp.run(ctx, command{Execute: "cont"}))
}
