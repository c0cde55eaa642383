package memfs

import (
	"strings"
	"syscall"
)

const (
	maxPath    = 4096
	maxName    = 255
	maxFollows = 40
)

// place is the result of resolving a path: a directory, a name in it, and the inode. name is "" for
// the root, ".", and paths that end in "..".
type place struct {
	dir   uint64
	name  string
	inode *inode // nil if only the last component does not exist
	slash bool   // the path ends in a slash, so it must be a directory
}

// locate resolves a path relative to the directory cwd. follow: follow a symbolic link in the last
// component. A slash at the end of path implies follow.
func (f *FS) locate(cwd, path string, follow bool) (place, error) {
	start, err := f.start(cwd, path)
	if err != nil {
		return place{}, err
	}
	w := walk{fs: f, follow: follow}
	return w.from(start, path)
}

// start returns the directory where the resolution of a path begins.
func (f *FS) start(cwd, path string) (uint64, error) {
	if err := checkPath(path); err != nil {
		return 0, err
	}
	if path[0] == '/' || cwd == "" || cwd == "/" {
		return rootNumber, nil
	}
	if err := checkPath(cwd); err != nil {
		return 0, err
	}
	w := walk{fs: f, follow: true}
	p, err := w.from(rootNumber, cwd)
	switch {
	case err != nil:
		return 0, err
	case p.inode == nil:
		return 0, syscall.ENOENT
	case !p.inode.mode.IsDir():
		return 0, syscall.ENOTDIR
	}
	return p.inode.number, nil
}

func checkPath(path string) error {
	switch {
	case path == "":
		return syscall.ENOENT
	case len(path) >= maxPath:
		return syscall.ENAMETOOLONG
	case strings.IndexByte(path, 0) >= 0:
		return syscall.EINVAL
	}
	return nil
}

// walk is the resolution of one path.
type walk struct {
	fs     *FS
	follow bool
	links  int // symbolic links followed so far
}

// from resolves path relative to directory dir. At a symbolic link, it continues with the target
// and the rest of the path. The number of followed links and the length of a path bound the work.
func (w *walk) from(dir uint64, path string) (place, error) {
	if path[0] == '/' {
		dir = rootNumber
	}
	at := place{dir: dir, inode: w.fs.inode(dir)}
	for {
		name, rest, last := split(path)
		if name == "" {
			return at, nil
		}
		if !at.inode.mode.IsDir() {
			return place{}, syscall.ENOTDIR
		}
		next, err := w.step(at.inode, name)
		if err != nil {
			return place{}, err
		}
		next.slash = last && strings.HasSuffix(path, "/")
		switch {
		case next.inode == nil && !last:
			return place{}, syscall.ENOENT
		case next.inode == nil:
			return next, nil
		case next.inode.isLink() && (!last || w.follow || next.slash):
			if w.links++; w.links > maxFollows {
				return place{}, syscall.ELOOP
			}
			target := next.inode.target
			if target[0] == '/' {
				at = place{dir: rootNumber, inode: w.fs.inode(rootNumber)}
			}
			path = target
			if rest != "" || next.slash {
				path += "/" + rest
			}
			continue
		case next.slash && !next.inode.mode.IsDir():
			return place{}, syscall.ENOTDIR
		}
		at, path = next, rest
	}
}

// step looks up one component.
func (w *walk) step(dir *inode, name string) (place, error) {
	switch {
	case name == ".":
		return place{dir: dir.number, inode: dir}, nil
	case name == "..":
		up := w.fs.inode(dir.parent)
		if up == nil { // the parent was removed, and dir with it
			return place{}, syscall.ENOENT
		}
		return place{dir: up.number, inode: up}, nil
	case len(name) > maxName:
		return place{}, syscall.ENAMETOOLONG
	}
	p := place{dir: dir.number, name: name}
	if n, ok := dir.entries[name]; ok {
		p.inode = w.fs.inode(n)
	}
	return p, nil
}

// split returns the first component of a path and the rest. last: no other component follows.
func split(path string) (name, rest string, last bool) {
	path = strings.TrimLeft(path, "/")
	name, rest, _ = strings.Cut(path, "/")
	return name, rest, strings.Trim(rest, "/") == ""
}

// found resolves a path that must exist.
func (f *FS) found(cwd, path string, follow bool) (place, error) {
	p, err := f.locate(cwd, path, follow)
	if err == nil && p.inode == nil {
		err = syscall.ENOENT
	}
	return p, err
}

// entry resolves a path to a directory entry. It does not follow a symbolic link in the last
// component, even with a slash at the end.
func (f *FS) entry(cwd, path string) (place, error) {
	trimmed := strings.TrimRight(path, "/")
	if trimmed == "" {
		trimmed = path
	}
	p, err := f.locate(cwd, trimmed, false)
	p.slash = len(trimmed) < len(path)
	return p, err
}

// misplacedSlash reports whether the path ends in a slash but does not name a directory.
func (p place) misplacedSlash() bool { return p.slash && p.inode != nil && !p.inode.mode.IsDir() }

// existing is entry for a name that must exist.
func (f *FS) existing(cwd, path string) (place, error) {
	p, err := f.entry(cwd, path)
	switch {
	case err != nil:
	case p.inode == nil:
		err = syscall.ENOENT
	case p.misplacedSlash():
		err = syscall.ENOTDIR
	}
	return p, err
}

// vacant is entry for a name that must not exist.
func (f *FS) vacant(cwd, path string) (place, error) {
	p, err := f.entry(cwd, path)
	if err == nil && p.inode != nil {
		err = syscall.EEXIST
	}
	return p, err
}

// path returns the absolute path of a directory.
func (f *FS) path(n uint64) (string, error) {
	var names []string
	for n != rootNumber {
		up := f.inode(f.inode(n).parent)
		name, ok := "", false
		for k, v := range up.entries {
			if v == n {
				name, ok = k, true
				break
			}
		}
		if !ok {
			return "", syscall.ENOENT
		}
		names = append(names, name)
		n = up.number
	}
	var b strings.Builder
	for i := len(names) - 1; i >= 0; i-- {
		b.WriteByte('/')
		b.WriteString(names[i])
	}
	return b.String(), nil
}
