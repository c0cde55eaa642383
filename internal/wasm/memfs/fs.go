package memfs

import (
	"io/fs"
	"sync"
	"syscall"
	"time"
)

// Limits bound a file system. Zero means no limit.
type Limits struct {
	Bytes  int64 // contents, names and link targets, in bytes
	Inodes int64 // files, directories, links and devices, including the root
}

// Usage is the use of a file system and its limits.
type Usage struct {
	Bytes, Inodes int64 // in use
	Limits        Limits
}

// FS is a file system. Use New to create one.
type FS struct {
	limits Limits

	mu         sync.RWMutex
	epoch      uint64 // those of an earlier epoch are shared with a snapshot
	generation uint64 // incremented by Restore; open files of an earlier generation are stale
	now        tree
	opens      map[uint64]int // number of open files by inode
	orphans    map[uint64]bool
}

// tree is the part of a file system that a snapshot saves.
type tree struct {
	inodes table
	next   uint64 // number of the next inode
	bytes  int64
	count  int64
}

// Snapshot is the state of a file system at one moment.
type Snapshot struct {
	of      *FS
	tree    tree
	orphans []uint64 // inodes without a name that were still open
}

// rootNumber is the number of the root directory.
const rootNumber = 1

// maxSize returns the largest size of a file in bytes, also of a sparse one: the limit of the file
// system.
func (f *FS) maxSize() int64 {
	if f.limits.Bytes > 0 {
		return f.limits.Bytes
	}
	return 1 << 40
}

// New returns a file system with an empty root directory of mode 0755, even if the limits are too
// small for it.
func New(l Limits) *FS {
	f := &FS{limits: l, epoch: 1, opens: map[uint64]int{}, orphans: map[uint64]bool{}}
	now := time.Now()
	root := &inode{number: rootNumber, epoch: 1, mode: fs.ModeDir | 0o755, links: 2, parent: rootNumber,
		entries: map[string]uint64{}, mtime: now, atime: now, ctime: now}
	f.now.inodes.put(f.epoch, root)
	f.now.next, f.now.count = rootNumber+1, 1
	return f
}

// SetLimits changes the limits. Existing files remain, even above the limits.
func (f *FS) SetLimits(l Limits) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limits = l
}

// Usage returns the current use. A file is charged for its allocated chunks: less than its size if
// it has holes, and up to 64 KiB more than its size.
func (f *FS) Usage() Usage {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return Usage{Bytes: f.now.bytes, Inodes: f.now.count, Limits: f.limits}
}

// Snapshot saves the current state for Restore, in constant time. Later changes copy what they
// modify.
func (f *FS) Snapshot() *Snapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.epoch++
	s := &Snapshot{of: f, tree: f.now}
	for n := range f.orphans {
		s.orphans = append(s.orphans, n)
	}
	return s
}

// Restore restores a snapshot, which remains usable. All methods of files that are open return
// ESTALE then, except for Close. It panics if the snapshot is of another FS.
func (f *FS) Restore(s *Snapshot) {
	if s.of != f {
		panic("memfs: Restore of another file system's snapshot")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.epoch++
	f.generation++
	f.now = s.tree
	f.opens = map[uint64]int{}
	f.orphans = map[uint64]bool{}
	for _, n := range s.orphans {
		f.free(f.inode(n))
	}
}

// inode returns an existing inode for reading.
func (f *FS) inode(n uint64) *inode { return f.now.inodes.get(n) }

// writable returns inode n for writing, after copying it if a snapshot shares it.
func (f *FS) writable(n uint64) *inode {
	i := f.inode(n)
	if i.epoch == f.epoch {
		return i
	}
	i = i.copy(f.epoch)
	f.now.inodes.put(f.epoch, i)
	return i
}

// charge charges n bytes and reports whether the limit permits it. A negative n reduces the charge.
func (f *FS) charge(n int64) bool {
	if n > 0 && f.limits.Bytes > 0 && f.now.bytes+n > f.limits.Bytes {
		return false
	}
	f.now.bytes += n
	return true
}

func (f *FS) give(n int64) { f.now.bytes -= n }

// add creates an inode called name in directory dir. init, if not nil, initializes the fields of
// its type.
func (f *FS) add(dir uint64, name string, mode fs.FileMode, init func(*inode)) (*inode, error) {
	if f.limits.Inodes > 0 && f.now.count >= f.limits.Inodes {
		return nil, syscall.ENOSPC
	}
	now := time.Now()
	i := &inode{number: f.now.next, epoch: f.epoch, mode: mode, links: 1, mtime: now, atime: now, ctime: now}
	if init != nil {
		init(i)
	}
	if !f.charge(i.charge()) {
		return nil, syscall.ENOSPC
	}
	if err := f.addEntry(dir, name, i.number); err != nil {
		f.give(i.charge())
		return nil, err
	}
	f.now.next++
	f.now.count++
	if i.mode.IsDir() {
		i.entries, i.parent, i.links = map[string]uint64{}, dir, 2
		f.writable(dir).links++
	}
	f.now.inodes.put(f.epoch, i)
	return i, nil
}

// addEntry adds an entry for inode n to directory dir. The name must be free.
func (f *FS) addEntry(dir uint64, name string, n uint64) error {
	if !f.charge(entryCharge(name)) {
		return syscall.ENOSPC
	}
	d := f.writable(dir)
	d.entries[name] = n
	d.touch()
	return nil
}

// removeEntry removes an entry from directory dir, but not its inode.
func (f *FS) removeEntry(dir uint64, name string) {
	d := f.writable(dir)
	delete(d.entries, name)
	d.touch()
	f.give(entryCharge(name))
}

// touch sets the times of a change of the content.
func (i *inode) touch() {
	i.mtime = time.Now()
	i.ctime = i.mtime
}

// unlink removes one link of inode n, which must not be a directory with entries. It frees an inode
// that has no link and is not open.
func (f *FS) unlink(n uint64) {
	i := f.inode(n)
	gone := i.mode.IsDir() || i.links == 1
	if i.mode.IsDir() {
		f.writable(i.parent).links--
	}
	if gone && f.opens[n] == 0 {
		f.free(i)
		return
	}
	i = f.writable(n)
	i.links--
	if gone {
		i.links = 0
		f.orphans[n] = true
	}
	i.ctime = time.Now()
}

// free removes an inode that has no link and is not open.
func (f *FS) free(i *inode) {
	f.give(i.charge())
	f.now.count--
	f.now.inodes.remove(f.epoch, i.number)
}
