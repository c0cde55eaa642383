package image

import (
	"errors"
	"io/fs"
	"os"
	"path"
)

// merge moves an unpacked layer below top/from over the tree at top/to. The layer's removals apply
// to the tree only, never to the layer itself, wherever in the archive they are. It uses only names
// that it has checked.
func merge(top *os.Root, from, to string, l *layer) error {
	m := merger{top: top, from: from, to: to, layer: l}
	tree, err := top.OpenRoot(to)
	if err != nil {
		return err
	}
	defer tree.Close()
	w := walker{top: tree}
	defer w.close()
	for _, dir := range l.opaque {
		if err := emptyDir(&w, dir); err != nil {
			return err
		}
	}
	for _, p := range l.removed {
		if err := removeLower(&w, p); err != nil {
			return err
		}
	}
	w.cut(0)
	if err := m.dir("."); err != nil {
		return err
	}
	return m.links(&w)
}

// missing reports that the tree below has nothing at a path: the path does not exist, or leads
// through something other than directories.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errThroughLink) }

// emptyDir removes the contents of a directory.
func emptyDir(w *walker, dir string) error {
	d, err := w.dir(dir, false)
	if err != nil {
		if missing(err) {
			return nil
		}
		return err
	}
	entries, err := fs.ReadDir(d.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := d.RemoveAll(e.Name()); err != nil {
			return err
		}
	}
	return nil
}

func removeLower(w *walker, p string) error {
	dir, base := path.Split(p)
	d, err := w.dir(path.Clean(dir), false)
	if err != nil {
		if missing(err) {
			return nil
		}
		return err
	}
	w.forget(p)
	return d.RemoveAll(base)
}

type merger struct {
	top      *os.Root
	from, to string
	layer    *layer
}

// dir merges a directory that exists in both the layer and the tree.
func (m *merger) dir(p string) error {
	if err := m.layer.ctx.Err(); err != nil {
		return err
	}
	d, err := m.top.OpenRoot(path.Join(m.from, p))
	if err != nil {
		return err
	}
	info, err := d.Stat(".")
	var entries []fs.DirEntry
	if err == nil {
		entries, err = fs.ReadDir(d.FS(), ".")
	}
	d.Close()
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := m.entry(path.Join(p, e.Name()), e.IsDir()); err != nil {
			return err
		}
	}
	if p == "." || m.layer.implicit[p] {
		return nil
	}
	return chmodDir(m.top, path.Join(m.to, p), info.Mode())
}

func (m *merger) entry(p string, isDir bool) error {
	target := path.Join(m.to, p)
	info, err := m.top.Lstat(target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case isDir && info.IsDir():
		return m.dir(p)
	default:
		if err := m.top.RemoveAll(target); err != nil {
			return err
		}
	}
	return m.top.Rename(path.Join(m.from, p), target)
}

// links creates the hard links to files of lower layers.
func (m *merger) links(w *walker) error {
	for _, link := range m.layer.links {
		if err := m.link(w, link[0], link[1]); err != nil {
			return explainEntry(link[0], err)
		}
	}
	return nil
}

func (m *merger) link(w *walker, p, to string) error {
	toDir, toBase := path.Split(to)
	d, err := w.dir(path.Clean(toDir), false)
	if err != nil {
		if missing(err) {
			return malformed("a hard link leads to " + printable(to) + ", which does not exist")
		}
		return err
	}
	info, err := d.Lstat(toBase)
	if errors.Is(err, fs.ErrNotExist) {
		return malformed("a hard link leads to " + printable(to) + ", which does not exist")
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		return malformed("a hard link leads to a directory")
	}
	dir, base := path.Split(p)
	d, err = w.dir(path.Clean(dir), true)
	if err != nil {
		return err
	}
	w.forget(p)
	if err := d.RemoveAll(base); err != nil {
		return err
	}
	return m.top.Link(path.Join(m.to, to), path.Join(m.to, p))
}
