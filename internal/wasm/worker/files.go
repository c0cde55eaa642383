package worker

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/wasm/memfs"
)

// maxHandles bounds the files that the host has open at once.
const maxHandles = 1024

// maxChunk bounds one read, in bytes.
const maxChunk = 256 << 10

// fileTable has the files that the host has open.
type fileTable struct {
	mu   sync.Mutex
	open map[uint32]*handle
	last uint32
}

// handle is one open file.
type handle struct {
	mu   sync.Mutex // one operation at a time
	file *memfs.File
	temp string // temporary path of a file until FSCommit; "" for other files
	path string // path after FSCommit
}

func (t *fileTable) add(h *handle) (uint32, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.open) >= maxHandles {
		return 0, syscall.EMFILE
	}
	t.last++
	t.open[t.last] = h
	return t.last, nil
}

func (t *fileTable) get(id uint32) (*handle, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := t.open[id]; h != nil {
		return h, nil
	}
	return nil, syscall.EBADF
}

func (t *fileTable) take(id uint32) (*handle, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.open[id]
	if h == nil {
		return nil, syscall.EBADF
	}
	delete(t.open, id)
	return h, nil
}

func (t *fileTable) closeAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.open {
		_ = h.file.Close()
	}
	t.open = map[uint32]*handle{}
}

// onFS queues a file operation.
func (w *worker) onFS(f wire.Frame) error {
	var r wire.FSRequest
	if err := r.Decode(f.Payload); err != nil {
		return errProtocol
	}
	select {
	case w.jobs <- func() { w.doFS(f.ID, &r) }:
	default:
		w.reply(f.ID, wire.FailFile, syscall.EMFILE, nil)
	}
	return nil
}

func (w *worker) doFS(id uint32, r *wire.FSRequest) {
	data, err := w.fsOp(r)
	if err != nil {
		w.reply(id, wire.FailFile, err, nil)
		return
	}
	w.reply(id, wire.OK, nil, data)
}

func (w *worker) fsOp(r *wire.FSRequest) ([]byte, error) {
	dir, recursive := w.plan.dir, r.Flags&wire.FSRecursive != 0
	switch r.Op {
	case wire.FSOpen:
		return w.fsOpen(r.Path)
	case wire.FSCreate:
		return w.fsCreate(r)
	case wire.FSCommit:
		return nil, w.fsCommit(r.Handle)
	case wire.FSAbort, wire.FSClose:
		return nil, w.fsClose(r.Handle)
	case wire.FSStat:
		return w.fsStat(r.Path)
	case wire.FSReadDir:
		return w.fsReadDir(r.Path, r.To, int(r.Size))
	case wire.FSMkdir:
		return nil, w.fsMkdir(r.Path, fileMode(r.Mode), r.Flags&wire.FSParents != 0)
	case wire.FSRemove:
		return nil, w.fsRemove(r.Path, recursive)
	case wire.FSRename:
		if r.Flags&wire.FSNoReplace != 0 {
			return nil, w.fs.RenameNew(dir, r.Path, r.To)
		}
		return nil, w.fs.Rename(dir, r.Path, r.To)
	case wire.FSChmod:
		return nil, w.fsChmod(r.Path, fileMode(r.Mode), recursive)
	case wire.FSChown:
		return nil, w.fsChown(r.Path, r.UID, r.GID)
	case wire.FSReadFiles:
		return w.fsReadFiles(r)
	case wire.FSRead:
		return w.fsRead(r)
	case wire.FSWrite:
		return nil, w.fsWrite(r)
	case wire.FSPut:
		return nil, w.fsPut(r)
	case wire.FSUsage:
		return wire.AppendFileInfos(nil, []wire.FileInfo{{Size: uint64(w.mem.used())}}), nil
	}
	return nil, syscall.ENOTSUP
}

// Linux's file types (inode(7)) by those of io/fs.
var kinds = map[fs.FileMode]uint32{
	0: 0o100000, fs.ModeDir: 0o040000, fs.ModeSymlink: 0o120000, fs.ModeNamedPipe: 0o010000,
	fs.ModeDevice | fs.ModeCharDevice: 0o020000,
}

var specialBits = []struct {
	flag fs.FileMode
	bit  uint32
}{{fs.ModeSetuid, 0o4000}, {fs.ModeSetgid, 0o2000}, {fs.ModeSticky, 0o1000}}

// kernelMode returns the st_mode of a file (inode(7)).
func kernelMode(m fs.FileMode) uint32 {
	mode := uint32(m.Perm()) | kinds[m.Type()]
	for _, s := range specialBits {
		if m&s.flag != 0 {
			mode |= s.bit
		}
	}
	return mode
}

// fileMode returns the permission bits of an st_mode.
func fileMode(m uint32) fs.FileMode {
	mode := fs.FileMode(m & 0o777)
	for _, s := range specialBits {
		if m&s.bit != 0 {
			mode |= s.flag
		}
	}
	return mode
}

// owner is the user and group id of all files.
const owner = 1000

// info describes a file; at is its path, for the target of a link.
func (w *worker) info(i *memfs.Info, at string) wire.FileInfo {
	f := wire.FileInfo{Name: i.Name(), Size: uint64(i.Size()), Mode: kernelMode(i.Mode()),
		UID: owner, GID: owner, MTime: i.ModTime().UnixNano()}
	if i.Mode()&fs.ModeSymlink != 0 {
		f.Target, _ = w.fs.Readlink(w.plan.dir, at) // a concurrent program may have removed it
	}
	return f
}

// regular returns an error if f is not a regular file.
func regular(f *memfs.File) (*memfs.Info, error) {
	i, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case i.IsDir():
		return nil, syscall.EISDIR
	case !i.Mode().IsRegular():
		return nil, syscall.ENXIO
	}
	return i, nil
}

func (w *worker) fsOpen(name string) ([]byte, error) {
	f, err := w.fs.OpenFile(w.plan.dir, name, syscall.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	i, err := regular(f)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	id, err := w.files.add(&handle{file: f})
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return wire.AppendFileInfos(wire.AppendHandle(nil, id), []wire.FileInfo{w.info(i, name)}), nil
}

// parent returns the directory of a path and the last name. A path that ends in "." or ".." has no
// last name: EINVAL.
func parent(name string) (dir, base string, err error) {
	name = strings.TrimRight(name, "/")
	dir, base = path.Split(name)
	if base == "" || base == "." || base == ".." {
		return "", "", syscall.EINVAL
	}
	if dir == "" {
		dir = "."
	}
	return dir, base, nil
}

func (w *worker) fsCreate(r *wire.FSRequest) ([]byte, error) {
	dir, _, err := parent(r.Path)
	if err != nil {
		return nil, err
	}
	if r.Flags&wire.FSParents != 0 {
		if err := w.fs.MkdirAll(w.plan.dir, dir, 0o755); err != nil {
			return nil, err
		}
	}
	h := &handle{path: r.Path}
	if r.Flags&wire.FSAppend != 0 {
		h.file, err = w.openAppend(r.Path, fileMode(r.Mode))
	} else {
		err = w.openTemp(h, dir, fileMode(r.Mode))
	}
	if err != nil {
		return nil, err
	}
	id, err := w.files.add(h)
	if err != nil {
		w.drop(h)
		return nil, err
	}
	return wire.AppendHandle(nil, id), nil
}

// openAppend opens a file for appending. It does not follow a symbolic link, so that a program
// cannot redirect the host's write to another file.
func (w *worker) openAppend(name string, mode fs.FileMode) (*memfs.File, error) {
	f, err := w.fs.OpenFile(w.plan.dir, name, syscall.O_WRONLY|syscall.O_APPEND|syscall.O_CREAT|memfs.NoFollow, mode)
	if err != nil {
		return nil, err
	}
	if _, err := regular(f); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// openTemp creates a temporary file in the directory of the final one.
func (w *worker) openTemp(h *handle, dir string, mode fs.FileMode) error {
	if i, err := w.fs.Lstat(w.plan.dir, h.path); err == nil && i.IsDir() {
		return syscall.EISDIR
	}
	real, err := w.fs.Realpath(w.plan.dir, dir)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.last++
	h.temp = path.Join(real, ".sandbar-"+strconv.FormatUint(w.last, 10))
	w.mu.Unlock()
	h.file, err = w.fs.OpenFile("/", h.temp, syscall.O_RDWR|syscall.O_CREAT|syscall.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := h.file.Chmod(mode); err != nil {
		w.drop(h)
		return err
	}
	return nil
}

// drop closes a handle, and removes its temporary file.
func (w *worker) drop(h *handle) {
	if h.temp != "" {
		_ = w.fs.Remove("/", h.temp) // a program may have removed it
	}
	_ = h.file.Close()
}

func (w *worker) fsCommit(id uint32) error {
	h, err := w.files.take(id)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	defer w.drop(h)
	if h.temp == "" {
		return nil // an appended file has no temporary one
	}
	if err := w.fs.Rename(w.plan.dir, h.temp, h.path); err != nil {
		return err
	}
	h.temp = ""
	return nil
}

func (w *worker) fsClose(id uint32) error {
	h, err := w.files.take(id)
	if err == nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		w.drop(h)
	}
	return err
}

func (w *worker) fsRead(r *wire.FSRequest) ([]byte, error) {
	h, err := w.files.get(r.Handle)
	if err != nil {
		return nil, err
	}
	b := make([]byte, min(int(r.Size), maxChunk))
	n, err := h.file.ReadAt(b, int64(r.Offset))
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b[:n], err
}

func (w *worker) fsPut(r *wire.FSRequest) error {
	if r.Flags&wire.FSAppend != 0 {
		return syscall.EINVAL
	}
	data, err := w.fsCreate(r)
	if err != nil {
		return err
	}
	id, _, err := wire.DecodeHandle(data)
	if err == nil {
		err = w.fsWrite(&wire.FSRequest{Handle: id, Bytes: r.Bytes})
	}
	if err != nil {
		_ = w.fsClose(id)
		return err
	}
	return w.fsCommit(id)
}

func (w *worker) fsWrite(r *wire.FSRequest) error {
	h, err := w.files.get(r.Handle)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err = h.file.Write(r.Bytes)
	return err
}

func (w *worker) fsStat(name string) ([]byte, error) {
	i, err := w.fs.Lstat(w.plan.dir, name)
	if err != nil {
		return nil, err
	}
	return wire.AppendFileInfos(nil, []wire.FileInfo{w.info(i, name)}), nil
}

// Bounds of one listing, as those of package agent.
const (
	maxListing  = 1000      // entries
	maxListData = 256 << 10 // bytes
)

func (w *worker) fsReadDir(name, after string, limit int) ([]byte, error) {
	list, err := w.fs.ReadDir(w.plan.dir, name)
	if err != nil {
		return nil, err
	}
	if limit <= 0 || limit > maxListing {
		limit = maxListing
	}
	var infos []wire.FileInfo
	size := 0
	for _, i := range list {
		if i.Name() <= after {
			continue
		}
		f := w.info(i, name+"/"+i.Name())
		size += len(f.Name) + len(f.Target) + 64
		if len(infos) > 0 && (len(infos) == limit || size > maxListData) {
			return wire.AppendListing(nil, false, infos), nil
		}
		infos = append(infos, f)
	}
	return wire.AppendListing(nil, true, infos), nil
}

func (w *worker) fsMkdir(name string, mode fs.FileMode, parents bool) error {
	if parents {
		if dir, _, err := parent(name); err == nil {
			if err := w.fs.MkdirAll(w.plan.dir, dir, 0o755); err != nil {
				return err
			}
		}
	}
	err := w.fs.Mkdir(w.plan.dir, name, mode)
	if parents && errors.Is(err, syscall.EEXIST) {
		if i, serr := w.fs.Stat(w.plan.dir, name); serr == nil && i.IsDir() {
			return nil
		}
	}
	return err
}

func (w *worker) fsRemove(name string, recursive bool) error {
	i, err := w.fs.Lstat(w.plan.dir, name)
	switch {
	case err != nil:
		return err
	case recursive:
		return w.fs.RemoveAll(w.plan.dir, name)
	case i.IsDir():
		return w.fs.Rmdir(w.plan.dir, name)
	}
	return w.fs.Remove(w.plan.dir, name)
}

// fsChmod follows a symbolic link at name, but not those below name.
func (w *worker) fsChmod(name string, mode fs.FileMode, recursive bool) error {
	i, err := w.fs.Stat(w.plan.dir, name)
	if err != nil {
		return err
	}
	if recursive && i.IsDir() {
		list, err := w.fs.ReadDir(w.plan.dir, name)
		if err != nil {
			return err
		}
		for _, e := range list {
			if e.Type()&fs.ModeSymlink != 0 {
				continue
			}
			if err := w.fsChmod(name+"/"+e.Name(), mode, true); err != nil && !errors.Is(err, syscall.ENOENT) {
				return err
			}
		}
	}
	return w.fs.Chmod(w.plan.dir, name, mode)
}

// fsChown changes nothing. All files belong to one user, who may not give them to others (EPERM).
func (w *worker) fsChown(name string, uid, gid uint32) error {
	if _, err := w.fs.Stat(w.plan.dir, name); err != nil {
		return err
	}
	for _, id := range []uint32{uid, gid} {
		if id != wire.Same && id != owner {
			return syscall.EPERM
		}
	}
	return nil
}

// fsReadFiles reads the beginnings of several files: of as many paths, from the first on, as fit
// into one reply.
func (w *worker) fsReadFiles(r *wire.FSRequest) ([]byte, error) {
	paths, err := wire.DecodePaths(r.Bytes)
	if err != nil || len(paths) == 0 || len(paths) > wire.MaxReadPaths {
		return nil, syscall.EINVAL
	}
	buf := make([]byte, min(int64(r.Size), wire.MaxReadBytes)+1)
	var reply []byte
	for i, path := range paths {
		c := wire.FileContent{}
		n, err := w.readStart(path, buf)
		if err != nil {
			c.Errno = w.errnos.Linux(err)
		} else {
			c.Complete = n < len(buf)
			c.Bytes = buf[:min(n, len(buf)-1)]
		}
		if i > 0 && len(reply)+len(c.Bytes) > wire.MaxReadReply {
			break
		}
		reply = wire.AppendFileContent(reply, c)
	}
	return reply, nil
}

// readStart fills buf from the beginning of a regular file. It does not follow a symbolic link.
func (w *worker) readStart(name string, buf []byte) (int, error) {
	if strings.HasSuffix(name, "/") {
		return 0, syscall.EISDIR
	}
	f, err := w.fs.OpenFile(w.plan.dir, name, syscall.O_RDONLY|memfs.NoFollow, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if _, err := regular(f); err != nil {
		return 0, err
	}
	n, err := f.ReadAt(buf, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}
