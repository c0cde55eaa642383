package image

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
)

// walker finds directories of a tree by path without following links. No other process may change
// the tree meanwhile. It keeps the path to the last directory open, since consecutive entries are
// mostly in the same one.
type walker struct {
	top   *os.Root
	names []string
	dirs  []*os.Root // one for each element of names
	// made, if not nil, is called for each directory that was created.
	made func(path string)
}

// errThroughLink: a path leads through something other than a directory.
var errThroughLink = errors.New("its path leads through a link or a file")

// dir returns the open directory dir, "." for the top. With mk it creates missing directories.
func (w *walker) dir(dir string, mk bool) (*os.Root, error) {
	var names []string
	if dir != "." {
		names = strings.Split(dir, "/")
	}
	same := 0
	for same < len(names) && same < len(w.names) && names[same] == w.names[same] {
		same++
	}
	w.cut(same)
	for i := same; i < len(names); i++ {
		d, err := w.step(names[:i+1], mk)
		if err != nil {
			return nil, err
		}
		w.names, w.dirs = append(w.names, names[i]), append(w.dirs, d)
	}
	return w.last(), nil
}

func (w *walker) last() *os.Root {
	if len(w.dirs) == 0 {
		return w.top
	}
	return w.dirs[len(w.dirs)-1]
}

// step opens the last of names in the current directory.
func (w *walker) step(names []string, mk bool) (*os.Root, error) {
	at, name := w.last(), names[len(names)-1]
	info, err := at.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && mk:
		if err := at.Mkdir(name, 0o755); err != nil {
			return nil, err
		}
		if err := chmodDir(at, name, 0o755); err != nil {
			return nil, err
		}
		if w.made != nil {
			w.made(path.Join(names...))
		}
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, errThroughLink
	}
	return at.OpenRoot(name)
}

// cut closes all but the first n directories of the path.
func (w *walker) cut(n int) {
	for _, d := range w.dirs[n:] {
		d.Close()
	}
	w.names, w.dirs = w.names[:n], w.dirs[:n]
}

// forget closes what is open below path, because it has changed.
func (w *walker) forget(p string) {
	names := strings.Split(p, "/")
	if len(names) > len(w.names) {
		return
	}
	for i, n := range names {
		if w.names[i] != n {
			return
		}
	}
	w.cut(len(names) - 1)
}

func (w *walker) close() { w.cut(0) }
