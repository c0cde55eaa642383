package agent

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// restoreFiles unpacks an archive into the kept tmpfs. No program has run yet. Names of the archive
// are resolved one at a time and without following a link, in a mount of the tmpfs alone, so they
// lead nowhere else. Entries of the plan that later steps use exist already, and stay.
func (b *builder) restoreFiles(m *wire.Mount) error {
	if m.Size < 0 || m.Size >= int64(len(b.receivedMounts)) || b.keep.dir == 0 {
		return unix.EBADF
	}
	top, err := openEntry(b.keep.dir, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	r := restorer{
		top: b.keep.dir, fd: top, uid: int(m.UID), gid: int(m.GID), chown: m.UID != b.uid || m.GID != b.gid,
		replaced: strings.Fields(m.Source), skip: b.keep.skip,
		in: archiveReader{fd: b.receivedMounts[m.Size], buf: make([]byte, 0, 2*maxPiece)},
	}
	defer func() { unix.Close(r.fd) }()
	if string(r.in.take(len(archiveMagic))) != archiveMagic {
		return errArchive
	}
	for {
		switch done, err := r.record(); {
		case err != nil:
			return err
		case r.in.err != nil:
			return r.in.err
		case done && len(r.levels) > 0:
			return errArchive
		case done:
			return nil
		}
	}
}

// restored is a directory on the way from the top to where the restorer is.
type restored struct {
	own  bool // set its mode and time at the end
	mode uint32
	time int64
	path int // length of the path of the parent
}

// restorer is the state of an unpacking.
type restorer struct {
	in       archiveReader
	top, fd  int // the top, and where the restorer is
	uid, gid int
	chown    bool // new files do not belong to uid and gid by themselves
	replaced []string
	skip     map[string]bool
	levels   []restored
	path     []byte
}

// record handles one record.
func (r *restorer) record() (done bool, err error) {
	kind := r.in.u8()
	switch kind {
	case recordEnd:
		return true, nil
	case recordLeave:
		return false, r.leave()
	case recordEnter, recordFile, recordAgain, recordSymlink, recordFIFO, recordWhiteout:
	default:
		r.in.fail()
		return false, r.in.err
	}
	name := r.in.name()
	if r.in.err != nil {
		return false, r.in.err
	}
	path := string(r.path) + "/" + name
	if r.skip[path] {
		return false, errArchive
	}
	if kind == recordEnter {
		return false, r.enter(name)
	}
	if slices.Contains(r.replaced, path) {
		if err := unix.Unlinkat(r.fd, name, 0); err != nil && err != unix.ENOENT && err != unix.EISDIR {
			return false, err
		}
	}
	switch kind {
	case recordFile:
		err = r.file(name)
	case recordAgain:
		err = r.again(name)
	case recordSymlink:
		time, text := int64(r.in.u64()), string(r.in.bytes(maxPath))
		if r.in.err != nil {
			return false, r.in.err
		}
		if err = symlinkIn(r.fd, name, text); err == nil {
			err = r.finishEntry(name, 0, false, time)
		}
	case recordFIFO:
		mode, time := r.in.u32()&savedMode, int64(r.in.u64())
		if r.in.err != nil {
			return false, r.in.err
		}
		if err = unix.Mknodat(r.fd, name, unix.S_IFIFO|0o600, 0); err == nil {
			err = r.finishEntry(name, mode, true, time)
		}
	case recordWhiteout:
		err = unix.Mknodat(r.fd, name, unix.S_IFCHR, 0)
	}
	if err == unix.EEXIST {
		err = nil // the plan's entry stays
	}
	return false, err
}

// enter makes a directory, if it does not exist, and goes into it.
func (r *restorer) enter(name string) error {
	l := restored{own: r.in.u8() == 1, path: len(r.path)}
	var list []attribute
	if l.own {
		l.mode, l.time = r.in.u32()&savedMode, int64(r.in.u64())
		list = r.in.attributes()
	}
	if r.in.err != nil {
		return r.in.err
	}
	if len(r.levels) > maxNesting {
		return errArchive
	}
	made := unix.Mkdirat(r.fd, name, 0o755)
	if made != nil && made != unix.EEXIST {
		return made
	}
	fd, err := openEntry(r.fd, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err == unix.ENOTDIR || err == unix.ELOOP {
		return errArchive // only a false archive has a directory where the plan has a file
	}
	if err != nil {
		return err
	}
	unix.Close(r.fd)
	r.fd = fd
	r.levels = append(r.levels, l)
	r.path = append(append(r.path, '/'), name...)
	if made == nil && l.own && r.chown {
		if err := unix.Fchown(fd, r.uid, r.gid); err != nil {
			return err
		}
	}
	if made != nil && l.own { // it may be the agent's own
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		r.levels[len(r.levels)-1].own = int(st.Uid) == r.uid
	}
	return setAttributes(fd, list)
}

// leave completes a directory and goes back to its parent.
func (r *restorer) leave() error {
	if len(r.levels) == 0 {
		return errArchive
	}
	l := r.levels[len(r.levels)-1]
	r.levels = r.levels[:len(r.levels)-1]
	up, err := openEntry(r.fd, "..", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	if l.own {
		err = finish(r.fd, l.mode, l.time)
	}
	unix.Close(r.fd)
	r.fd = up
	r.path = r.path[:l.path]
	return err
}

// file makes a regular file. If the plan has one there, its data is skipped.
func (r *restorer) file(name string) error {
	mode, time := r.in.u32()&savedMode, int64(r.in.u64())
	list := r.in.attributes()
	size := r.in.u64()
	if r.in.err != nil || size > 1<<62 {
		r.in.fail()
		return r.in.err
	}
	fd, err := createEntry(r.fd, name)
	if err == unix.EEXIST {
		fd, err = -1, nil
	}
	if err != nil {
		return err
	}
	if fd >= 0 {
		defer unix.Close(fd)
	}
	written := uint64(0)
	for {
		at := r.in.u64()
		b := r.in.bytes(maxPiece)
		if r.in.err != nil {
			return r.in.err
		}
		if len(b) == 0 {
			break
		}
		if at > size || uint64(len(b)) > size-at {
			return errArchive
		}
		for fd >= 0 && len(b) > 0 {
			n, err := unix.Pwrite(fd, b, int64(at))
			if err != nil {
				return err
			}
			at, b = at+uint64(n), b[n:]
			written = max(written, at)
		}
	}
	if fd < 0 {
		return nil
	}
	if written < size {
		if err := unix.Ftruncate(fd, int64(size)); err != nil {
			return err
		}
	}
	if r.chown {
		if err := unix.Fchown(fd, r.uid, r.gid); err != nil {
			return err
		}
	}
	if err := setAttributes(fd, list); err != nil {
		return err
	}
	return finish(fd, mode, time)
}

// again makes another name of a file.
func (r *restorer) again(name string) error {
	path := string(r.in.bytes(maxPath))
	i := strings.LastIndexByte(path, '/')
	if r.in.err != nil || i < 0 || path[0] != '/' {
		r.in.fail()
		return r.in.err
	}
	dir := path[1:max(i, 1)]
	if dir == "" {
		dir = "."
	}
	parent, err := openBelow(r.top, dir)
	if err != nil {
		return errArchive
	}
	defer unix.Close(parent)
	st, err := lstat(parent, path[i+1:])
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != r.uid {
		return errArchive
	}
	return linkIn(parent, path[i+1:], r.fd, name)
}

// finishEntry completes an entry that cannot be opened.
func (r *restorer) finishEntry(name string, mode uint32, hasMode bool, time int64) error {
	fd, err := openEntry(r.fd, name, unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if r.chown {
		if err := chown(fd, uint32(r.uid), uint32(r.gid)); err != nil {
			return err
		}
	}
	if hasMode {
		if err := chmod(fd, mode); err != nil {
			return err
		}
	}
	return setTimes(r.fd, name, time)
}

// finish sets mode and time of an open file.
func finish(fd int, mode uint32, time int64) error {
	if err := unix.Fchmod(fd, mode); err != nil {
		return err
	}
	return setTimes(fd, "", time)
}

// setAttributes sets extended attributes. A file system without them has lost none that matter to
// an overlay: the overlay is then not mounted (checkUserXattrs).
func setAttributes(fd int, list []attribute) error {
	for _, a := range list {
		if err := unix.Fsetxattr(fd, a.name, []byte(a.value), 0); err != nil && err != unix.EOPNOTSUPP {
			return err
		}
	}
	return nil
}
