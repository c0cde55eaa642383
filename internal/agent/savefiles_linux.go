package agent

import (
	"bytes"
	"encoding/binary"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// saveFiles writes the archive of the kept tmpfs to a pipe. Programs should stand still. If one
// changes the tree meanwhile, the archive has some mixture of the states before and after.
//
// The walk reads the file system through its own mount, in which nothing else is mounted, and never
// follows a link. It has the rights of the sandbox's user. A file or directory whose mode denies
// them to its owner gets another mode while it is read.
func (a *agent) saveFiles(pipe int) error {
	if a.separateUser {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		agentUID, agentGID := uint32(os.Geteuid()), uint32(os.Getegid())
		if err := setFileUser(a.uid, a.gid); err != nil {
			return err
		}
		defer func() {
			if setFileUser(agentUID, agentGID) != nil {
				os.Exit(1) // the thread must not serve others with the wrong rights
			}
		}()
	}
	s := saver{
		uid: a.uid, skip: a.keep.skip, w: archiveWriter{fd: pipe, buf: make([]byte, 0, maxPiece+(16<<10))},
		entries: make([]byte, 32<<10), linked: map[uint64]string{}, pending: a.pendingFiles(),
	}
	s.w.buf = append(s.w.buf, archiveMagic...)
	err := s.walk(a.keep.dir)
	if err == nil {
		err = s.w.begin(recordEnd, "", 0)
	}
	if err == nil {
		err = writeAll(pipe, s.w.buf)
	}
	return err
}

// pendingFiles returns the inode numbers of the files of uploads that are not complete.
func (a *agent) pendingFiles() map[uint64]bool {
	a.fsMu.Lock()
	defer a.fsMu.Unlock()
	pending := map[uint64]bool{}
	for _, h := range a.files {
		var st unix.Stat_t
		if h.temp != "" && unix.Fstat(h.fd, &st) == nil {
			pending[st.Ino] = true
		}
	}
	return pending
}

// maxKept bounds the memory for entries of directories that the walk returns to, in bytes.
const maxKept = 1 << 20

// level is a directory on the way from the top to where the walk is.
type level struct {
	rest   []byte // directory entries that were read and not handled yet
	offset int64  // where to read on after rest
	mode   int64  // to set when the walk leaves the directory; -1: none
	path   int    // length of the path of the parent
}

// saver is the state of a walk.
type saver struct {
	uid     uint32
	skip    map[string]bool
	w       archiveWriter
	entries []byte
	linked  map[uint64]string // inode number to path of files with several names
	pending map[uint64]bool

	fd     int // where the walk is
	levels []level
	kept   int    // bytes of all rest
	path   []byte // of fd, each name with a slash before it
}

// walk writes everything below top.
func (s *saver) walk(top int) (err error) {
	if s.fd, err = openEntry(top, ".", unix.O_RDONLY|unix.O_DIRECTORY); err != nil {
		return err
	}
	s.levels = []level{{mode: -1}}
	defer func() {
		for err != nil && len(s.levels) > 1 && s.back() == nil { // the modes must be those of before
		}
		unix.Close(s.fd)
	}()
	for {
		l := &s.levels[len(s.levels)-1]
		if len(l.rest) == 0 {
			more, err := s.read(l)
			if err != nil {
				return err
			}
			if !more {
				if len(s.levels) == 1 {
					return nil
				}
				if err = s.back(); err == nil {
					err = s.w.begin(recordLeave, "", 0)
				}
				if err != nil {
					return err
				}
				continue
			}
		}
		name, kind, err := l.next()
		if err != nil {
			return err
		}
		if name == "." || name == ".." {
			continue
		}
		// An entry that has disappeared was removed by a program that does not stand still.
		if err := s.entry(name, kind); err != nil && err != unix.ENOENT {
			return err
		}
	}
}

// read reads entries of the directory from l.offset.
func (s *saver) read(l *level) (more bool, err error) {
	if _, err := unix.Seek(s.fd, l.offset, unix.SEEK_SET); err != nil {
		return false, err
	}
	n, err := unix.Getdents(s.fd, s.entries)
	if err != nil || n == 0 {
		return false, err
	}
	l.rest = s.entries[:n]
	return true, nil
}

// next returns the next name of rest and its type, from entries of struct linux_dirent64
// (getdents64(2)).
func (l *level) next() (name string, kind byte, err error) {
	const typeAt, nameAt = 18, 19
	if len(l.rest) < nameAt {
		return "", 0, unix.EIO
	}
	size := int(binary.NativeEndian.Uint16(l.rest[16:]))
	if size < nameAt || size > len(l.rest) {
		return "", 0, unix.EIO
	}
	l.offset = int64(binary.NativeEndian.Uint64(l.rest[8:]))
	kind = l.rest[typeAt]
	b := l.rest[nameAt:size]
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	l.rest = l.rest[size:]
	return string(b), kind, nil
}

// entry writes the record of one entry. Of other users' entries, which are the sandbox's own,
// directories are only entered. Sockets and devices are left out.
func (s *saver) entry(name string, kind byte) error {
	if len(s.levels) <= maxSkipped && s.skip[string(s.path)+"/"+name] {
		return nil
	}
	if kind == unix.DT_REG {
		if fd, err := openEntry(s.fd, name, readFile); err != unix.EACCES {
			return s.openFile(name, fd, err)
		}
	}
	st, err := lstat(s.fd, name)
	if err != nil {
		return err
	}
	own := st.Uid == s.uid
	switch mode := st.Mode & savedMode; st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return s.enter(name, &st, own)
	case unix.S_IFCHR:
		if st.Rdev != 0 {
			return nil
		}
		return s.w.begin(recordWhiteout, name, 0) // the kernel may own it
	case unix.S_IFREG:
		if !own { // otherwise its owner may not read it
			return nil
		}
		if err := s.allow(name, mode|0o400); err != nil {
			return err
		}
		fd, err := openEntry(s.fd, name, readFile)
		if merr := s.allow(name, mode); merr != nil && err == nil {
			unix.Close(fd)
			return merr
		}
		return s.openFile(name, fd, err)
	case unix.S_IFLNK:
		text := readLink(s.fd, name)
		if !own || text == "" {
			return nil
		}
		if err := s.w.begin(recordSymlink, name, len(text)); err != nil {
			return err
		}
		s.w.u64(uint64(st.Mtim.Nano()))
		s.w.str(text)
	case unix.S_IFIFO:
		if !own {
			return nil
		}
		if err := s.w.begin(recordFIFO, name, 0); err != nil {
			return err
		}
		s.w.u32(mode)
		s.w.u64(uint64(st.Mtim.Nano()))
	}
	return nil
}

// readFile are the flags for reading an entry that may have become another kind of file.
const readFile = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY

// maxSkipped is the most components of a path to skip.
const maxSkipped = 2

// enter writes the record of a directory and goes into it.
func (s *saver) enter(name string, st *unix.Stat_t, own bool) error {
	if len(s.levels) > maxNesting {
		return unix.ELOOP
	}
	mode := int64(-1)
	if own && st.Mode&0o500 != 0o500 {
		if err := s.allow(name, st.Mode|0o500); err != nil {
			return err
		}
		mode = int64(st.Mode & savedMode)
	}
	fd, err := openEntry(s.fd, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err == unix.EACCES && !own {
		return nil // it is the agent's alone
	}
	if err != nil {
		return err
	}
	list := []attribute(nil)
	if own {
		list = attributesOf(fd)
	}
	if err := s.w.begin(recordEnter, name, 0); err != nil {
		unix.Close(fd)
		return err
	}
	s.w.buf = append(s.w.buf, bit(own))
	if own {
		s.w.u32(st.Mode & savedMode)
		s.w.u64(uint64(st.Mtim.Nano()))
		if err := s.w.attributes(list); err != nil {
			unix.Close(fd)
			return err
		}
	}
	// Keep the parent's entries if there is memory for them; otherwise they are read again.
	parent := &s.levels[len(s.levels)-1]
	if n := len(parent.rest); s.kept+n <= maxKept {
		parent.rest = bytes.Clone(parent.rest)
		s.kept += n
	} else {
		parent.rest = nil
	}
	unix.Close(s.fd)
	s.fd = fd
	s.levels = append(s.levels, level{mode: mode, path: len(s.path)})
	s.path = append(append(s.path, '/'), name...)
	return nil
}

// back goes back to the parent directory.
func (s *saver) back() error {
	l := s.levels[len(s.levels)-1]
	up, err := openEntry(s.fd, "..", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	if l.mode >= 0 {
		_ = unix.Fchmod(s.fd, uint32(l.mode)) // the file system or the rights have not changed since enter
	}
	unix.Close(s.fd)
	s.fd = up
	s.levels = s.levels[:len(s.levels)-1]
	s.kept -= len(s.levels[len(s.levels)-1].rest)
	s.path = s.path[:l.path]
	return nil
}

// allow changes the mode of an entry that its owner may not read.
func (s *saver) allow(name string, mode uint32) error {
	fd, err := openEntry(s.fd, name, unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return chmod(fd, mode&savedMode)
}

// openFile writes the record of a regular file that was opened with this result, and closes it.
func (s *saver) openFile(name string, fd int, err error) error {
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Uid != s.uid || s.pending[st.Ino] {
		return nil
	}
	if st.Nlink > 1 {
		if first, ok := s.linked[st.Ino]; ok {
			if err := s.w.begin(recordAgain, name, len(first)); err != nil {
				return err
			}
			s.w.str(first)
			return nil
		}
		if path := string(s.path) + "/" + name; len(path) < maxPath { // of a longer path the other names become files of their own
			s.linked[st.Ino] = path
		}
	}
	if err := s.w.begin(recordFile, name, 0); err != nil {
		return err
	}
	s.w.u32(st.Mode & savedMode)
	s.w.u64(uint64(st.Mtim.Nano()))
	if err := s.w.attributes(attributesOf(fd)); err != nil {
		return err
	}
	s.w.u64(uint64(st.Size))
	if err := s.data(fd, &st); err != nil {
		return err
	}
	if err := s.w.room(16); err != nil {
		return err
	}
	s.w.u64(0)
	s.w.u32(0)
	return nil
}

// data writes the pieces of a file, up to its size at the beginning.
func (s *saver) data(fd int, st *unix.Stat_t) error {
	for at := int64(0); at < st.Size; {
		end := st.Size
		if st.Blocks*512 < st.Size { // it has holes
			from, err := unix.Seek(fd, at, unix.SEEK_DATA)
			if err == unix.ENXIO {
				return nil // a hole up to the end
			}
			if err != nil {
				return err
			}
			hole, err := unix.Seek(fd, from, unix.SEEK_HOLE)
			if err != nil {
				return err
			}
			at, end = from, min(hole, st.Size)
		}
		for at < end {
			n, err := s.w.piece(fd, at, int(min(maxPiece, end-at)))
			if err != nil {
				return err
			}
			if n == 0 {
				return nil // it has become shorter
			}
			at += int64(n)
		}
	}
	return nil
}

// attributesOf returns the extended attributes of a file that are kept. A file system without them
// has none.
func attributesOf(fd int) (list []attribute) {
	var buf [4096]byte
	n, err := unix.Flistxattr(fd, buf[:])
	if err != nil || n == 0 {
		return nil
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00") {
		if !keepsAttribute(name) || len(list) == maxAttributes || len(name) > maxName {
			continue
		}
		size, err := unix.Fgetxattr(fd, name, nil)
		if err != nil || size > maxAttribute {
			continue
		}
		value := make([]byte, size)
		if size, err = unix.Fgetxattr(fd, name, value); err == nil {
			list = append(list, attribute{name, string(value[:size])})
		}
	}
	return list
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}
