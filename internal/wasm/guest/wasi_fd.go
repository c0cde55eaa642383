package guest

import (
	"encoding/binary"

	"github.com/sandbar-dev/sandbar/internal/wasm/call"
)

// descriptor is one open file of a program.
type descriptor struct {
	open    bool
	handle  uint32 // handle of the worker
	kind    call.Type
	std     bool   // standard stream, which has no offset
	path    string // absolute path of a directory, at which relative paths start
	write   bool
	read    bool
	append  bool
	listing []call.Entry // entries of a directory since the last read from its start
	device  *device      // set for devicePath, which has no handle
}

// The first descriptors.
const (
	preopenFD = 3 // the root directory, from which wasi-libc resolves all paths
	maxFDs    = 1 << 16
)

// fdTable has the descriptors of a program.
type fdTable struct{ list []descriptor }

func (t *fdTable) init() {
	t.list = []descriptor{
		{open: true, handle: 0, std: true, read: true},
		{open: true, handle: 1, std: true, write: true},
		{open: true, handle: 2, std: true, write: true},
		{open: true, kind: call.TypeDirectory, path: "/"},
	}
}

// get returns an open descriptor, or nil.
func (t *fdTable) get(fd uint32) *descriptor {
	if int64(fd) >= int64(len(t.list)) || !t.list[fd].open {
		return nil
	}
	return &t.list[fd]
}

// add stores a descriptor at the lowest free number.
func (t *fdTable) add(d descriptor) (uint32, bool) {
	d.open = true
	for i := range t.list {
		if i != preopenFD && !t.list[i].open {
			t.list[i] = d
			return uint32(i), true
		}
	}
	if len(t.list) >= maxFDs {
		return 0, false
	}
	t.list = append(t.list, d)
	return uint32(len(t.list) - 1), true
}

func (c *wasiCall) known(fd uint32) call.Errno {
	if c.fds.get(fd) == nil {
		return call.EBADF
	}
	return 0
}

// file returns a descriptor with a handle.
func (c *wasiCall) file(fd uint32) (*descriptor, call.Errno) {
	d := c.fds.get(fd)
	if d == nil || fd == preopenFD {
		return nil, call.EBADF
	}
	return d, 0
}

func fdClose(c *wasiCall) call.Errno {
	d := c.fds.get(c.u32(0))
	if d == nil {
		return call.EBADF
	}
	c.drop(c.u32(0), d)
	return 0
}

// drop closes a descriptor and frees its number.
func (c *wasiCall) drop(fd uint32, d *descriptor) {
	if fd != preopenFD && d.device == nil {
		c.call(&call.Request{Op: call.Close, Handle: d.handle})
	}
	*d = descriptor{}
}

// fdRenumber replaces a descriptor by another one.
func fdRenumber(c *wasiCall) call.Errno {
	from, to := c.u32(0), c.u32(1)
	a, errno := c.file(from)
	if errno != 0 {
		return errno
	}
	b, errno := c.file(to)
	if errno != 0 {
		return errno
	}
	if from != to {
		c.drop(to, b)
		*b, *a = *a, descriptor{}
	}
	return 0
}

// Flags of a descriptor, and the rights that represent its access mode.
const (
	fdFlagAppend  = 1
	rightRead     = 1 << 1
	rightSeek     = 1 << 2
	rightTell     = 1 << 5
	rightWrite    = 1 << 6
	rightsAll     = 1<<30 - 1
	rightsSeeking = rightSeek | rightTell
)

func fdStatGet(c *wasiCall) call.Errno {
	d := c.fds.get(c.u32(0))
	if d == nil {
		return call.EBADF
	}
	b, ok := c.bytes(c.u32(1), 24)
	if !ok {
		return call.EFAULT
	}
	clear(b)
	b[0] = byte(d.kind)
	if d.append {
		b[2] = fdFlagAppend
	}
	rights := uint64(rightsAll)
	if d.kind != call.TypeDirectory {
		if !d.read {
			rights &^= rightRead
		}
		if !d.write {
			rights &^= rightWrite
		}
		if d.std {
			rights &^= rightsSeeking
		}
	}
	binary.LittleEndian.PutUint64(b[8:], rights)
	binary.LittleEndian.PutUint64(b[16:], rightsAll)
	return 0
}

func fdStatSetFlags(c *wasiCall) call.Errno {
	d, errno := c.file(c.u32(0))
	if errno != 0 {
		return errno
	}
	on := c.u32(1)&fdFlagAppend != 0
	if on == d.append || d.std {
		return 0
	}
	q := call.Request{Op: call.Append, Handle: d.handle}
	if on {
		q.Flags = 1
	}
	errno = c.call(&q).Errno
	if errno == 0 {
		d.append = on
	}
	return errno
}

func fdFilestatGet(c *wasiCall) call.Errno {
	d := c.fds.get(c.u32(0))
	switch {
	case d == nil:
		return call.EBADF
	case d.std:
		return c.putInfo(c.u32(1), &call.Info{Links: 1})
	}
	q := call.Request{Op: call.Fstat, Handle: d.handle}
	if c.u32(0) == preopenFD {
		q = call.Request{Op: call.Stat, Path: "/"}
	}
	a := c.call(&q)
	if a.Errno != 0 {
		return a.Errno
	}
	return c.putInfo(c.u32(1), &a.Stat)
}

func fdFilestatSetSize(c *wasiCall) call.Errno {
	d, errno := c.file(c.u32(0))
	if errno != 0 {
		return errno
	}
	return c.call(&call.Request{Op: call.Truncate, Handle: d.handle, Size: c.i64(1)}).Errno
}

// fdAllocate extends a file to at least the given size.
func fdAllocate(c *wasiCall) call.Errno {
	d, errno := c.file(c.u32(0))
	if errno != 0 {
		return errno
	}
	end := c.i64(1) + c.i64(2)
	if c.i64(1) < 0 || c.i64(2) <= 0 || end < 0 {
		return call.EINVAL
	}
	a := c.call(&call.Request{Op: call.Fstat, Handle: d.handle})
	if a.Errno != 0 || a.Stat.Size >= end {
		return a.Errno
	}
	return c.call(&call.Request{Op: call.Truncate, Handle: d.handle, Size: end}).Errno
}

// times decodes the two times of a set_times function; Omit for one that is not set.
func (c *wasiCall) times(atim, mtim, flags int, q *call.Request) call.Errno {
	const setA, nowA, setM, nowM = 1, 2, 4, 8
	f := c.u32(flags)
	if f&(setA|nowA) == setA|nowA || f&(setM|nowM) == setM|nowM {
		return call.EINVAL
	}
	now, _ := c.now(clockReal)
	pick := func(value, set, current uint32) int64 {
		switch {
		case f&current != 0:
			return now
		case f&set != 0:
			return c.i64(int(value))
		}
		return call.Omit
	}
	q.Offset, q.Size = pick(uint32(atim), setA, nowA), pick(uint32(mtim), setM, nowM)
	return 0
}

func fdFilestatSetTimes(c *wasiCall) call.Errno {
	d, errno := c.file(c.u32(0))
	if errno != 0 {
		return errno
	}
	q := call.Request{Op: call.Futimens, Handle: d.handle}
	if errno := c.times(1, 2, 3, &q); errno != 0 {
		return errno
	}
	return c.call(&q).Errno
}

func fdPrestatGet(c *wasiCall) call.Errno {
	if c.u32(0) != preopenFD || c.known(preopenFD) != 0 {
		return call.EBADF
	}
	if errno := c.put32(c.u32(1), 0); errno != 0 { // a directory
		return errno
	}
	return c.put32(c.u32(1)+4, 1) // the length of "/"
}

func fdPrestatDirName(c *wasiCall) call.Errno {
	if c.u32(0) != preopenFD || c.known(preopenFD) != 0 {
		return call.EBADF
	}
	if c.u32(2) < 1 {
		return call.ENAMETOOLONG
	}
	if !c.mem.WriteByte(c.u32(1), '/') {
		return call.EFAULT
	}
	return 0
}

func fdSeek(c *wasiCall) call.Errno { return c.seek(c.i64(1), c.u32(2), c.u32(3)) }
func fdTell(c *wasiCall) call.Errno { return c.seek(0, 1, c.u32(1)) }

func (c *wasiCall) seek(offset int64, whence, out uint32) call.Errno {
	d, errno := c.file(c.u32(0))
	switch {
	case errno != 0:
		return errno
	case d.std:
		return call.ESPIPE
	}
	a := c.call(&call.Request{Op: call.Seek, Handle: d.handle, Offset: offset, Flags: whence})
	if a.Errno != 0 {
		return a.Errno
	}
	return c.put64(out, uint64(a.Size))
}
