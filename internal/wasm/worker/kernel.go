package worker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"syscall"
	"time"

	"github.com/sandbar-dev/sandbar/internal/wasm/call"
	"github.com/sandbar-dev/sandbar/internal/wasm/memfs"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/program"
)

// kernel implements the system calls of one program in a runner.
type kernel struct {
	w      *worker
	ctx    context.Context
	c      *program.Context
	files  map[uint32]any // *memfs.File, stdin, stdout, or an io.ReadSeeker of a program's output
	next   uint32
	memory any // key of the program in the budget
	buf    []byte
}

// reader and writer mark the standard streams in files.
type (
	reader struct{ io.Reader }
	writer struct{ io.Writer }
)

func newKernel(ctx context.Context, w *worker, c *program.Context) *kernel {
	k := &kernel{w: w, ctx: ctx, c: c, next: 3, files: map[uint32]any{
		0: reader{c.Stdin}, 1: writer{c.Stdout}, 2: writer{c.Stderr}}}
	k.memory = k
	return k
}

// close closes everything that the program left open and frees its memory's charge.
func (k *kernel) close() {
	for _, f := range k.files {
		if c, ok := f.(io.Closer); ok {
			_ = c.Close()
		}
	}
	k.w.mem.release(k.memory)
}

// do executes one system call. The answer's Data is valid until the next call.
func (k *kernel) do(q *call.Request) call.Answer {
	a, err := k.answer(q)
	if err != nil {
		return call.Answer{Errno: k.w.errnos.Of(err), Size: a.Size}
	}
	return a
}

func (k *kernel) answer(q *call.Request) (a call.Answer, err error) {
	dir, disk := k.c.Dir, k.c.FS
	switch q.Op {
	case call.Open:
		return k.open(q)
	case call.Close:
		return a, k.shut(q.Handle)
	case call.Read, call.ReadAt:
		a.Data, err = k.read(q)
	case call.Write, call.WriteAt:
		a.Size, err = k.write(q)
	case call.Seek:
		a.Size, err = k.seek(q)
	case call.Fstat:
		a.Stat, err = k.fstat(q.Handle)
	case call.Stat:
		a.Stat, err = k.stat(q.Path, q.Flags)
	case call.ReadDir:
		a.Data, err = k.readDir(q)
	case call.Truncate, call.Append, call.Futimens:
		err = k.onFile(q)
	case call.Mkdir:
		err = disk.Mkdir(dir, q.Path, fileMode(q.Mode)&^k.c.Umask)
	case call.Unlink:
		err = disk.Remove(dir, q.Path)
	case call.Rmdir:
		err = disk.Rmdir(dir, q.Path)
	case call.Rename:
		err = disk.Rename(dir, q.Path, q.To)
	case call.Link:
		err = disk.Link(dir, q.Path, q.To)
	case call.Symlink:
		err = disk.Symlink(q.Path, dir, q.To)
	case call.Readlink:
		var target string
		target, err = disk.Readlink(dir, q.Path)
		a.Data = []byte(target)
	case call.Realpath:
		var real string
		real, err = disk.Realpath(dir, q.Path)
		a.Data = []byte(real)
	case call.Chmod:
		err = disk.Chmod(dir, q.Path, fileMode(q.Mode))
	case call.Utimens:
		change := disk.Chtimes
		if q.Flags&call.FlagNoFollow != 0 {
			change = disk.Lchtimes
		}
		err = change(dir, q.Path, timeOf(q.Offset), timeOf(q.Size))
	case call.Memory:
		if !k.w.mem.grant(k.memory, max(q.Size, 0)) {
			err = syscall.ENOMEM
		}
	case call.Spawn:
		return k.spawn(q)
	default:
		err = syscall.ENOSYS
	}
	return a, err
}

// timeOf converts nanoseconds to a time, and call.Omit to the zero time.
func timeOf(ns int64) time.Time {
	if ns == call.Omit {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

// add returns a new handle for a file. EMFILE: the limit of open files is reached.
func (k *kernel) add(f any) (uint32, error) {
	if k.w.plan.fds > 0 && int64(len(k.files)) >= k.w.plan.fds {
		return 0, syscall.EMFILE
	}
	for k.files[k.next] != nil {
		k.next++
	}
	k.files[k.next] = f
	return k.next, nil
}

// openFlags converts the flags of a system call to those of package memfs.
func openFlags(f uint32) int {
	flags := syscall.O_RDONLY
	switch f & (call.FlagRead | call.FlagWrite) {
	case call.FlagWrite:
		flags = syscall.O_WRONLY
	case call.FlagRead | call.FlagWrite:
		flags = syscall.O_RDWR
	}
	for _, m := range [...]struct {
		ours   uint32
		theirs int
	}{{call.FlagCreate, syscall.O_CREAT}, {call.FlagExclusive, syscall.O_EXCL}, {call.FlagTruncate, syscall.O_TRUNC},
		{call.FlagAppend, syscall.O_APPEND}, {call.FlagDirectory, memfs.Directory}, {call.FlagNoFollow, memfs.NoFollow}} {
		if f&m.ours != 0 {
			flags |= m.theirs
		}
	}
	return flags
}

func (k *kernel) open(q *call.Request) (a call.Answer, err error) {
	if n, ok := program.StreamNumber(k.c.Dir, q.Path); ok {
		f := k.files[uint32(n)]
		if f == nil {
			return a, syscall.ENOENT
		}
		if _, ok := f.(*memfs.File); !ok {
			a.Handle, err = k.add(shared{f})
			return a, err
		}
	}
	f, err := k.c.FS.OpenFile(k.c.Dir, q.Path, openFlags(q.Flags), fileMode(q.Mode)&^k.c.Umask)
	if err != nil {
		return a, err
	}
	i, err := f.Stat()
	if err == nil {
		a.Stat = infoOf(i)
		a.Handle, err = k.add(f)
	}
	if err != nil {
		_ = f.Close()
	}
	return a, err
}

// shared is a standard stream that was opened by name (/dev/stdin). Closing it does not close the
// stream.
type shared struct{ stream any }

// stream returns the file or stream of a handle.
func (k *kernel) stream(h uint32) any {
	f := k.files[h]
	if s, ok := f.(shared); ok {
		return s.stream
	}
	return f
}

func (k *kernel) shut(h uint32) error {
	f := k.files[h]
	if f == nil {
		return syscall.EBADF
	}
	delete(k.files, h)
	k.next = min(k.next, max(h, 3))
	if c, ok := f.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

func (k *kernel) read(q *call.Request) ([]byte, error) {
	size := int(min(max(q.Size, 0), call.MaxData))
	if cap(k.buf) < size {
		k.buf = make([]byte, size)
	}
	b := k.buf[:size]
	var n int
	var err error
	switch f := k.stream(q.Handle).(type) {
	case *memfs.File:
		if q.Op == call.ReadAt {
			n, err = f.ReadAt(b, q.Offset)
		} else {
			n, err = f.Read(b)
		}
	case reader:
		n, err = f.Read(b)
	case *bytes.Reader:
		n, err = f.Read(b)
	default:
		return nil, syscall.EBADF
	}
	if n > 0 || errors.Is(err, io.EOF) {
		err = nil
	}
	return b[:n], err
}

func (k *kernel) write(q *call.Request) (int64, error) {
	var n int
	var err error
	switch f := k.stream(q.Handle).(type) {
	case *memfs.File:
		if q.Op == call.WriteAt {
			n, err = f.WriteAt(q.Data, q.Offset)
		} else {
			n, err = f.Write(q.Data)
		}
	case writer:
		n, err = f.Write(q.Data)
	default:
		return 0, syscall.EBADF
	}
	if n > 0 && !errors.Is(err, io.ErrClosedPipe) {
		err = nil // short write; the next one returns the error
	}
	return int64(n), err
}

func (k *kernel) seek(q *call.Request) (int64, error) {
	switch f := k.stream(q.Handle).(type) {
	case *memfs.File:
		if q.Flags > io.SeekEnd {
			return 0, syscall.EINVAL
		}
		return f.Seek(q.Offset, int(q.Flags))
	case nil:
		return 0, syscall.EBADF
	}
	return 0, syscall.ESPIPE
}

func (k *kernel) fstat(h uint32) (call.Info, error) {
	switch f := k.stream(h).(type) {
	case *memfs.File:
		i, err := f.Stat()
		if err != nil {
			return call.Info{}, err
		}
		return infoOf(i), nil
	case nil:
		return call.Info{}, syscall.EBADF
	}
	return call.Info{Links: 1, Mode: 0o600}, nil
}

func (k *kernel) stat(name string, flags uint32) (call.Info, error) {
	look := k.c.FS.Stat
	if flags&call.FlagNoFollow != 0 {
		look = k.c.FS.Lstat
	}
	i, err := look(k.c.Dir, name)
	if err != nil {
		return call.Info{}, err
	}
	return infoOf(i), nil
}

// typeOf returns the type of a file.
func typeOf(m fs.FileMode) call.Type {
	switch {
	case m.IsDir():
		return call.TypeDirectory
	case m.IsRegular():
		return call.TypeRegular
	case m&fs.ModeSymlink != 0:
		return call.TypeSymlink
	case m&fs.ModeCharDevice != 0:
		return call.TypeCharacter
	}
	return call.TypeUnknown
}

func infoOf(i *memfs.Info) call.Info {
	return call.Info{Inode: i.Inode(), Size: i.Size(), Links: uint32(i.Links()), Mode: kernelMode(i.Mode()) & 0o7777, Type: typeOf(i.Mode()),
		ATime: i.AccessTime().UnixNano(), MTime: i.ModTime().UnixNano(), CTime: i.ChangeTime().UnixNano()}
}

// readDir returns the next part of a directory; empty at the end.
func (k *kernel) readDir(q *call.Request) ([]byte, error) {
	f, ok := k.stream(q.Handle).(*memfs.File)
	if !ok {
		return nil, syscall.ENOTDIR
	}
	if q.Flags&call.FlagFromStart != 0 {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
	}
	list, err := f.ReadDir(512)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	var b []byte
	for _, i := range list {
		b = call.AppendEntry(b, &call.Entry{Name: i.Name(), Inode: i.Inode(), Type: typeOf(i.Mode())})
	}
	return b, nil
}

// onFile executes a system call on an open file that returns no data.
func (k *kernel) onFile(q *call.Request) error {
	f, ok := k.stream(q.Handle).(*memfs.File)
	if !ok {
		return syscall.EINVAL
	}
	switch q.Op {
	case call.Truncate:
		return f.Truncate(q.Size)
	case call.Append:
		f.SetAppend(q.Flags != 0)
		return nil
	}
	return f.Chtimes(timeOf(q.Offset), timeOf(q.Size))
}

// maxCaptured bounds each output of a program that another one started, in bytes.
const maxCaptured = 8 << 20

// captured stores output. Writes above maxCaptured fail like those to a closed pipe.
type captured struct{ b bytes.Buffer }

func (c *captured) Write(p []byte) (int, error) {
	if c.b.Len()+len(p) > maxCaptured {
		return 0, io.ErrClosedPipe
	}
	return c.b.Write(p)
}

// spawn runs another program of the sandbox until it ends. Its output is then read from two
// consecutive handles.
func (k *kernel) spawn(q *call.Request) (a call.Answer, err error) {
	var cmd call.Command
	if err := cmd.Decode(q.Data); err != nil || len(cmd.Args) == 0 {
		return a, syscall.EINVAL
	}
	dir := k.c.Dir
	if cmd.Dir != "" {
		if dir, err = k.c.FS.Realpath(dir, cmd.Dir); err != nil {
			return a, err
		}
	}
	if err := k.w.progs.check(cmd.Args, cmd.Env, dir); err != nil {
		return a, err
	}
	var out, errs captured
	c := &program.Context{Args: cmd.Args, Env: cmd.Env, Dir: dir, Umask: k.c.Umask, FS: k.c.FS,
		Stdin: bytes.NewReader(bytes.Clone(cmd.Input)), Stdout: &out, Stderr: &errs}
	code := k.c.Run(k.ctx, c)
	if k.ctx.Err() != nil {
		return a, syscall.EINTR
	}
	if a.Handle, err = k.add(bytes.NewReader(out.b.Bytes())); err != nil {
		return a, err
	}
	for k.files[a.Handle+1] != nil { // both handles must be free and consecutive
		k.next = a.Handle + 2
		delete(k.files, a.Handle)
		if a.Handle, err = k.add(bytes.NewReader(out.b.Bytes())); err != nil {
			return a, err
		}
	}
	k.files[a.Handle+1] = bytes.NewReader(errs.b.Bytes())
	a.Size = int64(code)
	return a, nil
}
