package agent

import (
	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// fileBatch reads the beginnings of several files. Of files that follow each
// other in the same directory it opens that directory once.
type fileBatch struct {
	a       *agent
	dirPath string // of dir, with the slash at its end
	dir     int    // -1 if none is open
	// plain is a device known not to be /proc; see regular.
	checkedDev uint64
	maxBytes   int // bytes of one file
	*buffers
}

// buffers are the memory that a batch needs. It is used again: it would be
// garbage faster than anything else here.
type buffers struct {
	file  [wire.MaxReadBytes + 1]byte
	reply []byte
}

// answerReadFiles answers an FSReadFiles: as many of the first files as fit
// into one reply.
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

// readAll appends the first of the files to reply.
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

// read reads one file. What it returns is valid until the next.
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
		case got == 0 || int64(n) == size: // less than there was room for
			return wire.FileContent{Complete: true, Bytes: b.file[:n]}
		}
	}
}

// open opens a regular file, not through a link, and tells its size.
func (b *fileBatch) open(path string) (fd int, size int64, err error) {
	name, err := b.openParent(path)
	if err != nil {
		return -1, 0, err
	}
	// Look before opening: opening a FIFO or a device can have effects.
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
	if size, err = b.requireRegular(fd); err != nil { // it may have been exchanged meanwhile
		unix.Close(fd)
		return -1, 0, err
	}
	return fd, size, nil
}

// regular is as the function of that name, which it asks once for each device:
// all of /proc is on one that nothing else is on. It tells the file's size.
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

// enter opens the directory of path, unless it is open, and returns the name in
// it.
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
