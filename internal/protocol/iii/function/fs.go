package function

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"strings"
	"syscall"

	"github.com/sandbar-dev/sandbar"
)

// entry is a file in the results of sandbox::fs::ls and stat.
type entry struct {
	IsDir     bool   `json:"is_dir"`
	IsSymlink bool   `json:"is_symlink"`
	Mode      string `json:"mode"`
	MTime     int64  `json:"mtime"`
	Name      string `json:"name"`
	Size      int64  `json:"size"`
}

func entryOf(name string, i sandbar.FileInfo) entry {
	return entry{Name: lossy([]byte(name)), IsDir: i.Mode.IsDir(), IsSymlink: i.Mode&fs.ModeSymlink != 0,
		Size: i.Size, Mode: showMode(i.Mode), MTime: i.ModTime.Unix()}
}

// filesOf returns the files of a sandbox.
func (f *Functions) filesOf(uuid string) (sandbar.FS, error) {
	b, err := f.find(uuid)
	if err != nil {
		return nil, err
	}
	return b.sandbox.FS(), nil
}

// absolute makes a path absolute; a relative one starts at the root.
func absolute(path string) string {
	if path == "" || path[0] == '/' {
		return path
	}
	return "/" + path
}

// stat describes path, without following a link.
func stat(ctx context.Context, files sandbar.FS, path string) (sandbar.FileInfo, error) {
	if path == "" {
		return sandbar.FileInfo{}, fail(S211, "path not found: ")
	}
	i, err := files.Stat(ctx, absolute(path))
	if err != nil {
		return i, fileFailure(err, path, "path")
	}
	return i, nil
}

// isFailure reports whether err is a failure with code c.
func isFailure(err error, c Code) bool {
	var e *failure
	return errors.As(err, &e) && e.code == c
}

// fsStat implements sandbox::fs::stat.
func (f *Functions) fsStat(ctx context.Context, data json.RawMessage) (any, error) {
	var id, path string
	if _, err := decode(data, "StatRequest", must(text("sandbox_id", &id)), must(text("path", &path))); err != nil {
		return nil, err
	}
	files, err := f.filesOf(id)
	if err != nil {
		return nil, err
	}
	i, err := stat(ctx, files, path)
	if err != nil {
		return nil, err
	}
	return entryOf(baseName(path), i), nil
}

// maxListed is the most entries in a listing.
const maxListed = 100_000

// fsLs implements sandbox::fs::ls.
func (f *Functions) fsLs(ctx context.Context, data json.RawMessage) (any, error) {
	var id, path string
	if _, err := decode(data, "LsRequest", must(text("sandbox_id", &id)), must(text("path", &path))); err != nil {
		return nil, err
	}
	files, err := f.filesOf(id)
	if err != nil {
		return nil, err
	}
	i, err := stat(ctx, files, path)
	if err != nil {
		return nil, err
	}
	if !i.Mode.IsDir() {
		return nil, fail(S212, "not a directory: %s", clip(path))
	}
	infos, err := files.ReadDir(ctx, absolute(path), "", maxListed+1)
	if err != nil {
		return nil, fileFailure(err, path, "path")
	}
	if len(infos) > maxListed {
		return nil, fail(S216, "%s: there are more than %d entries; list them with sandbox::exec and find", clip(path), maxListed)
	}
	entries := make([]entry, len(infos))
	for n, i := range infos {
		entries[n] = entryOf(i.Name, i)
	}
	return map[string]any{"entries": entries}, nil
}

// modeFailure returns S210 for a mode, with a suggested mode.
func modeFailure(err error, raw request, mode string) error {
	var e *failure
	if meant, ok := repairMode(mode); ok && errors.As(err, &e) && raw != nil {
		return e.with(raw.fixed(map[string]any{"mode": meant}), "the same call with the mode as octal digits alone")
	}
	return err
}

// fsMkdir implements sandbox::fs::mkdir.
func (f *Functions) fsMkdir(ctx context.Context, data json.RawMessage) (any, error) {
	var id, path string
	mode, parents := "0755", false
	raw, err := decode(data, "MkdirRequest", must(text("sandbox_id", &id)), must(text("path", &path)),
		text("mode", &mode), boolean("parents", &parents))
	if err != nil {
		return nil, err
	}
	files, err := f.filesOf(id)
	if err != nil {
		return nil, err
	}
	bits, err := parseMode(mode)
	if err != nil {
		return nil, modeFailure(err, raw, mode)
	}
	if path == "" {
		return nil, fail(S211, "path not found: ")
	}
	if _, err := files.Stat(ctx, absolute(path)); err == nil {
		if parents {
			return map[string]bool{"created": false}, nil
		}
		return nil, fail(S213, "path already exists: %s", clip(path))
	}
	if err := files.Mkdir(ctx, absolute(path), fileMode(bits), parents); err != nil {
		err := fileFailure(err, path, "path")
		if isFailure(err, S211) && !parents {
			return nil, fail(S211, "parent not found: %s", clip(path)).
				with(raw.fixed(map[string]any{"parents": true}), "the same call, making the directories above it too")
		}
		return nil, err
	}
	return map[string]bool{"created": true}, nil
}

// fsRm implements sandbox::fs::rm.
func (f *Functions) fsRm(ctx context.Context, data json.RawMessage) (any, error) {
	var id, path string
	var recursive bool
	if _, err := decode(data, "RmRequest", must(text("sandbox_id", &id)), must(text("path", &path)), boolean("recursive", &recursive)); err != nil {
		return nil, err
	}
	files, err := f.filesOf(id)
	if err != nil {
		return nil, err
	}
	if _, err := stat(ctx, files, path); err != nil {
		return nil, err
	}
	if err := files.Remove(ctx, absolute(path), recursive); err != nil {
		return nil, fileFailure(err, path, "path")
	}
	return map[string]bool{"removed": true}, nil
}

// fsChmod implements sandbox::fs::chmod.
func (f *Functions) fsChmod(ctx context.Context, data json.RawMessage) (any, error) {
	var id, path, mode string
	var uid, gid *uint32
	var recursive bool
	raw, err := decode(data, "ChmodRequest", must(text("sandbox_id", &id)), must(text("path", &path)), must(text("mode", &mode)),
		optional(number[uint32], "uid", &uid), optional(number[uint32], "gid", &gid), boolean("recursive", &recursive))
	if err != nil {
		return nil, err
	}
	files, err := f.filesOf(id)
	if err != nil {
		return nil, err
	}
	bits, err := parseMode(mode)
	if err != nil {
		return nil, modeFailure(err, raw, mode)
	}
	target, i, err := follow(ctx, files, path)
	if err != nil {
		return nil, err
	}
	updated := uint64(1)
	if recursive && i.Mode.IsDir() {
		w := walker{files: files, root: target}
		err := w.walk(ctx, func(file found) error {
			if file.info.Mode&fs.ModeSymlink == 0 {
				updated++
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	// the owner first, because changing it clears bits of the mode
	if err := chown(ctx, files, target, path, uid, gid, recursive); err != nil {
		return nil, err
	}
	if err := files.Chmod(ctx, target, fileMode(bits), recursive); err != nil {
		return nil, fileFailure(err, path, "path")
	}
	return map[string]uint64{"updated": updated}, nil
}

// chown changes the user and group of the file at target, which the caller knows as path; nil keeps
// the current one.
func chown(ctx context.Context, files sandbar.FS, target, path string, uid, gid *uint32, recursive bool) error {
	if uid == nil && gid == nil {
		return nil
	}
	o, ok := files.(sandbar.Owner)
	if !ok {
		return fail(S219, "%s: the owner of files cannot be changed in this sandbox", clip(path))
	}
	if err := o.Chown(ctx, target, value(uid, sandbar.SameID), value(gid, sandbar.SameID), recursive); err != nil {
		return fileFailure(err, path, "path")
	}
	return nil
}

// maxLinks is the most links that are followed.
const maxLinks = 40

// follow resolves links, and returns an absolute path that is not a link, with its description. It
// runs with the sandbox's rights, so it needs no checks of its own.
func follow(ctx context.Context, files sandbar.FS, path string) (string, sandbar.FileInfo, error) {
	at := absolute(path)
	for range maxLinks {
		if at == "" {
			break
		}
		i, err := files.Stat(ctx, at)
		if err != nil {
			return "", i, fileFailure(err, path, "path")
		}
		if i.Mode&fs.ModeSymlink == 0 {
			return at, i, nil
		}
		if i.Target != "" && i.Target[0] == '/' {
			at = i.Target
		} else {
			at = at[:strings.LastIndexByte(strings.TrimRight(at, "/"), '/')+1] + i.Target
		}
	}
	if path == "" {
		return "", sandbar.FileInfo{}, fail(S211, "path not found: ")
	}
	return "", sandbar.FileInfo{}, fail(S216, "%s: %s", clip(path), osError(syscall.ELOOP))
}

// fsMv implements sandbox::fs::mv.
func (f *Functions) fsMv(ctx context.Context, data json.RawMessage) (any, error) {
	var id, src, dst string
	var overwrite bool
	if _, err := decode(data, "MvRequest", must(text("sandbox_id", &id)), must(text("src", &src)), must(text("dst", &dst)),
		boolean("overwrite", &overwrite)); err != nil {
		return nil, err
	}
	files, err := f.filesOf(id)
	if err != nil {
		return nil, err
	}
	i, err := stat(ctx, files, src)
	if err != nil {
		if isFailure(err, S211) {
			return nil, fail(S211, "src not found: %s", clip(src))
		}
		return nil, err
	}
	if dst == "" {
		return nil, fail(S211, "dst not found: ")
	}
	if _, err := files.Stat(ctx, absolute(dst)); err == nil && !overwrite {
		return nil, fail(S213, "dst already exists: %s", clip(dst))
	}
	err = rename(ctx, files, absolute(src), absolute(dst), overwrite)
	if errors.Is(err, syscall.EXDEV) && i.Mode.IsRegular() {
		err = move(ctx, files, absolute(src), absolute(dst), unset(i.Mode))
	}
	switch {
	case errors.Is(err, syscall.EEXIST) && !overwrite:
		return nil, fail(S213, "dst already exists: %s", clip(dst))
	case err != nil:
		return nil, fileFailure(err, dst, "dst")
	}
	return map[string]bool{"moved": true}, nil
}

// rename renames a file. Without overwrite it keeps a file that appears at dst meanwhile, if the
// sandbox's files can do that atomically.
func rename(ctx context.Context, files sandbar.FS, src, dst string, overwrite bool) error {
	if m, ok := files.(sandbar.Mover); ok && !overwrite {
		if err := m.RenameNew(ctx, src, dst); sandbar.CodeOf(err) != sandbar.Unsupported {
			return err
		}
	}
	return files.Rename(ctx, src, dst)
}

// move moves a file to another file system: it appears there atomically and is then removed here.
func move(ctx context.Context, files sandbar.FS, src, dst string, mode fs.FileMode) error {
	from, err := files.Open(ctx, src)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := files.Create(ctx, dst, sandbar.CreateOptions{Mode: mode | fs.ModeIrregular})
	if err != nil {
		return err
	}
	defer to.Abort()
	if _, err := io.Copy(to, contextReader{ctx, from}); err != nil {
		return err
	}
	if err := to.Commit(); err != nil {
		return err
	}
	return files.Remove(ctx, src, false)
}

// contextReader fails when its context ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
