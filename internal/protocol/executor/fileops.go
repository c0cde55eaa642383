package executor

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"syscall"

	"github.com/sandbar-dev/sandbar"
)

// maxEntries is the most entries that /list_dir lists. If there are more, an error follows them.
const maxEntries = 1 << 20

var errEntries = &sandbar.Error{Code: sandbar.TooLarge, Message: "the directory has more than 1048576 entries; the first are listed"}

// pageSize is the number of entries per ReadDir call.
const pageSize = 1000

// maxLinks is the most symbolic links that are followed, as in the kernel (path_resolution(7)).
const maxLinks = 40

// pathText returns the text of an error of a file operation: the verb, the path and the cause, as
// package os formats them. Known clients search it for "no such file", "exists" and "not empty".
func pathText(verb, path string, err error) string {
	return verb + " " + clip(path, 4096) + ": " + causeOf(err)
}

// causeOf returns the kernel's text for an error's cause, otherwise Sandbar's own.
func causeOf(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	e := sandbar.AsError(err)
	if errno, ok := plainCause[e.Code]; ok {
		return errno.Error()
	}
	return e.Error()
}

// plainCause has the kernel's error for each code.
var plainCause = map[sandbar.Code]syscall.Errno{
	sandbar.NotFound: syscall.ENOENT,
	sandbar.Exists:   syscall.EEXIST,
	sandbar.Denied:   syscall.EACCES,
	sandbar.NoSpace:  syscall.ENOSPC,
}

// kernel returns an error as the kernel would return it.
func kernel(c sandbar.Code, errno syscall.Errno) error { return &sandbar.Error{Code: c, Err: errno} }

// ofFile reports whether an error is about the file instead of the platform.
func ofFile(err error) bool {
	switch sandbar.CodeOf(err) {
	case sandbar.Invalid, sandbar.NotFound, sandbar.Exists, sandbar.Denied, sandbar.Conflict, sandbar.TooLarge, sandbar.NoSpace:
		return true
	}
	return false
}

// readPath reads a request that names a path.
func (s *Server) readPath(w http.ResponseWriter, r *http.Request) (files sandbar.FS, path string, ok bool) {
	ok = s.read(w, r, func(j *jsonReader) (err error) {
		path, err = readOne(j, "path")
		return err
	})
	return s.sandbox.FS(), path, ok
}

// answerDone responds to a file operation.
func (s *Server) answerDone(w http.ResponseWriter, r *http.Request, verb, path string, err error) {
	switch {
	case err == nil:
		answerJSON(w, http.StatusOK, object(member{"success", true}))
	case ofFile(err):
		answerJSON(w, http.StatusOK, object(member{"success", false}, member{"error", pathText(verb, path, err)}))
	default:
		s.failure(w, r, statusOf(sandbar.CodeOf(err)), err)
	}
}

// maxPath is the longest path in bytes, as in the kernel.
const maxPath = 4095

// checkPath refuses a path that no kernel accepts, with the kernel's error.
func checkPath(path string) error {
	switch {
	case path == "":
		return kernel(sandbar.NotFound, syscall.ENOENT)
	case strings.IndexByte(path, 0) >= 0:
		return kernel(sandbar.Invalid, syscall.EINVAL)
	case len(path) > maxPath:
		return kernel(sandbar.Invalid, syscall.ENAMETOOLONG)
	}
	return nil
}

// deleteFile serves POST /delete_file: it removes a file, a link or an empty directory.
func (s *Server) deleteFile(w http.ResponseWriter, r *http.Request) {
	files, path, ok := s.readPath(w, r)
	if !ok {
		return
	}
	err := checkPath(path)
	if err == nil {
		err = files.Remove(r.Context(), path, false)
	}
	s.answerDone(w, r, "remove", path, err)
}

// makeDir serves POST /make_dir: it creates a directory and its missing parents.
func (s *Server) makeDir(w http.ResponseWriter, r *http.Request) {
	files, path, ok := s.readPath(w, r)
	if !ok {
		return
	}
	err := checkPath(path)
	if err == nil {
		err = s.mkdir(r.Context(), files, path)
	}
	s.answerDone(w, r, "mkdir", path, err)
}

// mkdir creates a directory unless it exists. If a file exists, the error is that of os.MkdirAll.
func (s *Server) mkdir(ctx context.Context, files sandbar.FS, path string) error {
	err := files.Mkdir(ctx, path, 0o755, true)
	switch sandbar.CodeOf(err) {
	case sandbar.Exists, sandbar.Invalid:
		// The root, ".", and a link to a directory are directories too.
		if info, serr := files.Stat(ctx, path+"/."); serr == nil && info.Mode.IsDir() {
			return nil
		}
	}
	if sandbar.CodeOf(err) == sandbar.Exists {
		return kernel(sandbar.Conflict, syscall.ENOTDIR)
	}
	return err
}

// deleteDir serves POST /delete_dir: it removes a path recursively.
func (s *Server) deleteDir(w http.ResponseWriter, r *http.Request) {
	files, path, ok := s.readPath(w, r)
	if !ok {
		return
	}
	err := checkPath(path)
	if err == nil {
		err = files.Remove(r.Context(), path, true)
		if sandbar.CodeOf(err) == sandbar.NotFound {
			err = nil
		}
	}
	s.answerDone(w, r, "unlinkat", path, err)
}

// listDir serves POST /list_dir. It sends entries page by page; a later error is at the end of the
// response.
func (s *Server) listDir(w http.ResponseWriter, r *http.Request) {
	files, path, ok := s.readPath(w, r)
	if !ok {
		return
	}
	b := newBatch(s.out(w))
	b.raw(`{"entries":[`)
	n, err := 0, checkPath(path)
	for after := ""; err == nil; {
		var page []sandbar.FileInfo
		page, err = files.ReadDir(r.Context(), path, after, pageSize)
		if err == nil && n+len(page) > maxEntries {
			err = errEntries
		}
		if err != nil || len(page) == 0 {
			break
		}
		for _, info := range page {
			if n > 0 {
				b.raw(",")
			}
			b.raw(`"`)
			b.text([]byte(info.Name))
			b.raw(`"`)
			n++
		}
		after = page[len(page)-1].Name
		if err = r.Context().Err(); err != nil || b.err != nil {
			return
		}
	}
	if err != nil && n == 0 && !ofFile(err) {
		s.failure(w, r, statusOf(sandbar.CodeOf(err)), err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	b.raw(`]`)
	if err != nil {
		b.raw(`,"error":"`)
		b.text([]byte(pathText(listVerb(err), path, err)))
		b.raw(`"`)
	}
	b.raw("}\n")
	b.flush()
}

// listVerb is package os's verb for a directory that cannot be listed.
func listVerb(err error) string {
	if errors.Is(err, syscall.ENOTDIR) {
		return "readdirent"
	}
	return "open"
}

// openVerb is package os's verb for a file that cannot be read.
func openVerb(err error) string {
	if errors.Is(err, syscall.EISDIR) {
		return "read"
	}
	return "open"
}

// readFile serves POST /read_file. It sends the content as it is read; a later error is at the end
// of the response.
func (s *Server) readFile(w http.ResponseWriter, r *http.Request) {
	files, path, ok := s.readPath(w, r)
	if !ok {
		return
	}
	var f sandbar.File
	err := checkPath(path)
	if err == nil {
		f, err = files.Open(r.Context(), path)
	}
	if err != nil && !ofFile(err) {
		s.failure(w, r, statusOf(sandbar.CodeOf(err)), err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	b := newBatch(s.out(w))
	b.raw(`{"content":"`)
	verb := openVerb(err)
	if err == nil {
		verb, err = "read", s.copyText(b, f)
		f.Close()
	}
	b.raw(`"`)
	if err != nil {
		b.raw(`,"error":"`)
		b.text([]byte(pathText(verb, path, err)))
		b.raw(`"`)
	}
	b.raw("}\n")
	b.flush()
}

// copyText appends all of r as the content of a JSON string.
func (s *Server) copyText(b *batch, r io.Reader) error {
	buf := s.buffers.Get().(*[bufferSize]byte)
	defer s.buffers.Put(buf)
	held := 0 // length of an incomplete character
	for b.err == nil {
		n, err := r.Read(buf[held:])
		p := buf[:held+n]
		if err != nil {
			b.text(p)
			if err == io.EOF {
				err = nil
			}
			return err
		}
		use := whole(p)
		b.text(p[:use])
		held = copy(buf[:], p[use:])
	}
	return nil
}

// target is the destination of a write.
type target struct {
	path string      // after following all links
	mode fs.FileMode // of the existing file
	is   bool        // the file exists
}

// errNotRegular: the path is not a regular file.
var errNotRegular = &sandbar.Error{Code: sandbar.Conflict, Message: "not a regular file"}

// resolve finds the destination of a write. It follows links first, because a write replaces the
// file. It refuses directories, devices, FIFOs, sockets, and files without any write permission.
func resolve(ctx context.Context, files sandbar.FS, name string) (target, error) {
	for range maxLinks {
		if err := checkPath(name); err != nil {
			return target{}, err
		}
		switch name[strings.LastIndexByte(name, '/')+1:] {
		case "", ".", "..":
			return target{}, kernel(sandbar.Conflict, syscall.EISDIR)
		}
		info, err := files.Stat(ctx, name)
		if sandbar.CodeOf(err) == sandbar.NotFound {
			return target{path: name}, nil
		}
		if err != nil {
			return target{}, err
		}
		switch {
		case info.Mode.IsDir():
			return target{}, kernel(sandbar.Conflict, syscall.EISDIR)
		case info.Mode&fs.ModeSymlink != 0:
			name = linkTarget(name, info.Target)
		case !info.Mode.IsRegular():
			return target{}, errNotRegular
		case info.Mode.Perm()&0o222 == 0:
			return target{}, kernel(sandbar.Denied, syscall.EACCES)
		default:
			return target{path: name, mode: info.Mode.Perm(), is: true}, nil
		}
	}
	return target{}, kernel(sandbar.Conflict, syscall.ELOOP)
}

// linkTarget returns the path to which a link leads. It does not clean the path: only the kernel
// can resolve ".." after a link.
func linkTarget(name, to string) string {
	if path.IsAbs(to) {
		return to
	}
	return name[:strings.LastIndexByte(name, '/')+1] + to
}

// create starts the write of a file. mode 0 keeps the mode of an existing file, and is 0644 for a
// new one.
func create(ctx context.Context, files sandbar.FS, name string, mode fs.FileMode, parents bool) (sandbar.FileWriter, target, error) {
	t, err := resolve(ctx, files, name)
	if err != nil {
		return nil, t, err
	}
	if mode == 0 {
		mode = t.mode
	}
	w, err := files.Create(ctx, t.path, sandbar.CreateOptions{Mode: mode, Parents: parents})
	return w, t, err
}
