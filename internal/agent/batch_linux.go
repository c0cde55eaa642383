package agent

import (
	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// fileBatch reads the first bytes of several files. It opens a directory once for consecutive files
// in it.
type fileBatch struct {
	a       *agent
	dirPath string // of dir, with a trailing slash
	dir     int    // -1 if none is open
	// checkedDev is the last device that is known not to be a kernel file system; see
	// requireRegular.
	checkedDev uint64
	maxBytes   int // bound of one file, in bytes
	*buffers
}

// buffers is the memory of a batch. It is pooled because it would be most of the agent's garbage.
type buffers struct {
	file  [wire.MaxReadBytes + 1]byte
	reply []byte
}

// answerReadFiles answers an FSReadFiles with as many of the first files as fit into one Reply.
func (a *agent) answerReadFiles(id uint32, r *wire.FSRequest) {
	paths, err := wire.DecodePaths(r.Bytes)
	if err != nil || len(paths) == 0 || len(paths) > wire.MaxReadPaths {
		a.reply(id, wire.FailFile, unix.EINVAL, "", nil)
		return
	}
	mem, _ := a.buffers.Get().(*buffers)
	if mem == nil {
		mem = new(buffers)
	}
	defer a.buffers.Put(mem)
	b := fileBatch{a: a, dir: -1, maxBytes: min(int(r.Size), wire.MaxReadBytes), buffers: mem}
	mem.reply = wire.AppendReply(mem.reply[:0], func(reply []byte) []byte { return b.readAll(reply, paths) })
	a.conn.write(wire.Frame{Type: wire.TypeReply, ID: id, Payload: mem.reply})
}

// readAll appends the first files to reply.
func (b *fileBatch) readAll(reply []byte, paths []string) []byte {
	defer b.close()
	for i, path := range paths {
		c := b.read(path)
		if i > 0 && len(reply)+len(c.Bytes) > wire.MaxReadReply {
			break
		}
		reply = wire.AppendFileContent(reply, c)
	}
	return reply
}

func (b *fileBatch) close() {
	if b.dir >= 0 {
		unix.Close(b.dir)
		b.dir = -1
	}
}

// read reads one file. The result is valid until the next call.
func (b *fileBatch) read(path string) (c wire.FileContent) {
	fd, size, err := b.open(path)
	if err != nil {
		return wire.FileContent{Errno: errno(err)}
	}
	defer unix.Close(fd)
	for n := 0; ; {
		got, err := unix.Read(fd, b.file[n:b.maxBytes+1])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return wire.FileContent{Errno: errno(err)}
		}
		n += got
		switch {
		case n > b.maxBytes:
			return wire.FileContent{Bytes: b.file[:b.maxBytes]}
		case got == 0 || int64(n) == size: // fewer bytes than the buffer has room for: the end
			return wire.FileContent{Complete: true, Bytes: b.file[:n]}
		}
	}
}

// open opens a regular file, without following a link, and returns its size.
func (b *fileBatch) open(path string) (fd int, size int64, err error) {
	name, err := b.openParent(path)
	if err != nil {
		return -1, 0, err
	}
	// Stat before opening: opening a FIFO or a device can have effects.
	st, err := lstat(b.dir, name)
	if err != nil {
		return -1, 0, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		return -1, 0, unix.EISDIR
	case unix.S_IFLNK:
		return -1, 0, unix.ELOOP
	default:
		return -1, 0, unix.ENXIO
	}
	fd, err = openAt(b.dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return -1, 0, err
	}
	if size, err = b.requireRegular(fd); err != nil { // a program may have replaced it since
		unix.Close(fd)
		return -1, 0, err
	}
	return fd, size, nil
}

// requireRegular is the function of that name, but checks the file system once per device: a kernel
// file system never shares a device with another. It returns the file's size.
func (b *fileBatch) requireRegular(fd int) (size int64, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Dev != b.checkedDev {
		if err := requireRegular(fd); err != nil {
			return 0, err
		}
		b.checkedDev = st.Dev
	}
	return st.Size, nil
}

// openParent opens the directory of path, unless it is open already, and returns the last name of
// path.
func (b *fileBatch) openParent(path string) (string, error) {
	path, err := b.a.absolute(path)
	if err != nil {
		return "", err
	}
	if path[len(path)-1] == '/' {
		return "", unix.EISDIR
	}
	dir, name, err := split(path)
	if err != nil || b.dir >= 0 && dir == b.dirPath {
		return name, err
	}
	b.close()
	b.dir, err = openAt(unix.AT_FDCWD, dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	b.dirPath = dir
	return name, err
}
