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

// build is an image being created: a locked directory that is removed at the end in any case. The
// unpacker writes only to the directory stageName in it.
type build struct {
	s    *Store
	dir  string
	lock *os.File
}

// stageName is the staging directory, doneName the directory that becomes the image's.
const (
	stageName = "stage"
	doneName  = "done"
)

// buildTries bounds the attempts to create a build directory: another process that searches for
// leftovers may lock it before its creator does.
const buildTries = 10

func (s *Store) newBuild() (*build, error) {
	_, _ = s.unfinished(true) // makes room; GC reports what cannot be removed
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

// close removes the directory, unless it was published.
func (b *build) close() {
	_ = removeAll(b.dir) // GC finds what is left
	if b.lock != nil {
		b.lock.Close()
	}
}

// publish moves the unpacker's image into the store, binds the names, and returns the image. The
// unpacker must have exited; its result is checked here.
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
		// Another process may have been faster; one digest is one content.
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

// check refuses a result that a correct unpacker does not send.
func (r *result) check(limits Limits, arch string) error {
	i := &r.Image
	switch {
	case idDir(r.ID) == "":
		return protocolViolation("its ID is " + sandbar.Quote(r.ID, 100))
	case r.Manifest != "" && idDir(r.Manifest) == "":
		return protocolViolation("the digest of its manifest is " + sandbar.Quote(r.Manifest, 100))
	case i.Arch != "" && i.Arch != arch:
		return protocolViolation("it is for " + sandbar.Quote(i.Arch, 80))
	case i.Size < 0, i.Size > limits.Bytes, i.Entries < 0, i.Entries > limits.Entries, i.Dropped < 0, i.Dropped > limits.Entries:
		return protocolViolation("its sizes are out of bounds")
	}
	return nil
}

// protocolViolation returns the error for an impossible result of the unpacker.
func protocolViolation(what string) error {
	return &sandbar.Error{Code: sandbar.Invalid, Field: "image",
		Message: "the process that unpacked the image violated its protocol: " + what,
		Fix:     "do not use this image; its author may have taken over that process"}
}

// namedBinding is a row of the name table.
type namedBinding struct {
	name string
	binding
}

// finish creates the complete directory of the image and syncs it. It moves the unpacker's tree as
// a whole and resolves no path in it.
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
		return protocolViolation("there is no tree")
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

// removeAll removes a directory of an unpacker, even if that has removed the owner's permissions
// from directories.
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
			return top.Chmod(p, 0o700) // before it is listed
		}
		return nil
	})
	return os.RemoveAll(dir)
}
