package agent

import (
	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// fileBatch reads the beginnings of several files. Of files that follow each other
// in the same directory it opens that directory once.
type fileBatch struct {
	a    *agent
	path string // of dir, with the slash at its end
	dir  int    // -1 if none is open
	// plain is a device known not to be /proc; see regular.
	plain   uint64
	scratch []byte // as much as is wanted of one file, and a byte more
}

// fsReadFiles reads the first of the files named in names, most bytes of each,
// as many files as fit into one answer.
func (a *agent) fsReadFiles(names []byte, most int) ([]byte, error) {
	paths, err := wire.DecodePaths(names)
	if err != nil || len(paths) == 0 || len(paths) > wire.MaxReadPaths {
		return nil, unix.EINVAL
	}
	b := fileBatch{a: a, dir: -1, scratch: make([]byte, min(most, wire.MaxReadBytes)+1)}
	defer b.close()
	var reply []byte
	for i, path := range paths {
		c := b.read(path)
		if i > 0 && len(reply)+len(c.Bytes) > wire.MaxReadReply {
			break
		}
		reply = wire.AppendFileContent(reply, c)
	}
	return reply, nil
}

func (b *fileBatch) close() {
	if b.dir >= 0 {
		unix.Close(b.dir)
		b.dir = -1
	}
}

// read reads one file. What it returns is valid until the next.
func (b *fileBatch) read(path string) (c wire.FileContent) {
	fd, err := b.open(path)
	if err != nil {
		return wire.FileContent{Errno: errno(err)}
	}
	defer unix.Close(fd)
	n := 0
	for n < len(b.scratch) {
		got, err := unix.Read(fd, b.scratch[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return wire.FileContent{Errno: errno(err)}
		}
		if got == 0 {
			return wire.FileContent{Whole: true, Bytes: b.scratch[:n]}
		}
		n += got
	}
	return wire.FileContent{Bytes: b.scratch[:n-1]}
}

// open opens a regular file, not through a link.
func (b *fileBatch) open(path string) (int, error) {
	name, err := b.enter(path)
	if err != nil {
		return -1, err
	}
	// Look before opening: opening a FIFO or a device can have effects.
	var st unix.Stat_t
	if err := unix.Fstatat(b.dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return -1, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		return -1, unix.EISDIR
	case unix.S_IFLNK:
		return -1, unix.ELOOP
	default:
		return -1, unix.ENXIO
	}
	fd, err := openAt(b.dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return -1, err
	}
	if err := b.regular(fd); err != nil { // it may have been exchanged meanwhile
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// regular is as the function of that name, which it asks once for each device:
// all of /proc is on one that nothing else is on.
func (b *fileBatch) regular(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFREG && st.Dev == b.plain {
		return nil
	}
	if err := regular(fd); err != nil {
		return err
	}
	b.plain = st.Dev
	return nil
}

// enter opens the directory of path, unless it is open, and returns the name in
// it.
func (b *fileBatch) enter(path string) (string, error) {
	path, err := b.a.absolute(path)
	if err != nil {
		return "", err
	}
	if path[len(path)-1] == '/' {
		return "", unix.EISDIR
	}
	dir, name, err := split(path)
	if err != nil || b.dir >= 0 && dir == b.path {
		return name, err
	}
	b.close()
	b.dir, err = openAt(unix.AT_FDCWD, dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	b.path = dir
	return name, err
}
