package guest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/erofs/go-erofs"

	"github.com/sandbar-dev/sandbar"
)

// Tree is a directory tree for BuildRoot. Close releases the directories that it reads from.
//
// All entries belong to user and group 0 of the machine, as in the native driver, whose programs
// see no other owner in an image. Device nodes, FIFOs, sockets, setuid and setgid bits and extended
// attributes are left out.
type Tree struct {
	root *node
	// id, if not "", identifies the content. Otherwise the digest of the metadata does.
	id      string
	files   int64
	bytes   int64
	skipped int64
	roots   []*os.Root
	inodes  hash.Hash // of the sources' metadata
}

// Skipped returns the number of files that could not be read and of special files.
func (t *Tree) Skipped() int64 { return t.skipped }

// Close closes the directories that the tree reads from.
func (t *Tree) Close() {
	for _, r := range t.roots {
		r.Close()
	}
}

// node is an entry of a tree.
type node struct {
	name     string
	mode     fs.FileMode // type, permissions and fs.ModeSticky
	modified time.Time
	size     int64
	link     string // of a symbolic link
	text     []byte // of a file that no source has
	from     *os.Root
	path     string // below from, of a file
	children map[string]*node
}

// Bounds of a tree.
const (
	maxEntries   = 4 << 20
	maxTreeBytes = 64 << 30
	maxDepth     = 256
)

// newTree returns an empty tree.
func newTree(id string) *Tree {
	return &Tree{id: id, inodes: sha256.New(), root: &node{mode: fs.ModeDir | 0o755, modified: time.Unix(0, 0), children: map[string]*node{}}}
}

// dir returns the directory at a path, after creating what is missing. A parent that is something
// else is replaced.
func (t *Tree) dir(p string) *node {
	n := t.root
	for name := range strings.SplitSeq(strings.Trim(path.Clean("/"+p), "/"), "/") {
		if name == "" {
			continue
		}
		next := n.children[name]
		if next == nil || next.children == nil {
			next = &node{name: name, mode: fs.ModeDir | 0o755, modified: time.Unix(0, 0), children: map[string]*node{}}
			n.children[name] = next
		}
		n = next
	}
	return n
}

// put places a node at a path and replaces what is there.
func (t *Tree) put(p string, n *node) {
	n.name = path.Base(p)
	t.dir(path.Dir(p)).children[n.name] = n
}

// ImageTree returns the tree of an image of the image store. id is the image's ID, and dir its
// directory on the host. No path of the image is resolved: every entry is opened by its name in its
// open directory.
func ImageTree(ctx context.Context, id, dir string) (*Tree, error) {
	if id == "" {
		return nil, sandbar.Errorf(sandbar.Invalid, "an image without an ID")
	}
	t := newTree(id)
	r, err := os.OpenRoot(dir)
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "opening the image: %w", err)
	}
	t.roots = append(t.roots, r)
	if err := t.walk(ctx, r, r, "", t.root, 0); err != nil {
		t.Close()
		return nil, treeError(err)
	}
	for _, dir := range []string{"/dev", "/proc", "/tmp"} {
		if n := t.root.children[dir[1:]]; n == nil {
			t.dir(dir)
		}
	}
	return t, nil
}

// treeError returns the error of reading a tree.
func treeError(err error) error {
	if _, ok := errors.AsType[*sandbar.Error](err); ok {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return sandbar.Errorf(sandbar.Canceled, "reading the files of the root: %w", err)
	}
	return sandbar.Errorf(sandbar.Internal, "reading the files of the root: %w", err)
}

// walk adds the entries of the open directory d, which is at path at of the source top.
func (t *Tree) walk(ctx context.Context, top, d *os.Root, at string, into *node, depth int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if depth > maxDepth {
		return &sandbar.Error{Code: sandbar.TooLarge, Message: "directories are nested more than 256 deep", Fix: "use another image"}
	}
	f, err := d.Open(".")
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(-1)
	f.Close()
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		info, err := d.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // just removed
		}
		if err != nil {
			return err
		}
		if err := t.entry(ctx, top, d, at, into, name, info, depth); err != nil {
			return err
		}
	}
	return nil
}

// entry adds the entry name of the open directory d.
func (t *Tree) entry(ctx context.Context, top, d *os.Root, at string, into *node, name string, info fs.FileInfo, depth int) error {
	n := &node{name: name, mode: info.Mode() & (fs.ModeType | fs.ModePerm | fs.ModeSticky), modified: info.ModTime()}
	p := path.Join(at, name)
	switch n.mode.Type() {
	case fs.ModeDir:
		// A directory of the source merges with one that the tree already has.
		if old := into.children[name]; old != nil && old.children != nil {
			n.children = old.children
		} else {
			n.children = map[string]*node{}
		}
		sub, err := d.OpenRoot(name)
		if errors.Is(err, fs.ErrPermission) {
			t.skipped++
			break // an empty directory
		}
		if err != nil {
			return err
		}
		err = t.walk(ctx, top, sub, p, n, depth+1)
		sub.Close()
		if errors.Is(err, fs.ErrPermission) {
			t.skipped++
			err = nil
		}
		if err != nil {
			return err
		}
	case fs.ModeSymlink:
		link, err := d.Readlink(name)
		if err != nil {
			return err
		}
		n.link, n.size = link, int64(len(link))
	case 0:
		if info.Mode().Perm()&0o004 == 0 && !readable(d, name) {
			t.skipped++
			return nil
		}
		n.from, n.path, n.size = top, p, info.Size()
		t.bytes += n.size
	default:
		t.skipped++
		return nil
	}
	if t.files++; t.files > maxEntries || t.bytes > maxTreeBytes {
		return &sandbar.Error{Code: sandbar.TooLarge, Message: "the root would have more than 4194304 files or 64 GiB", Fix: "use a smaller image"}
	}
	t.identify(p, n, info)
	into.children[name] = n
	return nil
}

// readable reports whether this user can read a file. O_NONBLOCK protects against a file that was
// just replaced by a FIFO.
func readable(d *os.Root, name string) bool {
	f, err := d.OpenFile(name, os.O_RDONLY|openNonblock, 0)
	if err != nil {
		return false
	}
	f.Close()
	return true
}

// identify adds an entry's metadata to the digest of the sources.
func (t *Tree) identify(p string, n *node, info fs.FileInfo) {
	if t.id != "" {
		return
	}
	var b [40]byte
	binary.LittleEndian.PutUint64(b[0:], uint64(n.mode))
	binary.LittleEndian.PutUint64(b[8:], uint64(n.modified.UnixNano()))
	binary.LittleEndian.PutUint64(b[16:], inode(info))
	binary.LittleEndian.PutUint64(b[24:], uint64(n.size))
	binary.LittleEndian.PutUint64(b[32:], uint64(len(p)))
	t.inodes.Write(b[:])
	io.WriteString(t.inodes, p+"\x00"+n.link+"\x00")
}

// rootFormat changes when BuildRoot writes trees differently.
const rootFormat = "1"

// digest returns the tree's digest: of the image's ID, or of the metadata of all sources and the
// entries that are not from a source.
func (t *Tree) digest() string {
	h := sha256.New()
	io.WriteString(h, rootFormat+"\x00"+t.id+"\x00")
	if t.id == "" {
		h.Write(t.inodes.Sum(nil))
		t.root.each("", func(p string, n *node) {
			if n.from == nil {
				io.WriteString(h, p+"\x00"+n.mode.String()+"\x00"+n.link+"\x00"+string(n.text)+"\x00")
			}
		})
	}
	return hex.EncodeToString(h.Sum(nil))
}

// each calls f for every node below n, in the order of names.
func (n *node) each(at string, f func(p string, n *node)) {
	for _, c := range n.sorted() {
		p := at + "/" + c.name
		f(p, c)
		c.each(p, f)
	}
}

// sorted returns the children by name.
func (n *node) sorted() []*node {
	all := make([]*node, 0, len(n.children))
	for _, c := range n.children {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *node) int { return cmp.Compare(a.name, b.name) })
	return all
}

// treeFS is a tree as an fs.FS, for the writer of EROFS.
type treeFS struct {
	t    *Tree
	ctx  context.Context
	read func(bytes int64) // called for bytes that were read
}

// find returns the node at a path of fs.FS.
func (f treeFS) find(op, name string) (*node, error) {
	n := f.t.root
	if name == "." {
		return n, nil
	}
	for part := range strings.SplitSeq(name, "/") {
		if n = n.children[part]; n == nil {
			return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
		}
	}
	return n, nil
}

// Open returns the file at a path. Its content is opened at the first Read.
func (f treeFS) Open(name string) (fs.File, error) {
	n, err := f.find("open", name)
	if err != nil {
		return nil, err
	}
	return &lazyFile{fs: f, n: n}, nil
}

// Stat implements fs.StatFS.
func (f treeFS) Stat(name string) (fs.FileInfo, error) {
	n, err := f.find("stat", name)
	if err != nil {
		return nil, err
	}
	return nodeInfo{n}, nil
}

// ReadLink returns the text of a symbolic link.
func (f treeFS) ReadLink(name string) (string, error) {
	n, err := f.find("readlink", name)
	if err != nil {
		return "", err
	}
	return n.link, nil
}

// ReadDir implements fs.ReadDirFS.
func (f treeFS) ReadDir(name string) ([]fs.DirEntry, error) {
	n, err := f.find("readdir", name)
	if err != nil {
		return nil, err
	}
	var all []fs.DirEntry
	for _, c := range n.sorted() {
		all = append(all, fs.FileInfoToDirEntry(nodeInfo{c}))
	}
	return all, nil
}

// nodeInfo is a node as fs.FileInfo.
type nodeInfo struct{ n *node }

func (i nodeInfo) Name() string       { return i.n.name }
func (i nodeInfo) Size() int64        { return i.n.size }
func (i nodeInfo) Mode() fs.FileMode  { return i.n.mode }
func (i nodeInfo) ModTime() time.Time { return i.n.modified }
func (i nodeInfo) IsDir() bool        { return i.n.mode.IsDir() }

// Sys returns what the writer of EROFS stores besides: owner 0:0, times and number of links.
func (i nodeInfo) Sys() any {
	links := 1
	if i.IsDir() {
		links = 2
		for _, c := range i.n.children {
			if c.mode.IsDir() {
				links++
			}
		}
	}
	return &erofs.Stat{Mtime: uint64(max(i.n.modified.Unix(), 0)), MtimeNs: uint32(i.n.modified.Nanosecond()), Nlink: links}
}

// errChanged: a file has changed since the tree was read.
var errChanged = errors.New("the file changes while it is read")

// lazyFile is a file of a tree. The writer opens all files before it reads the first one, so the
// host's file is opened at the first Read, and closed after its last byte.
type lazyFile struct {
	fs   treeFS
	n    *node
	open io.ReadCloser
	left int64
}

// Stat implements fs.File.
func (f *lazyFile) Stat() (fs.FileInfo, error) { return nodeInfo{f.n}, nil }

// Read reads the content. It returns exactly the size of the node, or an error.
func (f *lazyFile) Read(p []byte) (int, error) {
	if err := f.fs.ctx.Err(); err != nil {
		return 0, err
	}
	if f.open == nil {
		if err := f.openContent(); err != nil {
			return 0, err
		}
	}
	if f.left == 0 {
		return 0, io.EOF
	}
	n, err := f.open.Read(p[:min(int64(len(p)), f.left)])
	f.left -= int64(n)
	f.fs.read(int64(n))
	if err == io.EOF && f.left > 0 {
		err = &fs.PathError{Op: "read", Path: f.n.path, Err: errChanged}
	}
	if err == io.EOF && n > 0 {
		err = nil
	}
	return n, err
}

func (f *lazyFile) openContent() error {
	f.left = f.n.size
	if f.n.from == nil {
		f.open = io.NopCloser(strings.NewReader(string(f.n.text)))
		return nil
	}
	file, err := f.n.from.OpenFile(f.n.path, os.O_RDONLY|openNonblock, 0)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Size() != f.n.size || !info.ModTime().Equal(f.n.modified)) {
		err = &fs.PathError{Op: "read", Path: f.n.path, Err: errChanged}
	}
	if err != nil {
		file.Close()
		return err
	}
	f.open = file
	return nil
}

// Close closes the host's file.
func (f *lazyFile) Close() error {
	if f.open == nil {
		return nil
	}
	err := f.open.Close()
	f.open = nil
	return err
}
