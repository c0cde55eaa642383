package guest

import (
	"encoding/binary"

	"github.com/sandbar-dev/sandbar/internal/wasm/call"
)

// maxVectors bounds the iovecs of one read or write.
const maxVectors = 1024

// vectors returns the memory of a list of iovecs, up to the size that one call can move.
func (c *wasiCall) vectors(ptr, n uint32) (pieces [][]byte, total int, errno call.Errno) {
	if n > maxVectors {
		return nil, 0, call.EINVAL
	}
	list, ok := c.bytes(ptr, n*8)
	if !ok {
		return nil, 0, call.EFAULT
	}
	for ; len(list) > 0 && total < call.MaxData; list = list[8:] {
		size := binary.LittleEndian.Uint32(list[4:])
		b, ok := c.bytes(binary.LittleEndian.Uint32(list), size)
		if !ok {
			return nil, 0, call.EFAULT
		}
		b = b[:min(len(b), call.MaxData-total)]
		pieces, total = append(pieces, b), total+len(b)
	}
	return pieces, total, 0
}

// transfer returns the descriptor and the buffers of a call that reads or writes a file.
func (c *wasiCall) transfer(q *call.Request) (d *descriptor, pieces [][]byte, total int, errno call.Errno) {
	d, errno = c.file(c.u32(0))
	reads, positioned := q.Op == call.Read || q.Op == call.ReadAt, q.Op == call.ReadAt || q.Op == call.WriteAt
	switch {
	case errno != 0:
	case d.kind == call.TypeDirectory:
		errno = call.EISDIR
	case reads && !d.read, !reads && !d.write:
		errno = call.EBADF
	case d.std && positioned:
		errno = call.ESPIPE
	default:
		pieces, total, errno = c.vectors(c.u32(1), c.u32(2))
	}
	return d, pieces, total, errno
}

func fdRead(c *wasiCall) call.Errno {
	return c.read(&call.Request{Op: call.Read}, c.u32(3))
}

func fdPread(c *wasiCall) call.Errno {
	return c.read(&call.Request{Op: call.ReadAt, Offset: c.i64(3)}, c.u32(4))
}

func (c *wasiCall) read(q *call.Request, out uint32) call.Errno {
	d, pieces, total, errno := c.transfer(q)
	if errno != 0 {
		return errno
	}
	if total == 0 {
		return c.put32(out, 0)
	}
	if d.device != nil {
		return c.put32(out, d.device.read(c.machine, pieces))
	}
	q.Handle, q.Size = d.handle, int64(total)
	a := c.call(q)
	if a.Errno != 0 {
		return a.Errno
	}
	data := a.Data[:min(len(a.Data), total)]
	n := uint32(len(data))
	for _, p := range pieces {
		data = data[copy(p, data):]
	}
	return c.put32(out, n)
}

func fdWrite(c *wasiCall) call.Errno {
	return c.write(&call.Request{Op: call.Write}, c.u32(3))
}

func fdPwrite(c *wasiCall) call.Errno {
	return c.write(&call.Request{Op: call.WriteAt, Offset: c.i64(3)}, c.u32(4))
}

func (c *wasiCall) write(q *call.Request, out uint32) call.Errno {
	d, pieces, total, errno := c.transfer(q)
	if errno != 0 {
		return errno
	}
	if total == 0 {
		return c.put32(out, 0)
	}
	if d.device != nil {
		return c.put32(out, d.device.write(pieces))
	}
	q.Handle = d.handle
	if len(pieces) == 1 {
		q.Data = pieces[0] // copied into the frame
	} else {
		c.used += total
		q.Data = make([]byte, 0, total)
		for _, p := range pieces {
			q.Data = append(q.Data, p...)
		}
	}
	a := c.call(q)
	if a.Errno != 0 {
		return a.Errno
	}
	return c.put32(out, uint32(a.Size))
}

// fdReaddir stores entries from a cookie on, an index of the listing. The last entry may be
// truncated; by that the program knows that more follow.
func fdReaddir(c *wasiCall) call.Errno {
	d := c.fds.get(c.u32(0))
	switch {
	case d == nil:
		return call.EBADF
	case d.kind != call.TypeDirectory:
		return call.ENOTDIR
	}
	out, ok := c.bytes(c.u32(1), c.u32(2))
	if !ok {
		return call.EFAULT
	}
	cookie := uint64(c.i64(3))
	if cookie == 0 || d.listing == nil {
		if errno := c.list(d, c.u32(0)); errno != 0 {
			return errno
		}
	}
	stored := 0
	for ; cookie < uint64(len(d.listing)) && stored < len(out); cookie++ {
		e := d.listing[cookie]
		b := binary.LittleEndian.AppendUint64(make([]byte, 0, 24+len(e.Name)), cookie+1)
		b = binary.LittleEndian.AppendUint64(b, e.Inode)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(e.Name)))
		b = append(b, byte(e.Type), 0, 0, 0)
		stored += copy(out[stored:], append(b, e.Name...))
		c.used += 24 + len(e.Name)
	}
	return c.put32(c.u32(4), uint32(stored))
}

// list reads a directory from its start.
func (c *wasiCall) list(d *descriptor, fd uint32) call.Errno {
	handle := d.handle
	if fd == preopenFD {
		a := c.call(&call.Request{Op: call.Open, Path: "/", Flags: call.FlagRead | call.FlagDirectory})
		if a.Errno != 0 {
			return a.Errno
		}
		handle = a.Handle
		defer c.call(&call.Request{Op: call.Close, Handle: handle})
	}
	d.listing = []call.Entry{{Name: ".", Type: call.TypeDirectory}, {Name: "..", Type: call.TypeDirectory}}
	q := call.Request{Op: call.ReadDir, Handle: handle, Flags: call.FlagFromStart}
	for {
		a := c.call(&q)
		if a.Errno != 0 {
			return a.Errno
		}
		if len(a.Data) == 0 {
			return 0
		}
		more, err := call.DecodeEntries(a.Data, d.listing)
		if err != nil {
			return call.EIO
		}
		d.listing, q.Flags = more, 0
		c.used += len(a.Data) * 2
	}
}
