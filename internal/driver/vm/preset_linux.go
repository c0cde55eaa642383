package vm

import (
	"context"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

var _ driver.Presets = (*Driver)(nil)

// Preset implements driver.Presets: the root of the option, if it has the preset's program.
func (d *Driver) Preset(_ context.Context, name string) (image, ref string, ok bool) {
	program := map[string]string{"python": "python3", "node": "node"}[name]
	if !d.fixed || program == "" {
		return "", "", false
	}
	d.rootMu.Lock()
	root := d.roots[""]
	d.rootMu.Unlock()
	return sandbar.ImageHost, root.Path, root.HasProgram(program)
}
