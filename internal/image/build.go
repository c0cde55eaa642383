package image

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// build is an image in the making: a directory of its own, locked, that is gone
// at the end whatever happens. The unpacker writes to the directory stageName in
// it and nowhere else.
type build struct {
	s    *Store
	dir  string
	lock *os.File
}

// stageName is the staging directory, doneName what becomes the image's.
const (
	stageName = "stage"
	doneName  = "done"
)

// buildTries is how often a directory to unpack in is made anew when another
// that looks for leftovers has taken it between its making and its lock.
const buildTries = 10

func (s *Store) newBuild() (*build, error) {
	_, _ = s.unfinished(true) // room for the new; what cannot be removed GC tells of
	for try := 1; ; try++ {
		b, err := s.tryBuild()
		taken := errors.Is(err, os.ErrNotExist) || errors.Is(err, errBusy)
		if err == nil || !taken || try == buildTries {
			return b, err
		}
	}
}

func (s *Store) tryBuild() (*build, error) {
	dir, err := os.MkdirTemp(s.dir, tempPrefix)
	if err != nil {
		return nil, failed("making a directory to unpack in", err)
	}
	b := &build{s: s, dir: dir}
	if b.lock, err = tryLock(filepath.Join(dir, lockName), true, true); err == nil {
		err = os.Mkdir(b.stage(), 0o700)
	}
	if err != nil {
		b.close()
		return nil, failed("making a directory to unpack in", err)
	}
	return b, nil
}

func (b *build) stage() string { return filepath.Join(b.dir, stageName) }

// close removes what was not published.
func (b *build) close() {
	_ = removeAll(b.dir) // what is left GC finds
	if b.lock != nil {
		b.lock.Close()
	}
}

// publish puts the image that the unpacker has made into the store, under the
// names, and returns it as it is there. The unpacker must have ended; its words
// are checked here.
func (b *build) publish(ctx context.Context, r result, arch string, names ...namedBinding) (Image, error) {
	if err := r.check(b.s.limits, arch); err != nil {
		return Image{}, err
	}
	if err := b.finish(r); err != nil {
		return Image{}, failed("keeping the image", err)
	}
	dir := idDir(r.ID)
	err := b.s.changeNames(ctx, func(table map[string]binding) error {
		err := os.Rename(filepath.Join(b.dir, doneName), b.s.path(dir))
		if err != nil && !exists(b.s.path(dir, infoName)) {
			return failed("keeping the image", err)
		}
		// Somebody else may have been faster; one digest is one content.
		for _, n := range names {
			table[n.name] = n.binding
		}
		return nil
	})
	if err != nil {
		return Image{}, err
	}
	return b.s.Find(r.ID)
}

// check refuses a result that an unpacker in good order does not send.
func (r *result) check(limits Limits, arch string) error {
	i := &r.Image
	switch {
	case idDir(r.ID) == "":
		return lied("its ID is " + sandbar.Quote(r.ID, 100))
	case r.Manifest != "" && idDir(r.Manifest) == "":
		return lied("the digest of its manifest is " + sandbar.Quote(r.Manifest, 100))
	case i.Arch != "" && i.Arch != arch:
		return lied("it is for " + sandbar.Quote(i.Arch, 80))
	case i.Size < 0, i.Size > limits.Bytes, i.Entries < 0, i.Entries > limits.Entries, i.Dropped < 0, i.Dropped > limits.Entries:
		return lied("its sizes are out of bounds")
	}
	return nil
}

// lied refuses what the unpacker says.
func lied(what string) error {
	return &sandbar.Error{Code: sandbar.Invalid, Field: "image",
		Message: "the process that unpacked the image answered what it must not: " + what,
		Fix:     "do not use this image; its maker may have taken over that process"}
}

// namedBinding is a row of the table of names.
type namedBinding struct {
	name string
	binding
}

// finish makes the directory that is going to be the image's: complete, and on
// the disk. The unpacker's tree is moved by its own name; no name in it is
// resolved.
func (b *build) finish(r result) error {
	i := r.Image
	i.ID, i.Added = r.ID, time.Now().UTC().Truncate(time.Second)
	i.Names, i.InUse = nil, false
	info, err := json.MarshalIndent(i, "", "  ")
	if err != nil {
		return err
	}
	tree := filepath.Join(b.stage(), rootName)
	if info, err := os.Lstat(tree); err != nil || !info.IsDir() {
		return lied("there is no tree")
	}
	done := filepath.Join(b.dir, doneName)
	if err := os.Mkdir(done, 0o700); err != nil {
		return err
	}
	if err := os.Rename(tree, filepath.Join(done, rootName)); err != nil {
		return err
	}
	for name, content := range map[string][]byte{infoName: append(info, '\n'), lockName: nil} {
		if err := os.WriteFile(filepath.Join(done, name), content, 0o600); err != nil {
			return err
		}
	}
	return syncTree(done)
}

// removeAll removes a directory that an unpacker may have taken its owner's
// rights from.
func removeAll(dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	top, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer top.Close()
	_ = fs.WalkDir(top.FS(), ".", func(p string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			return top.Chmod(p, 0o700) // before it is read
		}
		return nil
	})
	return os.RemoveAll(dir)
}
