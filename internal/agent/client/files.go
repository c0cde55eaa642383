package client

import (
	"context"
	"io"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// FS returns the sandbox's files. The agent performs every operation.
func (s *Sandbox) FS() sandbar.FS {
	if s.opt.NoWatch {
		return files{s}
	}
	return watchedFiles{files{s}}
}

type files struct{ sandbox *Sandbox }

// Permission bits of files and directories that are created without a mode.
const (
	defaultFileMode = 0o644
	defaultDirMode  = 0o755
)

// do performs one operation.
func (f files) do(ctx context.Context, verb string, r *wire.FSRequest, undo func(response)) (response, error) {
	for _, p := range []string{r.Path, r.To} {
		if p != "" && !validPath(p) {
			return response{}, badPath(verb, p)
		}
	}
	if r.Path == "" && r.Handle == 0 && r.Op != wire.FSReadFiles {
		return response{}, badPath(verb, "")
	}
	if r.Mode&^allowedMode != 0 {
		return response{}, badMode(verb, r.Path, r.Mode)
	}
	c := &call{undo: undo}
	if r.Op == wire.FSOpen || r.Op == wire.FSCreate {
		c.maxFDs = 1
	}
	resp, err := f.sandbox.request(ctx, wire.TypeFS, r.Append(nil), nil, c)
	if err != nil {
		return response{}, err
	}
	if resp.Failure != wire.OK {
		return response{}, fileError(verb, r.Path, resp.Errno)
	}
	return resp, nil
}

// doWithTimeout is do with answerTimeout, see Sandbox.requestWithTimeout.
func (f files) doWithTimeout(verb string, r *wire.FSRequest) (response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	resp, err := f.do(ctx, verb, r, nil)
	if err != nil && ctx.Err() != nil {
		f.sandbox.conn.Close()
	}
	return resp, err
}

// allowedMode has the mode bits that a file may get: permissions, and the sticky bit, which shared
// directories have.
const allowedMode = 0o1777

// badMode is the error for set-user-ID and set-group-ID bits.
func badMode(verb, path string, mode uint32) error {
	octal := func(m uint32) string { return "0" + strconv.FormatUint(uint64(m), 8) }
	return &sandbar.Error{Code: sandbar.Invalid, Field: "mode",
		Message: verb + " " + sandbar.Quote(path, 200) + ": the mode " + octal(mode) + " has the set-user-ID or the set-group-ID bit, which a sandbox does not support",
		Fix:     "ask for " + octal(mode&allowedMode) + ": permission bits and the sticky bit are allowed"}
}

// validPath reports whether a path is valid on Linux.
func validPath(path string) bool {
	return path != "" && len(path) < 4096 && strings.IndexByte(path, 0) < 0
}

func badPath(verb, path string) error {
	e := &sandbar.Error{Code: sandbar.Invalid, Field: "path", Message: verb + ": the path is empty"}
	if path != "" {
		e.Message = verb + " " + sandbar.Quote(path, 60) + ": a path has at most 4095 bytes, none of them 0"
	}
	return e
}

// forget closes a handle without an owner.
func (f files) forget(resp response) {
	if h, _, err := wire.DecodeHandle(resp.Data); err == nil && h != 0 {
		r := wire.FSRequest{Op: wire.FSClose, Handle: h}
		// fails only if the sandbox ends
		f.sandbox.background(func() { _, _ = f.sandbox.requestWithTimeout(wire.TypeFS, r.Append(nil), &call{}) })
	}
}

func (f files) Open(ctx context.Context, path string) (sandbar.File, error) {
	resp, err := f.do(ctx, "open", &wire.FSRequest{Op: wire.FSOpen, Path: path}, f.forget)
	if err != nil {
		return nil, err
	}
	handle, rest, err := wire.DecodeHandle(resp.Data)
	infos, err2 := wire.DecodeFileInfos(rest)
	if err != nil || err2 != nil || len(infos) != 1 || !plausible(&infos[0]) {
		closeFDs(resp.fds)
		return nil, f.sandbox.violated("open " + sandbar.Quote(path, 200))
	}
	info := fileInfo(&infos[0])
	if len(resp.fds) == 1 {
		file, err := asFile(resp.fds[0], info.Name, false)
		if err != nil {
			return nil, f.sandbox.violated("open " + sandbar.Quote(path, 200))
		}
		return &passedFile{file, info}, nil
	}
	return &remoteFile{f: f, handle: handle, info: info}, nil
}

// passedFile is a file whose descriptor the agent has passed.
type passedFile struct {
	*os.File
	info sandbar.FileInfo
}

func (p *passedFile) Info() sandbar.FileInfo { return p.info }

func (f files) Create(ctx context.Context, path string, opt sandbar.CreateOptions) (sandbar.FileWriter, error) {
	r := &wire.FSRequest{Op: wire.FSCreate, Path: path, Mode: modeBits(opt.Mode, defaultFileMode)}
	if opt.Parents {
		r.Flags |= wire.FSParents
	}
	if opt.Append {
		r.Flags |= wire.FSAppend
	}
	resp, err := f.do(ctx, "create", r, f.forget)
	if err != nil {
		return nil, err
	}
	handle, _, err := wire.DecodeHandle(resp.Data)
	if err != nil {
		closeFDs(resp.fds)
		return nil, f.sandbox.violated("create " + sandbar.Quote(path, 200))
	}
	w := &writer{f: f, path: path, handle: handle}
	if len(resp.fds) == 1 {
		if w.file, err = asFile(resp.fds[0], path, true); err != nil {
			return nil, f.sandbox.violated("create " + sandbar.Quote(path, 200))
		}
	}
	return w, nil
}

// Put writes a complete file. See sandbar.Putter.
func (f files) Put(ctx context.Context, path string, content []byte, opt sandbar.CreateOptions) error {
	switch {
	case len(content) > sandbar.MaxPut:
		return &sandbar.Error{Code: sandbar.Invalid, Field: "content", Message: "write " + sandbar.Quote(path, 200) + ": " +
			strconv.Itoa(len(content)) + " bytes at once; at most " + strconv.Itoa(sandbar.MaxPut) + " are possible", Fix: "use Create"}
	case opt.Append:
		return &sandbar.Error{Code: sandbar.Invalid, Field: "append", Message: "write " + sandbar.Quote(path, 200) + ": a file that is put is a new one", Fix: "use Create"}
	}
	r := &wire.FSRequest{Op: wire.FSPut, Path: path, Mode: modeBits(opt.Mode, defaultFileMode), Bytes: content}
	if opt.Parents {
		r.Flags |= wire.FSParents
	}
	_, err := f.do(ctx, "write", r, nil)
	return err
}

// writer is a file being written, through its descriptor or through the agent.
type writer struct {
	f      files
	path   string
	handle uint32
	file   *os.File // nil if the agent writes
	ended  bool
}

func (w *writer) Write(b []byte) (n int, err error) {
	if w.ended {
		return 0, os.ErrClosed
	}
	if w.file != nil {
		n, err := w.file.Write(b)
		if err != nil {
			err = writeError(w.path, err)
		}
		return n, err
	}
	for len(b) > 0 {
		piece := b[:min(len(b), 256<<10)]
		if _, err := w.f.doWithTimeout("write", &wire.FSRequest{Op: wire.FSWrite, Path: w.path, Handle: w.handle, Bytes: piece}); err != nil {
			return n, err
		}
		n += len(piece)
		b = b[len(piece):]
	}
	return n, nil
}

// copySize is the buffer size of copies into a file, in bytes. With the 32 KiB of io.Copy the
// system calls cost more than the copying.
const copySize = 256 << 10

var copies = sync.Pool{New: func() any { return new([copySize]byte) }}

// ReadFrom copies r into the file.
func (w *writer) ReadFrom(r io.Reader) (int64, error) {
	buf := copies.Get().(*[copySize]byte)
	defer copies.Put(buf)
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, buf[:])
}

func (w *writer) Commit() error {
	if w.ended {
		return os.ErrClosed
	}
	return w.end(wire.FSCommit, "write")
}

func (w *writer) Abort() {
	if !w.ended {
		w.end(wire.FSAbort, "abort")
	}
}

func (w *writer) end(op wire.FSOp, verb string) error {
	w.ended = true
	if w.file != nil {
		w.file.Close()
	}
	_, err := w.f.doWithTimeout(verb, &wire.FSRequest{Op: op, Path: w.path, Handle: w.handle})
	return err
}

func (f files) Stat(ctx context.Context, path string) (sandbar.FileInfo, error) {
	resp, err := f.do(ctx, "stat", &wire.FSRequest{Op: wire.FSStat, Path: path}, nil)
	if err != nil {
		return sandbar.FileInfo{}, err
	}
	infos, err := wire.DecodeFileInfos(resp.Data)
	if err != nil || len(infos) != 1 || !plausible(&infos[0]) {
		return sandbar.FileInfo{}, f.sandbox.violated("stat " + sandbar.Quote(path, 200))
	}
	return fileInfo(&infos[0]), nil
}

// Usage returns the sandbox's memory in use, in bytes. An agent that cannot measure it returns
// Internal with the cause ENOTSUP.
func (s *Sandbox) Usage(ctx context.Context) (int64, error) {
	resp, err := files{s}.do(ctx, "measure", &wire.FSRequest{Op: wire.FSUsage, Path: "/"}, nil)
	if err != nil {
		return 0, err
	}
	infos, err := wire.DecodeFileInfos(resp.Data)
	if err != nil || len(infos) != 1 || !plausible(&infos[0]) {
		return 0, s.violated("measuring")
	}
	return int64(infos[0].Size), nil
}

func (f files) ReadDir(ctx context.Context, path, after string, limit int) ([]sandbar.FileInfo, error) {
	if limit <= 0 {
		return nil, &sandbar.Error{Code: sandbar.Invalid, Field: "limit", Message: "list " + sandbar.Quote(path, 200) + ": the limit must be at least 1"}
	}
	var all []sandbar.FileInfo
	for len(all) < limit {
		whole, page, err := f.list(ctx, path, after, min(limit-len(all), 1000))
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if whole || len(page) == 0 {
			break
		}
		after = page[len(page)-1].Name
	}
	return all, nil
}

// list reads one page of a directory.
func (f files) list(ctx context.Context, path, after string, limit int) (whole bool, page []sandbar.FileInfo, err error) {
	resp, err := f.do(ctx, "list", &wire.FSRequest{Op: wire.FSReadDir, Path: path, To: after, Size: uint32(limit)}, nil)
	if err != nil {
		return false, nil, err
	}
	whole, infos, err := wire.DecodeListing(resp.Data)
	if err != nil || len(infos) > limit {
		return false, nil, f.sandbox.violated("list " + sandbar.Quote(path, 200))
	}
	out := make([]sandbar.FileInfo, len(infos))
	for i := range infos {
		if !plausible(&infos[i]) || !isEntry(infos[i].Name) || infos[i].Name <= after {
			return false, nil, f.sandbox.violated("list " + sandbar.Quote(path, 200))
		}
		out[i], after = fileInfo(&infos[i]), infos[i].Name
	}
	return whole, out, nil
}

func (f files) Mkdir(ctx context.Context, path string, mode fs.FileMode, parents bool) error {
	r := &wire.FSRequest{Op: wire.FSMkdir, Path: path, Mode: modeBits(mode, defaultDirMode)}
	if parents {
		r.Flags = wire.FSParents
	}
	_, err := f.do(ctx, "make directory", r, nil)
	return err
}

func (f files) Remove(ctx context.Context, path string, recursive bool) error {
	r := &wire.FSRequest{Op: wire.FSRemove, Path: path}
	if recursive {
		r.Flags = wire.FSRecursive
	}
	_, err := f.do(ctx, "remove", r, nil)
	return err
}

func (f files) Rename(ctx context.Context, from, to string) error { return f.rename(ctx, from, to, 0) }

// RenameNew implements sandbar.Mover.
func (f files) RenameNew(ctx context.Context, from, to string) error {
	return f.rename(ctx, from, to, wire.FSNoReplace)
}

func (f files) rename(ctx context.Context, from, to string, flags uint32) error {
	if to == "" {
		return &sandbar.Error{Code: sandbar.Invalid, Field: "to", Message: "rename: the new path is empty"}
	}
	_, err := f.do(ctx, "rename", &wire.FSRequest{Op: wire.FSRename, Path: from, To: to, Flags: flags}, nil)
	return err
}

func (f files) Chmod(ctx context.Context, path string, mode fs.FileMode, recursive bool) error {
	r := &wire.FSRequest{Op: wire.FSChmod, Path: path, Mode: modeBits(mode, 0)}
	if recursive {
		r.Flags = wire.FSRecursive
	}
	_, err := f.do(ctx, "change mode of", r, nil)
	return err
}

// Chown implements sandbar.Owner.
func (f files) Chown(ctx context.Context, path string, uid, gid uint32, recursive bool) error {
	r := &wire.FSRequest{Op: wire.FSChown, Path: path, UID: uid, GID: gid}
	if recursive {
		r.Flags = wire.FSRecursive
	}
	_, err := f.do(ctx, "change owner of", r, nil)
	return err
}

// ReadFiles implements sandbar.BatchReader.
func (f files) ReadFiles(ctx context.Context, paths []string, max int) ([]sandbar.FileContent, error) {
	const verb = "read"
	if len(paths) == 0 {
		return nil, nil
	}
	if max < 0 {
		return nil, &sandbar.Error{Code: sandbar.Invalid, Field: "max", Message: "read files: the limit must be at least 0"}
	}
	n := batchLength(paths)
	if n == 0 {
		return []sandbar.FileContent{{Err: badPath(verb, paths[0])}}, nil
	}
	resp, err := f.do(ctx, verb, &wire.FSRequest{Op: wire.FSReadFiles, Size: uint32(min(max, sandbar.MaxFileContent)),
		Bytes: wire.AppendPaths(nil, paths[:n])}, nil)
	if err != nil {
		return nil, err
	}
	got, err := wire.DecodeFileContents(resp.Data)
	if err != nil || len(got) == 0 || len(got) > n {
		return nil, f.sandbox.violated("read files")
	}
	all := make([]sandbar.FileContent, len(got))
	for i, c := range got {
		switch {
		case len(c.Bytes) > max:
			return nil, f.sandbox.violated("read files")
		case c.Errno != 0:
			all[i].Err = fileError(verb, paths[i], c.Errno)
		default:
			all[i] = sandbar.FileContent{Data: c.Bytes[:len(c.Bytes):len(c.Bytes)], Complete: c.Complete}
		}
	}
	return all, nil
}

// batchLength returns how many of the first paths fit into one request, 0 if the first is invalid.
func batchLength(paths []string) int {
	size := 0
	for i, p := range paths {
		if size += len(p); i == wire.MaxReadPaths || size > wire.MaxPathBytes || !validPath(p) {
			return i
		}
	}
	return len(paths)
}

// modeBits converts a mode to the kernel's bits; missing is the default for 0.
func modeBits(m fs.FileMode, missing uint32) uint32 {
	if m == 0 {
		return missing
	}
	bits := uint32(m.Perm())
	for _, p := range specialBits {
		if m&p.flag != 0 {
			bits |= p.bit
		}
	}
	return bits
}

// File types in st_mode (inode(7)).
var fileTypes = map[uint32]fs.FileMode{
	0o040000: fs.ModeDir, 0o120000: fs.ModeSymlink, 0o010000: fs.ModeNamedPipe, 0o140000: fs.ModeSocket,
	0o060000: fs.ModeDevice, 0o020000: fs.ModeDevice | fs.ModeCharDevice,
}

// The special mode bits in st_mode (inode(7)).
var specialBits = [...]struct {
	flag fs.FileMode
	bit  uint32
}{{fs.ModeSetuid, 0o4000}, {fs.ModeSetgid, 0o2000}, {fs.ModeSticky, 0o1000}}

// Bounds of names and link targets from the agent: those of Linux, in bytes.
const (
	maxName   = 255
	maxTarget = 4096
)

// plausible reports whether the agent's description of a file is possible.
func plausible(w *wire.FileInfo) bool {
	return w.Size <= math.MaxInt64 && len(w.Name) <= maxName && len(w.Target) <= maxTarget &&
		strings.IndexByte(w.Name, 0) < 0 && strings.IndexByte(w.Target, 0) < 0
}

// isEntry reports whether name can be a directory entry. Callers join it to their own paths.
func isEntry(name string) bool {
	return name != "" && name != "." && name != ".." && strings.IndexByte(name, '/') < 0
}

func fileInfo(w *wire.FileInfo) sandbar.FileInfo {
	mode := fs.FileMode(w.Mode&0o777) | fileTypes[w.Mode&0o170000]
	for _, p := range specialBits {
		if w.Mode&p.bit != 0 {
			mode |= p.flag
		}
	}
	return sandbar.FileInfo{Name: w.Name, Target: w.Target, Size: int64(w.Size), Mode: mode,
		UID: w.UID, GID: w.GID, ModTime: time.Unix(0, w.MTime)}
}
