package image

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/sandbar-dev/sandbar"
)

// stage is the state of an unpacker: the staging directory, and the rest of the limits.
type stage struct {
	top    *os.Root
	limits Limits
	budget *budget
	layers int
	image  Image
}

func newStage(top *os.Root, limits Limits) (*stage, error) {
	if err := top.Mkdir(rootName, 0o755); err != nil {
		return nil, failed("making a directory to unpack in", err)
	}
	return &stage{top: top, limits: limits, budget: newBudget(limits)}, nil
}

// layerName is the directory of the next layer.
const layerName = "layer"

// add unpacks a layer over those added before. check, if not nil, is called after all of r has been
// read, and can refuse it.
func (b *stage) add(ctx context.Context, r io.Reader, check func() error) error {
	if b.layers++; b.layers > b.limits.Layers {
		return &sandbar.Error{Code: sandbar.TooLarge, Field: "image",
			Message: "the image has more than " + number(int64(b.limits.Layers)) + " layers, which is the limit"}
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

func (b *stage) unpack(ctx context.Context, r io.Reader) (*layer, error) {
	if err := b.top.Mkdir(layerName, 0o755); err != nil {
		return nil, err
	}
	dir, err := b.top.OpenRoot(layerName)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return unpack(ctx, dir, countedReader{r, &b.budget.stream, b.budget.tooLarge}, b.budget)
}

// result returns the report for an image with this ID.
func (b *stage) result(id, manifest string) *result {
	b.image.Size = b.limits.Bytes - b.budget.bytes
	b.image.Entries = b.limits.Entries - b.budget.entries
	return &result{ID: id, Manifest: manifest, Image: b.image}
}
