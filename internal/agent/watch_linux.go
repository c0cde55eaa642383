package agent

import (
	"encoding/binary"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// watch reports the changes below a directory, from an inotify(7) instance to a stream.
//
// Directories are opened by the workers, which have the rights of the sandbox's user. The goroutine
// of run reads the kernel's events. It waits for each job that it gives to a worker, so no field
// needs a lock. No directory stays open, because the kernel reports the removal of a directory only
// when nobody has it open.
type watch struct {
	a         *agent
	recursive bool
	path      string           // of the watched directory
	id        dirID            // of the watched directory
	inotify   *os.File         // closing it ends the watch
	out       *os.File         // pipe to the stream
	dirs      map[int32]string // path of each watched directory, by watch descriptor
	buffer    []byte           // encoded events for the host
}

// watchMask are the events of each directory. The kernel also reports IN_Q_OVERFLOW, IN_IGNORED and
// IN_UNMOUNT.
const watchMask = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK

// onWatch starts a watch.
func (a *agent) onWatch(f wire.Frame) error {
	var r wire.Watch
	if err := r.Decode(f.Payload); err != nil || !a.ready {
		return unix.EPROTO
	}
	select {
	case a.jobs <- func() { a.startWatch(f.ID, &r) }:
	default:
		a.reply(f.ID, wire.FailFile, unix.EMFILE, "", nil)
	}
	return nil
}

func (a *agent) startWatch(id uint32, r *wire.Watch) {
	if a.watches.Add(1) > wire.MaxWatches {
		a.watches.Add(-1)
		a.reply(id, wire.FailFile, unix.EMFILE, "", nil)
		return
	}
	w := &watch{a: a, recursive: r.Recursive, dirs: map[int32]string{}}
	events, err := w.open(r.Path)
	if err != nil {
		w.close()
		a.reply(id, wire.FailFile, err, "", nil)
		return
	}
	s := newStreams(a.conn, id, w.inotify, events)
	a.register(s)
	a.reply(id, wire.OK, nil, "", nil)
	s.run()
	go w.run()
}

// open watches the directories. The result is the end of the pipe from which the host's stream
// reads.
func (w *watch) open(path string) (events *os.File, err error) {
	if w.path, err = w.a.absolute(path); err != nil {
		return nil, err
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	w.inotify = os.NewFile(uintptr(fd), "inotify")
	if err := w.addTree("", false); err != nil {
		return nil, err
	}
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, err
	}
	w.out = os.NewFile(uintptr(p[1]), "events")
	return os.NewFile(uintptr(p[0]), "events"), nil
}

func (w *watch) close() {
	if w.inotify != nil {
		w.inotify.Close()
	}
	if w.out != nil {
		w.out.Close()
	}
	w.a.watches.Add(-1)
}

// instance calls f with the descriptor of the inotify instance, which stays open until f returns.
// It does nothing after the end of the watch.
func (w *watch) instance(f func(fd int)) {
	if c, err := w.inotify.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { f(int(fd)) }) // fails if inotify is closed
	}
}

// addTree watches a directory and, if the watch is recursive, all below it. With report it also
// reports the entries that it finds, because they may have appeared before their directory was
// watched. It must run in a worker. ENOSPC: there are too many directories. Another error is one of
// the first directory; others that cannot be read are skipped.
func (w *watch) addTree(path string, report bool) (err error) {
	root, _, err := openPath(unix.AT_FDCWD, w.path, unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	id, err := dirIdentity(root)
	if err != nil || w.id.ino != 0 && id != w.id {
		return unix.ENOENT // another directory has this path now
	}
	w.id = id
	w.instance(func(inotify int) {
		for queue := []string{path}; len(queue) > 0; queue = queue[1:] {
			var below []string
			below, err = w.addDir(inotify, root, queue[0], report)
			queue = append(queue, below...)
			if err == nil && len(w.dirs)+len(queue) > wire.MaxWatchedDirs+1 {
				err = unix.ENOSPC
			}
			if err != nil && (queue[0] == path || err == unix.ENOSPC) {
				return
			}
		}
		err = nil
	})
	return err
}

// addDir watches one directory and returns the directories in it, at most one more than are
// possible.
func (w *watch) addDir(inotify, root int, path string, report bool) (below []string, err error) {
	fd, err := openBelow(root, path)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	wd, err := watchDir(inotify, fd, watchMask)
	if err != nil {
		return nil, err
	}
	w.dirs[int32(wd)] = path
	if !w.recursive {
		return nil, nil
	}
	err = eachName(fd, func(name string) bool {
		entry := join(path, name)
		if report {
			w.event(wire.FileCreated, entry)
		}
		if st, err := lstat(fd, name); err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && len(entry) <= wire.MaxEventPath {
			below = append(below, entry)
		}
		return len(below) <= wire.MaxWatchedDirs && len(w.buffer) <= maxReported
	})
	if len(w.buffer) > maxReported && err == nil {
		err = unix.ENOSPC
	}
	return below, err
}

// maxReported bounds the events of one read of inotify, in bytes.
const maxReported = 4 << 20

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// forget ends the watch of a directory that has left the tree, and of those below it.
func (w *watch) forget(path string) {
	w.instance(func(inotify int) {
		for wd, dir := range w.dirs {
			if dir == path || strings.HasPrefix(dir, path+"/") {
				delete(w.dirs, wd)
				_, _ = unix.InotifyRmWatch(inotify, uint32(wd)) // fails if the directory was removed
			}
		}
	})
}

// event appends an event for the host.
func (w *watch) event(op wire.FileOp, path string) {
	if len(path) <= wire.MaxEventPath {
		w.buffer = wire.AppendFileEvent(w.buffer, wire.FileEvent{Op: op, Path: path})
	}
}

// run passes on events until the host ends the watch or the directory is gone. If the host does not
// read, the pipe fills up, then the kernel's queue, and the kernel reports that events are lost.
func (w *watch) run() {
	defer w.close()
	buf := make([]byte, 16<<10)
	for more := true; more; {
		n, err := w.inotify.Read(buf)
		if err != nil {
			return
		}
		more = w.handle(buf[:n])
		if _, err := w.out.Write(w.buffer); err != nil {
			return
		}
		if w.buffer = w.buffer[:0]; cap(w.buffer) > 64<<10 {
			w.buffer = nil
		}
	}
}

// handle handles some of the kernel's events. It reports whether the watch goes on.
func (w *watch) handle(b []byte) bool {
	for len(b) >= unix.SizeofInotifyEvent {
		wd, mask := int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:])
		n := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
		name := strings.TrimRight(string(b[unix.SizeofInotifyEvent:n]), "\x00")
		b = b[n:]
		dir, known := w.dirs[wd]
		switch {
		case mask&unix.IN_Q_OVERFLOW != 0:
			w.event(wire.FileEventsLost, "")
			w.grow("", false)
		case !known:
		case mask&unix.IN_IGNORED != 0:
			delete(w.dirs, wd)
		case name != "":
			w.onEntry(join(dir, name), mask)
		case dir != "": // its parent reports it as an entry
		case mask&(unix.IN_DELETE_SELF|unix.IN_UNMOUNT) != 0:
			w.event(wire.FileRemoved, "")
			return false
		case mask&unix.IN_MOVE_SELF != 0:
			w.event(wire.FileRenamed, "")
			return false
		case mask&unix.IN_ATTRIB != 0:
			w.event(wire.FileChmod, "")
		}
	}
	return true
}

// onEntry handles an event of an entry of a watched directory.
func (w *watch) onEntry(path string, mask uint32) {
	inTree := mask&unix.IN_ISDIR != 0 && w.recursive
	switch {
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		w.event(wire.FileCreated, path)
		if inTree {
			w.grow(path, true)
		}
	case mask&unix.IN_MODIFY != 0:
		w.event(wire.FileWritten, path)
	case mask&unix.IN_DELETE != 0:
		w.event(wire.FileRemoved, path)
	case mask&unix.IN_MOVED_FROM != 0:
		w.event(wire.FileRenamed, path)
		if inTree {
			w.forget(path)
		}
	case mask&unix.IN_ATTRIB != 0:
		w.event(wire.FileChmod, path)
	}
}

// grow adds a directory, and those below it, to the watch. If there are too many, it tells the host
// that events are missing.
func (w *watch) grow(path string, report bool) {
	var err error
	var added sync.WaitGroup
	added.Add(1)
	w.a.jobs <- func() {
		defer added.Done()
		err = w.addTree(path, report)
	}
	added.Wait()
	if err == unix.ENOSPC {
		w.event(wire.FileEventsLost, "")
	}
}
