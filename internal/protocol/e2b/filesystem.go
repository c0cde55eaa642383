package e2b

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
)

const (
	// maxEntries bounds a listing, and listPage the entries of one read.
	maxEntries = 50_000
	listPage   = 1000
	// maxLinks bounds the symbolic links on the way to a file, as Linux does.
	maxLinks = 40
)

// The messages of filesystem.Filesystem.
type (
	fileEntry struct {
		Name        string            `json:"name"`
		Type        string            `json:"type,omitempty"` // absent for a link to nothing
		Path        string            `json:"path"`
		Size        string            `json:"size,omitempty"`
		Mode        uint32            `json:"mode,omitempty"`
		Permissions string            `json:"permissions,omitempty"`
		Owner       string            `json:"owner,omitempty"`
		Group       string            `json:"group,omitempty"`
		Modified    time.Time         `json:"modifiedTime"`
		Target      string            `json:"symlinkTarget,omitempty"`
		Metadata    map[string]string `json:"metadata,omitempty"`
	}
	entryAnswer struct {
		Entry fileEntry `json:"entry"`
	}
	entriesAnswer struct {
		Entries []fileEntry `json:"entries,omitempty"`
	}
	pathRequest struct {
		Path string `json:"path"`
	}
	listRequest struct {
		Path  string `json:"path"`
		Depth int    `json:"depth"` // 0 is 1
	}
	moveRequest struct {
		Source      string `json:"source"`
		Destination string `json:"destination"`
	}
)

const (
	typeFile      = "FILE_TYPE_FILE"
	typeDirectory = "FILE_TYPE_DIRECTORY"
)

// describe returns the entry of a file. That of a symbolic link has the type and mode of its
// target.
func (l *life) describe(ctx context.Context, at string, i sandbar.FileInfo) fileEntry {
	e := fileEntry{Name: path.Base(at), Path: at, Modified: i.ModTime.UTC(), Owner: l.userName(ctx, i.UID), Group: l.userName(ctx, i.GID)}
	if i.Mode&fs.ModeSymlink != 0 {
		target, to, err := l.follow(ctx, at, i)
		e.Target = target
		if err != nil {
			e.Permissions = i.Mode.String()
			return e
		}
		i = to
	}
	switch {
	case i.Mode.IsDir():
		e.Type = typeDirectory
	case i.Mode.IsRegular():
		e.Type = typeFile
	}
	e.Size = strconv.FormatInt(i.Size, 10)
	e.Mode, e.Permissions = uint32(i.Mode.Perm()), i.Mode.String()
	return e
}

// follow follows a symbolic link to its end, and returns the path there.
func (l *life) follow(ctx context.Context, at string, i sandbar.FileInfo) (string, sandbar.FileInfo, error) {
	for range maxLinks {
		if i.Mode&fs.ModeSymlink == 0 {
			return path.Clean(at), i, nil
		}
		if strings.HasPrefix(i.Target, "/") {
			at = i.Target
		} else {
			at = path.Dir(at) + "/" + i.Target // not cleaned: a directory may be a link
		}
		var err error
		if i, err = l.sandbox.FS().Stat(ctx, at); err != nil {
			return path.Clean(at), i, err
		}
	}
	return path.Clean(at), i, sandbar.Errorf(sandbar.Invalid, "too many symbolic links")
}

// userName returns the name of a user or a group.
func (l *life) userName(ctx context.Context, id uint32) string {
	l.mu.Lock()
	owner := l.owner
	l.mu.Unlock()
	if owner == nil {
		if uid, err := l.user(ctx); err == nil {
			owner = &uid
			l.mu.Lock()
			l.owner = owner
			l.mu.Unlock()
		}
	}
	switch {
	case owner != nil && *owner == id:
		return "user"
	case id == 0:
		return "root"
	}
	return strconv.FormatUint(uint64(id), 10)
}

// user returns the user id of programs: the owner of the home directory or, where that is root's
// volume, as in a pod, of a new file.
func (l *life) user(ctx context.Context) (uint32, error) {
	files := l.sandbox.FS()
	i, err := files.Stat(ctx, home)
	if err != nil || i.UID != 0 {
		return i.UID, err
	}
	name := "/tmp/." + rand.Text()
	w, err := files.Create(ctx, name, sandbar.CreateOptions{})
	if err != nil {
		return 0, err
	}
	if err := w.Commit(); err != nil {
		return 0, err
	}
	i, err = files.Stat(ctx, name)
	return i.UID, errors.Join(err, files.Remove(ctx, name, false))
}

// explainPath makes the errors of the file system those of the protocol.
func explainPath(name string, err error) error {
	switch sandbar.CodeOf(err) {
	case sandbar.NotFound:
		return &sandbar.Error{Code: sandbar.NotFound, Field: "path", Message: "path not found: '" + printable(name) + "'", Err: err}
	case sandbar.Conflict:
		if sandbar.AsError(err).Field == "" || sandbar.AsError(err).Field == "path" {
			return &sandbar.Error{Code: sandbar.Invalid, Field: "path", Message: "path '" + printable(name) + "' is of the wrong type", Err: err}
		}
	}
	return err
}

func (l *life) stat(ctx context.Context, q pathRequest) (entryAnswer, error) {
	name, err := l.resolve(q.Path)
	if err != nil {
		return entryAnswer{}, err
	}
	i, err := l.sandbox.FS().Stat(ctx, name)
	if err != nil {
		return entryAnswer{}, explainPath(name, err)
	}
	return entryAnswer{l.describe(ctx, name, i)}, nil
}

// listDir lists a directory and, to the given depth, those below it. Symbolic links below it are
// not followed.
func (l *life) listDir(ctx context.Context, q listRequest) (entriesAnswer, error) {
	var a entriesAnswer
	root, err := l.resolve(q.Path)
	if err != nil {
		return a, err
	}
	if q.Depth < 0 {
		return a, invalid("depth", "depth must be at least 1", "")
	}
	i, err := l.sandbox.FS().Stat(ctx, root)
	if err == nil && i.Mode&fs.ModeSymlink != 0 {
		_, i, err = l.follow(ctx, root, i)
	}
	if err != nil {
		return a, explainPath(root, err)
	}
	if !i.Mode.IsDir() {
		return a, invalid("path", "path is not a directory: '"+printable(root)+"'", "")
	}
	type level struct {
		path  string
		depth int
	}
	for left := []level{{root, max(q.Depth, 1)}}; len(left) > 0; left = left[1:] {
		below, err := l.readDir(ctx, left[0].path, &a)
		switch {
		case err != nil && left[0].path != root && (sandbar.CodeOf(err) == sandbar.NotFound || sandbar.CodeOf(err) == sandbar.Denied):
			continue // removed in the meantime, or not readable
		case err != nil:
			return entriesAnswer{}, explainPath(left[0].path, err)
		}
		if left[0].depth > 1 {
			for _, name := range below {
				left = append(left, level{path.Join(left[0].path, name), left[0].depth - 1})
			}
		}
	}
	return a, nil
}

// readDir appends the entries of one directory, and returns the names of its directories.
func (l *life) readDir(ctx context.Context, dir string, a *entriesAnswer) (below []string, err error) {
	for after := ""; ; {
		page, err := l.sandbox.FS().ReadDir(ctx, dir, after, listPage)
		if err != nil {
			return nil, err
		}
		for _, i := range page {
			if len(a.Entries) == maxEntries {
				return nil, &sandbar.Error{Code: sandbar.TooLarge, Field: "path", Message: "the listing has more than " + strconv.Itoa(maxEntries) + " entries", Fix: "list less, or a smaller depth"}
			}
			a.Entries = append(a.Entries, l.describe(ctx, path.Join(dir, i.Name), i))
			if i.Mode.IsDir() {
				below = append(below, i.Name)
			}
			after = i.Name
		}
		if len(page) < listPage {
			return below, nil
		}
	}
}

// makeDir makes a directory, with its parents.
func (l *life) makeDir(ctx context.Context, q pathRequest) (entryAnswer, error) {
	name, err := l.resolve(q.Path)
	if err != nil {
		return entryAnswer{}, err
	}
	if i, err := l.sandbox.FS().Stat(ctx, name); err == nil {
		if i.Mode&fs.ModeSymlink != 0 {
			if _, to, err := l.follow(ctx, name, i); err == nil {
				i = to
			}
		}
		if i.Mode.IsDir() {
			return entryAnswer{}, &sandbar.Error{Code: sandbar.Exists, Field: "path", Message: "directory already exists: '" + printable(name) + "'"}
		}
		return entryAnswer{}, invalid("path", "path already exists but it is not a directory: '"+printable(name)+"'", "")
	}
	if err := l.sandbox.FS().Mkdir(ctx, name, 0o755, true); err != nil {
		return entryAnswer{}, explainPath(name, err)
	}
	return l.stat(ctx, pathRequest{name})
}

// move renames a file, and makes the parents of its new name.
func (l *life) move(ctx context.Context, q moveRequest) (entryAnswer, error) {
	from, err := l.resolve(q.Source)
	if err != nil {
		return entryAnswer{}, err
	}
	to, err := l.resolve(q.Destination)
	if err != nil {
		return entryAnswer{}, err
	}
	if _, err := l.sandbox.FS().Stat(ctx, from); err != nil {
		return entryAnswer{}, explainPath(from, err)
	}
	if err := l.sandbox.FS().Mkdir(ctx, path.Dir(to), 0o755, true); err != nil {
		return entryAnswer{}, explainPath(path.Dir(to), err)
	}
	if err := l.sandbox.FS().Rename(ctx, from, to); err != nil {
		return entryAnswer{}, explainPath(from, err)
	}
	return l.stat(ctx, pathRequest{to})
}

// remove removes a file, or a directory with its content. One that does not exist is no error.
func (l *life) remove(ctx context.Context, q pathRequest) error {
	name, err := l.resolve(q.Path)
	if err != nil {
		return err
	}
	if err := l.sandbox.FS().Remove(ctx, name, true); err != nil && sandbar.CodeOf(err) != sandbar.NotFound {
		return explainPath(name, err)
	}
	return nil
}
