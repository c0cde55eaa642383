package image

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/sandbar-dev/sandbar"
)

// layer is a layer that is being unpacked into a directory of its own, with its effects on the
// layers below.
type layer struct {
	ctx    context.Context
	budget *budget
	way    walker // path to the current entry
	other  walker // path to a hard link's target

	removed  []string        // paths of lower layers that it removes
	opaque   []string        // directories whose lower contents it removes
	links    [][2]string     // hard links to files of lower layers: path and target
	implicit map[string]bool // directories without an entry of their own
	dropped  int64           // number of devices and FIFOs
}

// unpack reads a layer, compressed or not, into an empty directory.
func unpack(ctx context.Context, dir *os.Root, r io.Reader, b *budget) (*layer, error) {
	l := &layer{ctx: ctx, budget: b, implicit: map[string]bool{}}
	l.way = walker{top: dir, made: func(p string) { l.implicit[p] = true }}
	l.other = walker{top: dir}
	defer l.way.close()
	defer l.other.close()
	t := tar.NewReader(r)
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		h, err := t.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, damaged(err)
		}
		if err := l.entry(h, t); err != nil {
			return nil, err
		}
	}
	// The digest includes bytes after the end of the archive.
	_, err := io.Copy(io.Discard, r)
	return l, err
}

// damaged distinguishes a malformed archive from a failed reader.
func damaged(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, tar.ErrHeader), errors.Is(err, tar.ErrFieldTooLong), errors.Is(err, tar.ErrInsecurePath), errors.Is(err, io.ErrUnexpectedEOF):
		return malformed("an archive is damaged")
	}
	return err
}

// entry creates one entry of the archive.
func (l *layer) entry(h *tar.Header, content io.Reader) error {
	if err := take(&l.budget.entries, 1, l.budget.tooMany); err != nil {
		return err
	}
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	p, err := cleanPath(h.Name)
	if err != nil {
		return err
	}
	dir, base := path.Split(p)
	dir = path.Clean(dir) // "." for a top-level entry
	if rest, ok := strings.CutPrefix(base, whiteout); ok && p != "." {
		return l.whiteout(dir, rest)
	}
	if err := l.make(h, p, dir, base, content); err != nil {
		return explainEntry(p, err)
	}
	return nil
}

// whiteout is the prefix of entries that stand for a removed file (OCI image layer specification).
const whiteout = ".wh."

func (l *layer) whiteout(dir, rest string) error {
	switch {
	case rest == whiteout+".opq":
		l.opaque = append(l.opaque, dir)
	case strings.HasPrefix(rest, whiteout):
		// metadata of AUFS, which has no meaning here
	case rest == "" || rest == "." || rest == "..":
		return malformed("it removes a name that is none")
	default:
		l.removed = append(l.removed, path.Join(dir, rest))
	}
	return nil
}

func (l *layer) make(h *tar.Header, p, dir, base string, content io.Reader) error {
	mode := fs.FileMode(h.Mode).Perm()
	switch h.Typeflag {
	case tar.TypeDir:
		return l.directory(p, mode|h.FileInfo().Mode()&fs.ModeSticky)
	case tar.TypeReg, tar.TypeCont:
		if p == "." {
			return malformed("its top is a file")
		}
		return l.file(h, p, dir, base, mode, content)
	case tar.TypeSymlink:
		return l.symlink(h.Linkname, p, dir, base)
	case tar.TypeLink:
		return l.hardLink(h.Linkname, p, dir, base)
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		l.dropped++
		return nil
	}
	return malformed("it has an entry of an unknown kind")
}

// The owner may read, change and remove everything: programs of an image run as its root, who has
// only the rights of an owner.
const (
	dirBits  fs.FileMode = 0o700
	fileBits fs.FileMode = 0o600
)

func (l *layer) directory(p string, mode fs.FileMode) error {
	d, err := l.way.dir(p, true)
	if errors.Is(err, errThroughLink) && p != "." {
		// The same name may have been another kind of file earlier in this layer.
		parent, base := path.Split(p)
		if err := l.clear(path.Clean(parent), base, p); err != nil {
			return err
		}
		d, err = l.way.dir(p, true)
	}
	if err != nil {
		return err
	}
	delete(l.implicit, p)
	return chmodDir(d, ".", mode|dirBits)
}

// chmodDir changes the mode of a directory through a descriptor: the unpacker's seccomp filter
// allows nothing else, see policy.UnpackRules.
func chmodDir(top *os.Root, name string, mode fs.FileMode) error {
	f, err := top.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(mode), f.Close())
}

// clear opens dir and removes its entry base, because the last entry for a path wins.
func (l *layer) clear(dir, base, p string) error {
	d, err := l.way.dir(dir, true)
	if err != nil {
		return err
	}
	info, err := d.Lstat(base)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		l.way.forget(p)
		l.other.forget(p)
		return d.RemoveAll(base)
	}
	return d.Remove(base)
}

func (l *layer) file(h *tar.Header, p, dir, base string, mode fs.FileMode, content io.Reader) error {
	if err := take(&l.budget.bytes, h.Size, l.budget.tooLarge); err != nil {
		return err
	}
	if err := l.clear(dir, base, p); err != nil {
		return err
	}
	d := l.way.last()
	f, err := d.OpenFile(base, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, io.LimitReader(content, h.Size))
	if err == nil && n != h.Size {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = f.Chmod(mode | fileBits)
	}
	if err == nil {
		// Python checks the modification time of a source file to validate its compiled file.
		err = setTime(f, modified(h.ModTime))
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return damaged(err)
}

// modified clamps a time to one that every file system can represent.
func modified(t time.Time) time.Time {
	if t.Unix() < 0 || t.Unix() > 1<<32 {
		return time.Unix(0, 0)
	}
	return t
}

func (l *layer) symlink(to, p, dir, base string) error {
	if p == "." {
		return malformed("its top is a link")
	}
	if to == "" || len(to) >= maxPath || strings.ContainsRune(to, 0) {
		return malformed("a link leads to a name that is none")
	}
	if err := l.clear(dir, base, p); err != nil {
		return err
	}
	return l.way.last().Symlink(to, base)
}

// hardLink links to a file of the same layer now, and to one of a lower layer during the merge.
func (l *layer) hardLink(to, p, dir, base string) error {
	to, err := cleanPath(to)
	if err != nil {
		return err
	}
	if p == "." || to == "." || to == p {
		return malformed("a hard link leads to itself or to the top")
	}
	toDir, toBase := path.Split(to)
	d, err := l.other.dir(path.Clean(toDir), false)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil {
		var info fs.FileInfo
		if info, err = d.Lstat(toBase); err == nil && info.IsDir() {
			return malformed("a hard link leads to a directory")
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		l.links = append(l.links, [2]string{p, to})
		return nil
	}
	if err != nil {
		return err
	}
	if err := l.clear(dir, base, p); err != nil {
		return err
	}
	return l.way.top.Link(to, p) // neither path has a link
}

// cleanPath makes a path of an archive relative to the image's root. Absolute paths are accepted;
// paths with ".." that lead out are refused.
func cleanPath(name string) (string, error) {
	bad := func(what string) (string, error) {
		return "", malformed("the name " + sandbar.Quote(name, 100) + " in it " + what)
	}
	if len(name) > maxPath || strings.ContainsRune(name, 0) {
		return bad("is too long or has a NUL")
	}
	depth := 0
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "..":
			return bad("leads up")
		case len(part) > maxName:
			return bad("is longer than " + number(maxName) + " bytes")
		case part != "" && part != ".":
			depth++
		}
	}
	if depth > maxDepth {
		return bad("is deeper than " + number(maxDepth) + " directories")
	}
	return path.Clean("./" + strings.TrimLeft(name, "/")), nil
}

// explainEntry adds the path of the refused entry to an error.
func explainEntry(p string, err error) error {
	switch {
	case errors.Is(err, errThroughLink):
		return malformed("the path of " + printable(p) + " leads through a link or a file")
	case errors.Is(err, syscall.EMLINK), errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.EILSEQ), errors.Is(err, syscall.EINVAL):
		return malformed(printable(p) + " cannot be made on this file system")
	}
	return err
}

func printable(p string) string {
	if !utf8.ValidString(p) {
		p = strings.ToValidUTF8(p, "?")
	}
	return sandbar.Quote(p, 100)
}
