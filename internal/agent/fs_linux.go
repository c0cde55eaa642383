package agent

import (
	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// Bounds of single operations. They bound the agent's memory and time, whatever tree a program
// builds.
const (
	maxPath     = 4096
	maxName     = 255
	maxListing  = 1000      // entries of one ReadDir reply
	maxListData = 256 << 10 // bytes of one ReadDir reply
	maxHandles  = 256       // open files and pending creates
	maxTree     = 20_000    // depth of a recursive removal
	maxChunk    = 256 << 10 // bytes of one read
)

// handle is an open file, or a pending one that has not appeared at its path yet.
type handle struct {
	fd      int
	dir     int    // directory of a pending file
	temp    string // temporary name of a pending file
	name    string // final name of a pending file
	hasFIFO bool   // a FIFO has the final name until then (fsHold)
}

// onFS queues a file operation for a worker, or refuses it if the queue is full.
//
// Whoever reads frames never waits for one that works: a signal behind a long
// operation must not be late. More than there is room for is refused.
func (a *agent) onFS(f wire.Frame) error {
	var r wire.FSRequest
	if err := r.Decode(f.Payload); err != nil || !a.ready {
		return unix.EPROTO
	}
	if r.Op == wire.FSBlock {
		if err := a.readerBecomesUser(); err != nil {
			a.reply(f.ID, wire.FailFile, err, "", nil)
			return nil
		}
	}
	select {
	case a.jobs <- func() { a.answerFS(f.ID, &r); a.conn.recycle(f.Payload) }:
	default:
		a.reply(f.ID, wire.FailFile, unix.EMFILE, "", nil)
	}
	return nil
}

func (a *agent) answerFS(id uint32, r *wire.FSRequest) {
	switch r.Op {
	case wire.FSReadFiles:
		a.answerReadFiles(id, r)
		return
	case wire.FSRead:
		a.answerRead(id, r)
		return
	}
	data, fd, err := a.fsOp(r)
	switch {
	case err != nil:
		a.reply(id, wire.FailFile, err, "", nil)
	case fd >= 0:
		a.reply(id, wire.OK, nil, "", data, fd)
		if r.Op == wire.FSOpen { // the host has the descriptor now
			handle, _, _ := wire.DecodeHandle(data)
			a.fsClose(handle)
		}
	default:
		a.reply(id, wire.OK, nil, "", data)
	}
}

// fsOp performs one operation. A returned fd of 0 or more is to be passed to the host; its handle
// keeps owning it.
func (a *agent) fsOp(r *wire.FSRequest) (data []byte, fd int, err error) {
	switch r.Op {
	case wire.FSOpen:
		return a.fsOpen(r.Path)
	case wire.FSCreate:
		return a.fsCreate(r)
	case wire.FSCommit:
		return nil, -1, a.fsCommit(r.Handle)
	case wire.FSAbort:
		return nil, -1, a.fsAbort(r.Handle)
	case wire.FSStat:
		data, err = a.fsStat(r.Path)
	case wire.FSReadDir:
		data, err = a.fsReadDir(r.Path, r.To, int(r.Size))
	case wire.FSMkdir:
		err = a.fsMkdir(r.Path, r.Mode, r.Flags&wire.FSParents != 0)
	case wire.FSRemove:
		err = a.fsRemove(r.Path, r.Flags&wire.FSRecursive != 0)
	case wire.FSRename:
		err = a.fsRename(r.Path, r.To, r.Flags&wire.FSNoReplace != 0)
	case wire.FSChmod:
		err = a.fsChmod(r.Path, r.Mode, r.Flags&wire.FSRecursive != 0)
	case wire.FSChown:
		err = a.fsChown(r.Path, r.UID, r.GID, r.Flags&wire.FSRecursive != 0)
	case wire.FSWrite:
		err = a.fsWrite(r)
	case wire.FSClose:
		err = a.fsClose(r.Handle)
	case wire.FSPut:
		err = a.fsPut(r)
	case wire.FSUsage:
		data, err = a.fsUsage()
	case wire.FSBlock:
		data, err = a.fsBlock(r)
	case wire.FSCounters:
		data = readCounters()
	default:
		err = unix.EOPNOTSUPP
	}
	return data, -1, err
}

func (a *agent) fsOpen(path string) ([]byte, int, error) {
	path, err := a.absolute(path)
	if err != nil {
		return nil, -1, err
	}
	// Check before opening: opening a FIFO or a device can have effects.
	look, err := openAt(unix.AT_FDCWD, path, unix.O_PATH, 0)
	if err != nil {
		return nil, -1, err
	}
	err = requireRegular(look)
	unix.Close(look)
	if err != nil {
		return nil, -1, err
	}
	fd, err := openAt(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, -1, err
	}
	if err := requireRegular(fd); err != nil { // a program may have replaced it since
		unix.Close(fd)
		return nil, -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, -1, err
	}
	_, name, _ := split(path)
	info := describe(name, &st)
	return a.replyHandle(&handle{fd: fd, dir: -1}, wire.AppendFileInfos(nil, []wire.FileInfo{info}))
}

// replyHandle registers a handle, and returns its descriptor if the connection passes descriptors.
func (a *agent) replyHandle(h *handle, data []byte) ([]byte, int, error) {
	number, err := a.addHandle(h)
	if err != nil {
		return nil, -1, err
	}
	reply := append(wire.AppendHandle(nil, number), data...)
	if a.conn.passesFDs {
		return reply, h.fd, nil
	}
	return reply, -1, nil
}

// addHandle registers a handle, or discards it if there are too many.
func (a *agent) addHandle(h *handle) (number uint32, err error) {
	a.fsMu.Lock()
	defer a.fsMu.Unlock()
	if len(a.files) >= maxHandles {
		h.discard()
		return 0, unix.EMFILE
	}
	a.lastHandle++
	a.files[a.lastHandle] = h
	return a.lastHandle, nil
}

// discard closes a handle and removes a pending file.
func (h *handle) discard() {
	if h.temp != "" {
		unix.Unlinkat(h.dir, h.temp, 0)
		h.removeFIFO()
	}
	if h.fd >= 0 {
		unix.Close(h.fd)
	}
	if h.dir >= 0 {
		unix.Close(h.dir)
	}
}

func (a *agent) lookup(id uint32) (*handle, error) {
	a.fsMu.Lock()
	defer a.fsMu.Unlock()
	if h := a.files[id]; h != nil {
		return h, nil
	}
	return nil, unix.EBADF
}

// takeHandle removes a handle from the table.
func (a *agent) takeHandle(id uint32) (*handle, error) {
	a.fsMu.Lock()
	defer a.fsMu.Unlock()
	h := a.files[id]
	if h == nil {
		return nil, unix.EBADF
	}
	delete(a.files, id)
	return h, nil
}

func (a *agent) fsClose(id uint32) error {
	h, err := a.takeHandle(id)
	if err == nil {
		h.discard()
	}
	return err
}

func (a *agent) fsCreate(r *wire.FSRequest) ([]byte, int, error) {
	h, err := a.newPending(r)
	if err != nil {
		return nil, -1, err
	}
	return a.replyHandle(h, nil)
}

func (a *agent) fsPut(r *wire.FSRequest) error {
	if r.Flags&wire.FSAppend != 0 {
		return unix.EINVAL
	}
	h, err := a.newPending(r)
	if err != nil {
		return err
	}
	defer h.discard()
	if err := writeAll(h.fd, r.Bytes); err != nil {
		return err
	}
	return h.commit()
}

// newPending creates the file of an FSCreate: pending, or opened for append.
func (a *agent) newPending(r *wire.FSRequest) (*handle, error) {
	if err := checkMode(r.Mode); err != nil {
		return nil, err
	}
	dir, name, err := a.openParent(r.Path, r.Flags&wire.FSParents != 0)
	if err != nil {
		return nil, err
	}
	h := &handle{fd: -1, dir: dir, name: name}
	if r.Flags&wire.FSAppend != 0 {
		err = h.openAppend(r.Mode)
	} else {
		err = h.openTemp(r.Mode)
	}
	if err != nil {
		h.discard()
		return nil, err
	}
	return h, nil
}

// openAppend opens the file itself. It does not follow a link, through which a program could
// redirect the write.
func (h *handle) openAppend(mode uint32) error {
	fd, err := openAt(h.dir, h.name, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, mode)
	if err != nil {
		return err
	}
	h.fd = fd
	return requireRegular(fd)
}

// openTemp creates a pending file beside its final name.
func (h *handle) openTemp(mode uint32) error {
	if st, err := lstat(h.dir, h.name); err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return unix.EISDIR
	}
	var random [8]byte
	if _, err := unix.Getrandom(random[:], 0); err != nil {
		return err
	}
	temp := ".sandbar-" + hex(random[:])
	fd, err := openAt(h.dir, temp, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	h.fd, h.temp = fd, temp
	if err := requireRegular(fd); err != nil {
		return err
	}
	return unix.Fchmod(fd, mode)
}

func (a *agent) fsCommit(id uint32) error {
	h, err := a.takeHandle(id)
	if err != nil {
		return err
	}
	defer h.discard()
	return h.commit()
}

// commit renames a pending file to its final name.
func (h *handle) commit() error {
	if h.temp == "" {
		return nil // opened for append: no rename needed
	}
	if err := unix.Renameat(h.dir, h.temp, h.dir, h.name); err != nil {
		return err
	}
	h.temp = ""
	return nil
}

func (a *agent) fsAbort(id uint32) error { return a.fsClose(id) }

func (a *agent) fsWrite(r *wire.FSRequest) error {
	h, err := a.lookup(r.Handle)
	if err != nil {
		return err
	}
	return writeAll(h.fd, r.Bytes)
}

func (a *agent) fsStat(path string) ([]byte, error) {
	fd, name, err := a.openParent(path, false)
	if err == unix.EINVAL && path != "" {
		return a.statDir(path)
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	info, err := statInfo(fd, name)
	if err != nil {
		return nil, err
	}
	return wire.AppendFileInfos(nil, []wire.FileInfo{info}), nil
}

// statDir describes "/", or a path that ends in "." or "..": always a directory, never a link.
func (a *agent) statDir(path string) ([]byte, error) {
	abs, err := a.absolute(path)
	if err != nil {
		return nil, err
	}
	fd, st, err := openPath(unix.AT_FDCWD, abs, unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	unix.Close(fd)
	return wire.AppendFileInfos(nil, []wire.FileInfo{describe("/", &st)}), nil
}

// statInfo describes name in the directory dir, without following a link.
func statInfo(dir int, name string) (wire.FileInfo, error) {
	st, err := lstat(dir, name)
	if err != nil {
		return wire.FileInfo{}, err
	}
	info := describe(name, &st)
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		info.Target = readLink(dir, name)
	}
	return info, nil
}

func describe(name string, st *unix.Stat_t) wire.FileInfo {
	return wire.FileInfo{Name: name, Size: uint64(st.Size), Mode: st.Mode, UID: st.Uid, GID: st.Gid, MTime: st.Mtim.Nano()}
}

func (a *agent) fsMkdir(path string, mode uint32, parents bool) error {
	if err := checkMode(mode); err != nil {
		return err
	}
	dir, name, err := a.openParent(path, parents)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	err = unix.Mkdirat(dir, name, mode)
	if err == unix.EEXIST && parents {
		if fd, _, ferr := openPath(dir, name, unix.O_DIRECTORY); ferr == nil {
			return unix.Close(fd)
		}
	}
	if err != nil {
		return err
	}
	fd, _, err := openPath(dir, name, unix.O_NOFOLLOW|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return chmod(fd, mode) // undo the umask: the mode is exact
}

func (a *agent) fsRename(from, to string, keep bool) error {
	fromDir, fromName, err := a.openParent(from, false)
	if err != nil {
		return err
	}
	defer unix.Close(fromDir)
	toDir, toName, err := a.openParent(to, false)
	if err != nil {
		return err
	}
	defer unix.Close(toDir)
	if !keep {
		return unix.Renameat(fromDir, fromName, toDir, toName)
	}
	if err = unix.Renameat2(fromDir, fromName, toDir, toName, unix.RENAME_NOREPLACE); err == unix.EINVAL {
		err = renameBySteps(fromDir, fromName, toDir, toName)
	}
	return err
}

func hex(b []byte) string {
	const digits = "0123456789abcdef"
	s := make([]byte, 0, 2*len(b))
	for _, c := range b {
		s = append(s, digits[c>>4], digits[c&15])
	}
	return string(s)
}
