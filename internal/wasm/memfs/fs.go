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
	Inodes int64 // files, directories, links and devices, with the root
}

// Usage is what a file system holds and may hold.
type Usage struct {
	Bytes, Inodes int64 // in use
	Limits        Limits
}

// FS is a file system. The zero value is of no use; New makes one.
type FS struct {
	limits Limits

	mu      sync.RWMutex
	epoch   uint64 // inodes, chunks and branches of an earlier one are shared
	life    uint64 // counts Restore; handles of an earlier life are stale
	now     tree
	opens   map[uint64]int // handles by inode
	orphans map[uint64]bool
}

// tree is the part of a file system that a snapshot keeps.
type tree struct {
	inodes table
	next   uint64 // the number of the next inode
	bytes  int64
	count  int64
}

// Snapshot is the state of a file system at one moment.
type Snapshot struct {
	of      *FS
	tree    tree
	orphans []uint64 // inodes without a name that were open
}

// rootNumber is the number of the root directory.
const rootNumber = 1

// maxSize bounds a file, in bytes: a sparse one too is not larger than the disk.
func (f *FS) maxSize() int64 {
	if f.limits.Bytes > 0 {
		return f.limits.Bytes
	}
	return 1 << 40
}

// New returns a file system with an empty root directory of mode 0755. Limits
// that do not even leave room for that make one in which nothing can be made.
func New(l Limits) *FS {
	f := &FS{limits: l, epoch: 1, opens: map[uint64]int{}, orphans: map[uint64]bool{}}
	now := time.Now()
	root := &inode{number: rootNumber, epoch: 1, mode: fs.ModeDir | 0o755, links: 2, parent: rootNumber,
		entries: map[string]uint64{}, mtime: now, atime: now, ctime: now}
	f.now.inodes.put(f.epoch, root)
	f.now.next, f.now.count = rootNumber+1, 1
	return f
}

// SetLimits changes the limits. What is there already stays, also if it is more
// than they allow.
func (f *FS) SetLimits(l Limits) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limits = l
}

// Usage tells how much is in use. A file costs what is allocated for it, which
// can be less than its size (holes) and is up to 64 KiB more.
func (f *FS) Usage() Usage {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return Usage{Bytes: f.now.bytes, Inodes: f.now.count, Limits: f.limits}
}

// Snapshot keeps the present state for Restore. It costs next to nothing now;
// later, what changes is kept twice.
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

// Restore puts back the state of a snapshot, which can be used again. Files
// that are open become stale: all their methods but Close fail with ESTALE. A
// snapshot of another FS is a programming error and panics.
func (f *FS) Restore(s *Snapshot) {
	if s.of != f {
		panic("memfs: Restore of another file system's snapshot")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.epoch++
	f.life++
	f.now = s.tree
	f.opens = map[uint64]int{}
	f.orphans = map[uint64]bool{}
	for _, n := range s.orphans {
		f.free(f.inode(n))
	}
}

// inode returns an inode that is known to exist, for reading.
func (f *FS) inode(n uint64) *inode { return f.now.inodes.get(n) }

// own returns inode n for writing: a copy, when a snapshot shares it.
func (f *FS) own(n uint64) *inode {
	i := f.inode(n)
	if i.epoch == f.epoch {
		return i
	}
	i = i.copy(f.epoch)
	f.now.inodes.put(f.epoch, i)
	return i
}

// take charges n bytes and reports whether they are there; a negative n gives
// back.
func (f *FS) take(n int64) bool {
	if n > 0 && f.limits.Bytes > 0 && f.now.bytes+n > f.limits.Bytes {
		return false
	}
	f.now.bytes += n
	return true
}

func (f *FS) give(n int64) { f.now.bytes -= n }

// add makes an inode called name in directory dir. init fills in what its kind
// needs and may be nil.
func (f *FS) add(dir uint64, name string, mode fs.FileMode, init func(*inode)) (*inode, error) {
	if f.limits.Inodes > 0 && f.now.count >= f.limits.Inodes {
		return nil, syscall.ENOSPC
	}
	now := time.Now()
	i := &inode{number: f.now.next, epoch: f.epoch, mode: mode, links: 1, mtime: now, atime: now, ctime: now}
	if init != nil {
		init(i)
	}
	if !f.take(i.charge()) {
		return nil, syscall.ENOSPC
	}
	if err := f.enter(dir, name, i.number); err != nil {
		f.give(i.charge())
		return nil, err
	}
	f.now.next++
	f.now.count++
	if i.mode.IsDir() {
		i.entries, i.parent, i.links = map[string]uint64{}, dir, 2
		f.own(dir).links++
	}
	f.now.inodes.put(f.epoch, i)
	return i, nil
}

// enter makes name in dir stand for inode n. The name must be free.
func (f *FS) enter(dir uint64, name string, n uint64) error {
	if !f.take(entryCharge(name)) {
		return syscall.ENOSPC
	}
	d := f.own(dir)
	d.entries[name] = n
	d.touch()
	return nil
}

// leave removes name from dir; the inode stays.
func (f *FS) leave(dir uint64, name string) {
	d := f.own(dir)
	delete(d.entries, name)
	d.touch()
	f.give(entryCharge(name))
}

// touch notes that the contents changed.
func (i *inode) touch() {
	i.mtime = time.Now()
	i.ctime = i.mtime
}

// drop takes one name from inode n, which is no directory or an empty one, and
// frees it unless it has others or is open.
func (f *FS) drop(n uint64) {
	i := f.inode(n)
	gone := i.mode.IsDir() || i.links == 1
	if i.mode.IsDir() {
		f.own(i.parent).links--
	}
	if gone && f.opens[n] == 0 {
		f.free(i)
		return
	}
	i = f.own(n)
	i.links--
	if gone {
		i.links = 0
		f.orphans[n] = true
	}
	i.ctime = time.Now()
}

// free forgets an inode that has no name and is not open.
func (f *FS) free(i *inode) {
	f.give(i.charge())
	f.now.count--
	f.now.inodes.remove(f.epoch, i.number)
}
