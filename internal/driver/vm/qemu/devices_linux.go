package qemu

import (
	"context"
	"errors"
)

// devicesFormat lets qemu restore what xen-save-devices-state has written: the same stream as that
// of a migration, without the parts that describe the machine.
func devicesFormat() []string { return []string{"-global", "migration.send-configuration=off"} }

// Stop implements monitor.VM.
func (v *machine) Stop(ctx context.Context) error {
	return v.explain("stopping a machine", v.qmp.run(ctx, command{Execute: "stop"}))
}

// Continue implements monitor.VM.
func (v *machine) Continue(ctx context.Context) error {
	return v.explain("continuing a machine", v.qmp.run(ctx, command{Execute: "cont"}))
}

// SaveDevices implements monitor.VM. Despite its name the command is independent of Xen: it is the
// one that saves a machine without its memory, which a clone maps from a file and does not share.
func (v *machine) SaveDevices(ctx context.Context) error {
	err := errors.New("the machine has no file for it")
	if v.spare != "" {
		err = v.qmp.run(ctx, command{"xen-save-devices-state", map[string]any{"filename": v.spare, "live": false}})
	}
	return v.explain("saving the devices of a machine", err)
}
