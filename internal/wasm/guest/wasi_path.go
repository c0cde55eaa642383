package guest

import (
	"strings"

	"github.com/sandbar-dev/sandbar/internal/wasm/call"
)

// at returns the absolute path for a path in the program's memory, relative to the directory of a
// descriptor.
func (c *wasiCall) at(fd, ptr, n uint32) (string, call.Errno) {
	d := c.fds.get(fd)
	switch {
	case d == nil:
		return "", call.EBADF
	case d.kind != call.TypeDirectory:
		return "", call.ENOTDIR
	}
	p, errno := c.path(ptr, n)
	switch {
	case errno != 0:
		return "", errno
	case p == "":
		return "", call.ENOENT
	case strings.HasPrefix(p, "/"):
		return p, 0
	case d.path == "/":
		return "/" + p, 0
	}
	return d.path + "/" + p, 0
}

// follow is the flag that follows a symbolic link in the last component.
const follow = 1

func lookup(flags uint32) uint32 {
	if flags&follow == 0 {
		return call.FlagNoFollow
	}
	return 0
}

// The flags of path_open.
const (
	openCreate = 1 << iota
	openDirectory
	openExclusive
	openTruncate
)

func pathOpen(c *wasiCall) call.Errno {
	path, errno := c.at(c.u32(0), c.u32(2), c.u32(3))
	if errno != 0 {
		return errno
	}
	if path == devicePath {
		return c.openDevice(c.u32(8))
	}
	oflags, rights, fdflags := c.u32(4), c.i64(5), c.u32(7)
	// wasi-libc expresses O_NOFOLLOW by the absence of the flag.
	q := call.Request{Op: call.Open, Path: path, Mode: 0o666, Flags: lookup(c.u32(1))}
	for _, f := range [...]struct{ theirs, ours uint32 }{
		{openCreate, call.FlagCreate}, {openDirectory, call.FlagDirectory},
		{openExclusive, call.FlagExclusive}, {openTruncate, call.FlagTruncate},
	} {
		if oflags&f.theirs != 0 {
			q.Flags |= f.ours
		}
	}
	d := descriptor{read: rights&rightRead != 0, write: rights&rightWrite != 0 && oflags&openDirectory == 0,
		append: fdflags&fdFlagAppend != 0}
	if !d.read && !d.write {
		d.read = true
	}
	if d.read {
		q.Flags |= call.FlagRead
	}
	if d.write {
		q.Flags |= call.FlagWrite
	}
	if d.append {
		q.Flags |= call.FlagAppend
	}
	a := c.call(&q)
	if a.Errno == call.EISDIR && q.Flags&(call.FlagCreate|call.FlagTruncate) == 0 && d.read {
		// wasi-libc requests all rights when it opens a directory to list it.
		q.Flags &^= call.FlagWrite | call.FlagAppend
		d.write = false
		a = c.call(&q)
	}
	if a.Errno != 0 {
		return a.Errno
	}
	d.handle, d.kind, d.path = a.Handle, a.Stat.Type, path
	if d.kind == call.TypeCharacter {
		d.kind = call.TypeUnknown // so that isatty(3) is false
	}
	fd, ok := c.fds.add(d)
	if !ok {
		c.call(&call.Request{Op: call.Close, Handle: d.handle})
		return call.EMFILE
	}
	return c.put32(c.u32(8), fd)
}

func pathFilestatGet(c *wasiCall) call.Errno {
	path, errno := c.at(c.u32(0), c.u32(2), c.u32(3))
	if errno != 0 {
		return errno
	}
	a := c.call(&call.Request{Op: call.Stat, Path: path, Flags: lookup(c.u32(1))})
	if a.Errno != 0 {
		return a.Errno
	}
	return c.putInfo(c.u32(4), &a.Stat)
}

func pathFilestatSetTimes(c *wasiCall) call.Errno {
	path, errno := c.at(c.u32(0), c.u32(2), c.u32(3))
	if errno != 0 {
		return errno
	}
	q := call.Request{Op: call.Utimens, Path: path, Flags: lookup(c.u32(1))}
	if errno := c.times(4, 5, 6, &q); errno != 0 {
		return errno
	}
	return c.call(&q).Errno
}

// onPath executes a system call with one path and without a result.
func (c *wasiCall) onPath(q call.Request) call.Errno {
	path, errno := c.at(c.u32(0), c.u32(1), c.u32(2))
	if errno != 0 {
		return errno
	}
	q.Path = path
	return c.call(&q).Errno
}

func pathCreateDirectory(c *wasiCall) call.Errno {
	return c.onPath(call.Request{Op: call.Mkdir, Mode: 0o777})
}
func pathRemoveDirectory(c *wasiCall) call.Errno { return c.onPath(call.Request{Op: call.Rmdir}) }
func pathUnlinkFile(c *wasiCall) call.Errno      { return c.onPath(call.Request{Op: call.Unlink}) }

func pathLink(c *wasiCall) call.Errno { return c.onPaths(call.Link, 0, 2, 4) }

func pathRename(c *wasiCall) call.Errno { return c.onPaths(call.Rename, 0, 1, 3) }

// onPaths executes a system call with two paths. The arguments are the indices of the first one's
// directory and name, and of the second one's directory.
func (c *wasiCall) onPaths(op call.Op, fd, name, to int) call.Errno {
	from, errno := c.at(c.u32(fd), c.u32(name), c.u32(name+1))
	if errno != 0 {
		return errno
	}
	dest, errno := c.at(c.u32(to), c.u32(to+1), c.u32(to+2))
	if errno != 0 {
		return errno
	}
	return c.call(&call.Request{Op: op, Path: from, To: dest}).Errno
}

func pathSymlink(c *wasiCall) call.Errno {
	target, errno := c.path(c.u32(0), c.u32(1))
	if errno != 0 {
		return errno
	}
	at, errno := c.at(c.u32(2), c.u32(3), c.u32(4))
	if errno != 0 {
		return errno
	}
	return c.call(&call.Request{Op: call.Symlink, Path: target, To: at}).Errno
}

func pathReadlink(c *wasiCall) call.Errno {
	path, errno := c.at(c.u32(0), c.u32(1), c.u32(2))
	if errno != 0 {
		return errno
	}
	a := c.call(&call.Request{Op: call.Readlink, Path: path})
	if a.Errno != 0 {
		return a.Errno
	}
	out, ok := c.bytes(c.u32(3), c.u32(4))
	if !ok {
		return call.EFAULT
	}
	return c.put32(c.u32(5), uint32(copy(out, a.Data)))
}
