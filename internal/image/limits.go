package image

import (
	"cmp"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// Limits bound the cost of one image. A zero field is its default.
type Limits struct {
	// Bytes bounds each of: the compressed size, the decompressed size, and the size of the files.
	// Default 20 GiB.
	Bytes int64
	// Entries bounds the files, directories and links of all layers together, including those that
	// later layers remove. Default 1,000,000.
	Entries int64
	// Layers bounds the number of layers. Default 256.
	Layers int
	// Time bounds a pull or an import. Default 30 minutes.
	Time time.Duration
	// Stall bounds the time without data from a registry. Default 1 minute.
	Stall time.Duration
}

// Fixed bounds.
const (
	maxReference  = 512      // bytes of a reference
	maxDocument   = 8 << 20  // bytes of a manifest, an index or a configuration
	maxDepth      = 128      // nested directories
	maxPath       = 4096     // bytes of a path in an image
	maxName       = 255      // bytes of a name in it
	maxWindow     = 64 << 20 // bytes of memory for decompression
	maxIndexDepth = 3        // nested indexes
	layerTries    = 3        // attempts to fetch one layer
)

func (l Limits) withDefaults() Limits {
	return Limits{
		Bytes:   cmp.Or(l.Bytes, 20<<30),
		Entries: cmp.Or(l.Entries, 1_000_000),
		Layers:  cmp.Or(l.Layers, 256),
		Time:    cmp.Or(l.Time, 30*time.Minute),
		Stall:   cmp.Or(l.Stall, time.Minute),
	}
}

// budget is the rest of Limits while one image is unpacked.
type budget struct {
	limits  Limits
	bytes   int64 // of content
	stream  int64 // decompressed, files or not
	travel  int64 // compressed
	entries int64
}

func newBudget(l Limits) *budget {
	return &budget{limits: l, bytes: l.Bytes, stream: l.Bytes, travel: l.Bytes, entries: l.Entries}
}

// take subtracts n from a field, or returns err.
func take(left *int64, n int64, err func() error) error {
	if n < 0 || n > *left {
		return err()
	}
	*left -= n
	return nil
}

func (b *budget) tooLarge() error {
	return &sandbar.Error{Code: sandbar.TooLarge, Field: "image",
		Message: "the image has more than " + size(b.limits.Bytes) + ", compressed or not, which is the limit",
		Fix:     "use a smaller image, or raise images.max_bytes"}
}

func (b *budget) tooMany() error {
	return &sandbar.Error{Code: sandbar.TooLarge, Field: "image",
		Message: "the image has more than " + number(b.limits.Entries) + " files, directories and links, which is the limit",
		Fix:     "use a smaller image, or raise images.max_entries"}
}
