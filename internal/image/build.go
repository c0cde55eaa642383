package image

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// build is an image in the making: a directory of its own, locked, that is gone
// at the end whatever happens.
type build struct {
	s      *Store
	dir    string
	lock   *os.File
	top    *os.Root
	budget *budget
	layers int
	image  Image
}

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
	b := &build{s: s, dir: dir, budget: newBudget(s.limits)}
	if b.lock, err = tryLock(filepath.Join(dir, lockName), true, true); err == nil {
		b.top, err = os.OpenRoot(dir)
	}
	if err == nil {
		err = b.top.Mkdir(rootName, 0o755)
	}
	if err != nil {
		b.close()
		return nil, failed("making a directory to unpack in", err)
	}
	return b, nil
}

// close removes what was not published.
func (b *build) close() {
	if b.top != nil {
		b.top.Close()
	}
	_ = os.RemoveAll(b.dir) // what is left GC finds
	if b.lock != nil {
		b.lock.Close()
	}
}

// layerName is where the next layer is unpacked.
const layerName = "layer"

// add unpacks a layer over those that were added before. check, if not nil, is
// called when all of r has been read, and refuses what it was not supposed to be.
func (b *build) add(ctx context.Context, r io.Reader, check func() error) error {
	if b.layers++; b.layers > b.s.limits.Layers {
		return &sandbar.Error{Code: sandbar.TooLarge, Field: "image",
			Message: "the image has more than " + number(int64(b.s.limits.Layers)) + " layers, which is the most that is accepted"}
	}
	before := *b.budget
	l, err := b.unpack(ctx, r)
	if err == nil && check != nil {
		err = check()
	}
	if err != nil {
		b.layers--
		*b.budget = before
		return errors.Join(err, b.top.RemoveAll(layerName))
	}
	b.image.Dropped += l.dropped
	if err := merge(b.top, layerName, rootName, l); err != nil {
		return err
	}
	return b.top.RemoveAll(layerName)
}

func (b *build) unpack(ctx context.Context, r io.Reader) (*layer, error) {
	if err := b.top.Mkdir(layerName, 0o755); err != nil {
		return nil, err
	}
	dir, err := b.top.OpenRoot(layerName)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return unpack(ctx, dir, counted{r, &b.budget.stream, b.budget.tooLarge}, b.budget)
}

// publish puts the image into the store, under the name if there is one, and
// returns it as it is there.
func (b *build) publish(ctx context.Context, id string, names ...namedBinding) (Image, error) {
	dir := idDir(id)
	if dir == "" {
		return Image{}, sandbar.Errorf(sandbar.Internal, "%s is no ID of an image", sandbar.Quote(id, 100))
	}
	if err := b.finish(id); err != nil {
		return Image{}, failed("keeping the image", err)
	}
	err := b.s.changeNames(ctx, func(table map[string]binding) error {
		err := os.Rename(filepath.Join(b.dir, "done"), b.s.path(dir))
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
	return b.s.Find(id)
}

// namedBinding is a row of the table of names.
type namedBinding struct {
	name string
	binding
}

// finish makes the directory that is going to be the image's: complete, and on
// the disk.
func (b *build) finish(id string) error {
	b.image.ID, b.image.Added = id, time.Now().UTC().Truncate(time.Second)
	b.image.Size = b.budget.limits.Bytes - b.budget.bytes
	b.image.Entries = b.budget.limits.Entries - b.budget.entries
	info, err := json.MarshalIndent(b.image, "", "  ")
	if err != nil {
		return err
	}
	done := filepath.Join(b.dir, "done")
	if err := os.Mkdir(done, 0o700); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(b.dir, rootName), filepath.Join(done, rootName)); err != nil {
		return err
	}
	for name, content := range map[string][]byte{infoName: append(info, '\n'), lockName: nil} {
		if err := os.WriteFile(filepath.Join(done, name), content, 0o600); err != nil {
			return err
		}
	}
	return syncTree(done)
}
