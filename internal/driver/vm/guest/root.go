package guest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/erofs/go-erofs"

	"github.com/sandbar-dev/sandbar"
)

// Root is the lower layer of a machine's root, an EROFS file on the host.
type Root struct {
	// Path is the file's path, for a read-only virtio disk.
	Path string `json:"-"`
	// Digest identifies the content: 64 hexadecimal digits. It is that of the image's ID or, for the
	// host's programs, of the metadata of all files.
	Digest string `json:"digest"`
	// Size is the file's size in bytes. Regions of zeros occupy no space on the host.
	Size int64 `json:"size"`
	// Files is the number of its entries, Skipped the number of files that could not be read and of
	// special files.
	Files   int64 `json:"files"`
	Skipped int64 `json:"skipped"`
}

// RootOptions are the options of BuildRoot.
type RootOptions struct {
	// MaxSize bounds the file, in bytes. Default: 64 GiB.
	MaxSize int64
	// Progress, if not nil, is called with the progress, from one goroutine.
	Progress func(Progress)
}

// rootTries is the number of attempts to read a tree that changes.
const rootTries = 3

// BuildRoot writes a tree as an EROFS file into a cache directory, unless the directory has it
// already, and returns it. It waits for another process that builds a root in the same directory.
// open returns the tree, and is called again if files change while they are read. TooLarge: the
// tree exceeds a bound. Exhausted: the disk is full.
func BuildRoot(ctx context.Context, cacheDir string, open func(context.Context) (*Tree, error), o RootOptions) (Root, error) {
	if o.MaxSize <= 0 {
		o.MaxSize = maxTreeBytes
	}
	dir, unlock, err := lockPart(ctx, cacheDir, rootsDir)
	if err != nil {
		return Root{}, err
	}
	defer unlock()
	for try := 1; ; try++ {
		r, err := buildRoot(ctx, dir, open, o)
		if try < rootTries && (errors.Is(err, errChanged) || errors.Is(err, fs.ErrNotExist)) {
			continue
		}
		if err != nil && ctx.Err() != nil {
			return Root{}, sandbar.Errorf(sandbar.Canceled, "building the root: %w", ctx.Err())
		}
		if err != nil {
			return Root{}, writeError("building the root", err)
		}
		return r, nil
	}
}

func buildRoot(ctx context.Context, dir string, open func(context.Context) (*Tree, error), o RootOptions) (Root, error) {
	t, err := open(ctx)
	if err != nil {
		return Root{}, err
	}
	defer t.Close()
	if t.bytes > o.MaxSize {
		return Root{}, &sandbar.Error{Code: sandbar.TooLarge, Message: "the files of the root have more bytes than allowed", Fix: "use a smaller image"}
	}
	sum := t.digest()
	path := filepath.Join(dir, "root-"+sum[:16]+".erofs")
	if r, err := openRoot(path, sum); err == nil {
		return r, nil
	}
	r := Root{Path: path, Digest: sum, Files: t.files, Skipped: t.skipped}
	f, err := os.CreateTemp(dir, unfinishedPrefix)
	if err != nil {
		return Root{}, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if r.Size, err = writeTree(ctx, f, t, o); err != nil {
		return Root{}, err
	}
	if r.Size > o.MaxSize {
		return Root{}, &sandbar.Error{Code: sandbar.TooLarge, Message: "the root is larger than allowed", Fix: "use a smaller image"}
	}
	if err := errors.Join(f.Chmod(0o444), f.Sync(), f.Close(), os.Rename(f.Name(), path)); err != nil {
		return Root{}, err
	}
	b, err := json.Marshal(r)
	if err != nil {
		return Root{}, err
	}
	return r, replaceFile(path+".json", append(b, '\n'))
}

// openRoot returns a root that was built before.
func openRoot(path, sum string) (Root, error) {
	b, err := os.ReadFile(path + ".json")
	if err != nil {
		return Root{}, err
	}
	var r Root
	if err := json.Unmarshal(b, &r); err != nil {
		return Root{}, err
	}
	info, err := os.Lstat(path)
	if err == nil && (r.Digest != sum || info.Size() != r.Size || !info.Mode().IsRegular()) {
		err = errors.New("another root")
	}
	r.Path = path
	return r, err
}

// OpenRoot returns the root at a path that BuildRoot has returned, or at another path to which its
// two files were copied. NotFound: there is none. Invalid: the file has another size.
func OpenRoot(path string) (Root, error) {
	b, err := os.ReadFile(path + ".json")
	if err != nil {
		return Root{}, &sandbar.Error{Code: sandbar.NotFound, Message: "there is no root of a machine at " + sandbar.Quote(path, 200), Err: err,
			Fix: "build one with `sandbar vm setup`, and name it with its path"}
	}
	var r Root
	err = json.Unmarshal(b, &r)
	if err == nil {
		r, err = openRoot(path, r.Digest)
	}
	if err != nil {
		return Root{}, &sandbar.Error{Code: sandbar.Invalid, Message: "the root of a machine at " + sandbar.Quote(path, 200) + " is damaged", Err: err,
			Fix: "build it again with `sandbar vm setup`"}
	}
	return r, nil
}

// Roots returns the roots in a cache directory.
func Roots(cacheDir string) ([]Root, error) {
	names, err := filepath.Glob(filepath.Join(cacheDir, rootsDir, "root-*.erofs.json"))
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "listing roots: %w", err)
	}
	var all []Root
	for _, name := range names {
		var r Root
		b, err := os.ReadFile(name)
		if err == nil && json.Unmarshal(b, &r) == nil {
			r.Path = name[:len(name)-len(".json")]
			all = append(all, r)
		}
	}
	return all, nil
}

// Remove removes the root's files. A running machine that has the file open is not affected.
func (r Root) Remove() error {
	err := errors.Join(os.Remove(r.Path+".json"), os.Remove(r.Path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return sandbar.Errorf(sandbar.Internal, "removing a root: %w", err)
	}
	return nil
}

// writeTree writes a tree as EROFS and returns the file's size.
func writeTree(ctx context.Context, f *os.File, t *Tree, o RootOptions) (int64, error) {
	var done, reported int64
	read := func(n int64) {
		if done += n; o.Progress != nil && done-reported >= progressBytes {
			o.Progress(Progress{Step: "building the root", Done: done, Total: t.bytes})
			reported = done
		}
	}
	out := &sparseFile{f: f}
	w := erofs.Create(out, erofs.WithBuildTime(0, 0))
	if err := w.CopyFrom(treeFS{t: t, ctx: ctx, read: read}); err != nil {
		return 0, err
	}
	if err := w.Close(); err != nil {
		return 0, err
	}
	return out.size, f.Truncate(out.size)
}

// sparseBlock is the unit of zeros that a sparseFile leaves out, in bytes.
const sparseBlock = 4096

// sparseFile writes a file and leaves blocks of zeros unwritten.
type sparseFile struct {
	f        *os.File
	at, size int64
}

// Seek implements io.Seeker for io.SeekStart and io.SeekCurrent.
func (s *sparseFile) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekStart:
		s.at = offset
	case io.SeekCurrent:
		s.at += offset
	default:
		return 0, fs.ErrInvalid
	}
	return s.at, nil
}

// Write writes p. Blocks of zeros behind the end of what was written before are skipped.
func (s *sparseFile) Write(p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 {
		zeros, n := s.run(p)
		if !zeros || s.at < s.size {
			if _, err := s.f.WriteAt(p[:n], s.at); err != nil {
				return total - len(p), err
			}
		}
		s.at += int64(n)
		s.size = max(s.size, s.at)
		p = p[n:]
	}
	return total, nil
}

// run returns the length of the longest beginning of p that consists of blocks of zeros only, or of
// other blocks only.
func (s *sparseFile) run(p []byte) (zeros bool, n int) {
	for n < len(p) {
		block := p[n:min(n+sparseBlock-int((s.at+int64(n))%sparseBlock), len(p))]
		z := len(block) == sparseBlock && allZero(block)
		if n > 0 && z != zeros {
			break
		}
		zeros, n = z, n+len(block)
	}
	return zeros, n
}

// allZero reports whether b has only zeros.
func allZero(b []byte) bool {
	for len(b) >= 8 {
		if b[0]|b[1]|b[2]|b[3]|b[4]|b[5]|b[6]|b[7] != 0 {
			return false
		}
		b = b[8:]
	}
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}
