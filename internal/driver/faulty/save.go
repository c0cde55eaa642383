package faulty

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// savingSandbox is a sandbox with the ability driver.Saver.
type savingSandbox struct{ fullSandbox }

// savedFile is one file of a state.
type savedFile struct {
	Mode fs.FileMode
	Data []byte
}

// stateFile is the only file of a state.
const stateFile = "files.json"

// Save writes the sandbox's files. A state takes as many bytes as its file has.
func (b savingSandbox) Save(ctx context.Context, dir string, o driver.SaveOptions) (int64, error) {
	select {
	case <-b.dead:
		return 0, gone()
	default:
	}
	files := map[string]savedFile{}
	b.fs.mu.Lock()
	for path, n := range b.fs.nodes {
		files[path] = savedFile{n.mode, n.data}
	}
	b.fs.mu.Unlock()
	content, err := json.Marshal(files)
	if err != nil {
		return 0, err
	}
	size := int64(len(content))
	if o.MaxBytes > 0 && size > o.MaxBytes {
		return 0, sandbar.Errorf(sandbar.Exhausted, "faulty: the state is too large")
	}
	if err := os.WriteFile(filepath.Join(dir, stateFile), content, 0o600); err != nil {
		return 0, err
	}
	if err := b.d.hook(ctx, b.d.OnSave); err != nil {
		return 0, err
	}
	if o.Commit != nil {
		if err := o.Commit(size); err != nil {
			return 0, err
		}
	}
	return size, nil
}

// Restore makes a sandbox from a state. Unsupported: Saves is false. Gone: the state is damaged.
func (d *Driver) Restore(ctx context.Context, id sandbar.ID, s sandbar.Spec, dir string) (driver.Sandbox, error) {
	if !d.Saves {
		return nil, sandbar.Errorf(sandbar.Unsupported, "faulty: states cannot be restored")
	}
	if err := d.hook(ctx, d.OnRestore); err != nil {
		return nil, err
	}
	files := map[string]savedFile{}
	content, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err == nil {
		err = json.Unmarshal(content, &files)
	}
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Gone, "faulty: the state is damaged: %w", err)
	}
	sb, err := d.Create(ctx, id, s)
	if err != nil {
		return nil, err
	}
	m := sb.(savingSandbox).fs
	m.mu.Lock()
	defer m.mu.Unlock()
	for path, f := range files {
		m.nodes[path] = &node{mode: f.Mode, data: f.Data}
		m.used += int64(len(f.Data))
	}
	return sb, nil
}
