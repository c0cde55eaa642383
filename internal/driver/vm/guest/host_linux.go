package guest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/linux/hostenv"
	"github.com/sandbar-dev/sandbar/internal/linux/policy"
)

// Source returns a function for BuildRoot that opens the tree of an image, and a function that
// allows the removal of the image again. paths are additional paths of the host for the image
// "host", separated by colons; see hostenv.ParsePaths. NotFound: there is no such image.
func Source(ctx context.Context, images driver.Images, name, paths string) (open func(context.Context) (*Tree, error), release func(), err error) {
	image, err := hostenv.OpenImage(ctx, images, name)
	if err != nil {
		return nil, nil, err
	}
	if image != nil {
		return func(ctx context.Context) (*Tree, error) { return ImageTree(ctx, image.ID, image.Dir) }, image.Close, nil
	}
	return func(ctx context.Context) (*Tree, error) {
		extra, err := hostenv.ParsePaths(paths)
		if err != nil {
			return nil, err
		}
		return HostTree(ctx, extra)
	}, func() {}, nil
}

// HostTree returns the tree of the image "host": what the native driver shows of the host, by the
// plan of package policy. extra are additional paths of the host; see policy.CheckExtra. Files that
// this user cannot read are left out.
func HostTree(ctx context.Context, extra []string) (*Tree, error) {
	layout, err := hostenv.ReadLayout(extra)
	if err != nil {
		return nil, err
	}
	steps, err := policy.HostRoot(policy.HostRootOptions{
		Dirs: layout.Dirs, Etc: layout.Etc, Extra: layout.Extra, Python: layout.Python,
		Disk: sandbar.Unlimited, Inodes: sandbar.Unlimited, Hostname: "sandbar",
	})
	if err != nil {
		return nil, err
	}
	t := newTree("")
	for _, m := range steps {
		if err := t.apply(ctx, m); err != nil {
			t.Close()
			return nil, treeError(err)
		}
	}
	return t, nil
}

// own reports whether the machine mounts its own file system at a path, so that the plan's steps
// for it do not apply.
func own(p string) bool {
	for _, dir := range []string{"/proc", "/dev"} {
		if p == dir || strings.HasPrefix(p, dir+"/") {
			return true
		}
	}
	return false
}

// apply adds the result of one step of the plan to the tree. Steps that set flags or hide parts of
// /proc have none.
func (t *Tree) apply(ctx context.Context, m wire.Mount) error {
	if own(m.Target) {
		t.dir("/" + strings.SplitN(m.Target, "/", 3)[1])
		return nil
	}
	switch m.Kind {
	case wire.MountMkdir:
		n := t.dir(m.Target)
		n.mode = fs.ModeDir | fs.FileMode(m.Mode&0o777)
		if m.Mode&0o1000 != 0 {
			n.mode |= fs.ModeSticky
		}
	case wire.MountTmpfs:
		t.dir(m.Target)
	case wire.MountSymlink:
		t.put(m.Target, &node{mode: fs.ModeSymlink | 0o777, modified: time.Unix(0, 0), link: m.Source, size: int64(len(m.Source))})
	case wire.MountFile:
		t.put(m.Target, &node{mode: fs.FileMode(m.Mode & 0o777), modified: time.Unix(0, 0), text: []byte(m.Source), size: int64(len(m.Source))})
	case wire.MountBindInner:
		// A directory of the plan's own covers one of the host's.
		if own(m.Source) {
			t.put(m.Target, &node{mode: fs.ModeDir | 0o755, modified: time.Unix(0, 0), children: map[string]*node{}})
		}
	case wire.MountBind:
		err := t.bind(ctx, m.Source, m.Target)
		if m.Flags&wire.MountOptional != 0 && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)) {
			return nil
		}
		return err
	}
	return nil
}

// bind adds a directory or file of the host at a path of the tree. Like a bind mount, it resolves
// symbolic links in the path of the host only.
func (t *Tree) bind(ctx context.Context, from, to string) error {
	from, err := filepath.EvalSymlinks(from)
	if err != nil {
		return err
	}
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	top := from
	if !info.IsDir() {
		top = filepath.Dir(from)
	}
	r, err := os.OpenRoot(top)
	if err != nil {
		return err
	}
	t.roots = append(t.roots, r)
	if info.IsDir() {
		n := t.dir(to)
		n.mode, n.modified = fs.ModeDir|info.Mode().Perm(), info.ModTime()
		return t.walk(ctx, r, r, "", n, 0)
	}
	// The file may have another name than the link that leads to it.
	found := &node{children: map[string]*node{}}
	name := filepath.Base(from)
	if err := t.entry(ctx, r, r, "", found, name, info, 0); err != nil {
		return err
	}
	if n := found.children[name]; n != nil {
		t.put(to, n)
	}
	return nil
}
