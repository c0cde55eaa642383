package local

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/sandbar-dev/sandbar"
)

// files is the FS of a sandbox. There is no boundary: links lead wherever the daemon can go, and
// absolute paths are the host's (but see the package comment for sandbar.DefaultDir).
type files struct{ sandbox *sandbox }

// maxPath is the longest path in bytes, as in the kernel.
const maxPath = 4096

// path checks and resolves a path.
func (f *files) path(ctx context.Context, path string) (string, error) {
	if err := contextError(ctx); err != nil {
		return "", err
	}
	if f.sandbox.ended() {
		return "", f.sandbox.gone()
	}
	switch {
	case path == "":
		return "", &sandbar.Error{Code: sandbar.Invalid, Field: "path", Message: "the path is empty"}
	case strings.ContainsRune(path, 0):
		return "", &sandbar.Error{Code: sandbar.Invalid, Field: "path", Message: "the path contains a NUL byte"}
	case len(path) >= maxPath:
		return "", &sandbar.Error{Code: sandbar.Invalid, Field: "path", Message: "the path " + sandbar.Quote(path, 80) + " is too long: at most 4095 bytes"}
	}
	return f.sandbox.resolve(path), nil
}

// Open opens a regular file for reading.
func (f *files) Open(ctx context.Context, path string) (sandbar.File, error) {
	host, err := f.path(ctx, path)
	if err != nil {
		return nil, err
	}
	// Check first: opening a device can have effects. Then open without blocking and check again:
	// the file may have been replaced.
	info, err := os.Stat(host)
	if err == nil && !info.Mode().IsRegular() {
		return nil, notRegular("open", path, info)
	}
	if err != nil {
		return nil, fileError("open", sandbar.Quote(path, 200), err)
	}
	file, err := os.OpenFile(host, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, fileError("open", sandbar.Quote(path, 200), err)
	}
	info, err = file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		file.Close()
		return nil, notRegular("open", path, info)
	}
	return openFile{file, describe(info, "")}, nil
}

// notRegular returns the error for a path that is not a regular file. info may be nil.
func notRegular(verb, path string, info fs.FileInfo) error {
	if info != nil && info.IsDir() {
		return fileError(verb, sandbar.Quote(path, 200), syscall.EISDIR)
	}
	return &sandbar.Error{Code: sandbar.Conflict, Field: "path", Message: sandbar.Quote(path, 200) + " is not a regular file"}
}

type openFile struct {
	*os.File
	info sandbar.FileInfo
}

// Info returns the file's description at the time of the open.
func (f openFile) Info() sandbar.FileInfo { return f.info }

// uploadPrefix is the prefix of the temporary name of an uncommitted file, which is in the
// directory of its target, so that a rename is atomic.
const uploadPrefix = ".sandbar-upload-"

// Create opens a file for writing. Commit replaces what is at path, unless it is a directory; it
// replaces a link and does not follow it.
func (f *files) Create(ctx context.Context, path string, opt sandbar.CreateOptions) (sandbar.FileWriter, error) {
	host, err := f.path(ctx, path)
	if err == nil {
		err = refuseMode(opt.Mode)
	}
	if err != nil {
		return nil, err
	}
	if opt.Mode == 0 {
		opt.Mode = 0o644
	}
	if opt.Parents {
		if err := makeParents(host, path); err != nil {
			return nil, err
		}
	}
	if opt.Append {
		return f.appendTo(host, path, opt.Mode)
	}
	info, err := os.Lstat(host)
	if err == nil && info.IsDir() || strings.HasSuffix(path, "/") {
		return nil, &sandbar.Error{Code: sandbar.Conflict, Field: "path", Message: sandbar.Quote(path, 200) + " is a directory"}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fileError("create", sandbar.Quote(path, 200), err)
	}
	var b [12]byte
	rand.Read(b[:])
	temp := joinKeeping(parentOf(host), uploadPrefix+hex.EncodeToString(b[:]))
	file, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = file.Chmod(opt.Mode.Perm())
	}
	if err != nil {
		if file != nil {
			file.Close()
			os.Remove(temp)
		}
		return nil, fileError("create", sandbar.Quote(path, 200), err)
	}
	return &upload{sandbox: f.sandbox, file: file, temp: temp, host: host, path: path}, nil
}

// makeParents creates the parent directories of a path.
func makeParents(host, path string) error {
	err := os.MkdirAll(parentOf(host), 0o755)
	if errors.Is(err, fs.ErrExist) {
		err = syscall.ENOTDIR // a parent is a file
	}
	if err != nil {
		return fileError("make the directories of", sandbar.Quote(path, 200), err)
	}
	return nil
}

func (f *files) appendTo(host, path string, mode fs.FileMode) (sandbar.FileWriter, error) {
	if info, err := os.Stat(host); err == nil && !info.Mode().IsRegular() {
		return nil, notRegular("append to", path, info)
	}
	file, err := os.OpenFile(host, os.O_WRONLY|os.O_CREATE|os.O_APPEND|nonblock, mode.Perm())
	if err != nil {
		return nil, fileError("append to", sandbar.Quote(path, 200), err)
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		file.Close()
		return nil, notRegular("append to", path, info)
	}
	return &upload{sandbox: f.sandbox, file: file, path: path}, nil
}

// upload is a file being written: to temp until Commit or, if it is appended to, the file itself.
type upload struct {
	sandbox          *sandbox
	file             *os.File
	temp, host, path string
	over             bool
}

func (u *upload) Write(b []byte) (int, error) {
	n, err := u.file.Write(b)
	if err != nil {
		return n, fileError("write", sandbar.Quote(u.path, 200), err)
	}
	return n, nil
}

// Commit makes the file appear. Conflict: it was already committed or aborted. Gone: the sandbox
// was destroyed.
func (u *upload) Commit() error {
	if u.over {
		return &sandbar.Error{Code: sandbar.Conflict, Message: "the file " + sandbar.Quote(u.path, 200) + " was committed or aborted before"}
	}
	u.over = true
	err := u.file.Close()
	if err == nil && u.temp != "" {
		if err = renameFile(u.temp, u.host); err != nil {
			os.Remove(u.temp)
		}
	}
	if err == nil {
		return nil
	}
	if u.sandbox.ended() {
		return u.sandbox.gone()
	}
	return fileError("commit", sandbar.Quote(u.path, 200), err)
}

// Abort removes what was written, unless it was appended.
func (u *upload) Abort() {
	if u.over {
		return
	}
	u.over = true
	u.file.Close()
	if u.temp != "" {
		os.Remove(u.temp)
	}
}

// Stat describes path, without following a link.
func (f *files) Stat(ctx context.Context, path string) (sandbar.FileInfo, error) {
	host, err := f.path(ctx, path)
	if err != nil {
		return sandbar.FileInfo{}, err
	}
	info, err := lstat(host)
	if err != nil {
		return sandbar.FileInfo{}, fileError("stat", sandbar.Quote(path, 200), err)
	}
	return info, nil
}

func lstat(host string) (sandbar.FileInfo, error) {
	info, err := os.Lstat(host)
	if err != nil {
		return sandbar.FileInfo{}, err
	}
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		target, _ = os.Readlink(host) // no target if it was just removed or replaced
	}
	return describe(info, target), nil
}

func describe(info fs.FileInfo, target string) sandbar.FileInfo {
	uid, gid := owner(info)
	return sandbar.FileInfo{Name: info.Name(), Size: info.Size(), Mode: info.Mode(),
		ModTime: info.ModTime(), UID: uid, GID: gid, Target: target}
}

// ReadDir lists at most limit entries (at least 1) in the order of names. Its memory is
// proportional to limit, not to the directory.
func (f *files) ReadDir(ctx context.Context, path, after string, limit int) ([]sandbar.FileInfo, error) {
	host, err := f.path(ctx, path)
	if err != nil {
		return nil, err
	}
	if limit < 1 {
		return nil, &sandbar.Error{Code: sandbar.Invalid, Field: "limit", Message: "limit must be at least 1"}
	}
	names, err := firstNames(ctx, host, after, limit)
	if err != nil {
		if cerr := contextError(ctx); cerr != nil {
			return nil, cerr
		}
		return nil, fileError("list", sandbar.Quote(path, 200), err)
	}
	list := make([]sandbar.FileInfo, 0, len(names))
	for _, n := range names {
		if info, err := lstat(joinKeeping(host, n)); err == nil { // otherwise it was just removed
			list = append(list, info)
		}
	}
	return list, nil
}

// firstNames returns the first limit names after `after`. It reads the directory in pieces and
// keeps only names that may be among the first.
func firstNames(ctx context.Context, host, after string, limit int) ([]string, error) {
	dir, err := openDir(host)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	const piece = 1024
	var kept []string
	cut := func() {
		slices.Sort(kept)
		kept = kept[:min(len(kept), limit)]
	}
	for ctx.Err() == nil {
		names, err := dir.Readdirnames(piece)
		for _, n := range names {
			if n > after && !strings.HasPrefix(n, uploadPrefix) {
				kept = append(kept, n)
			}
		}
		if len(kept) >= limit+piece {
			cut()
		}
		if err == io.EOF {
			cut()
			return kept, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, ctx.Err()
}

// refuseMode refuses set-user-ID and set-group-ID: the file belongs to the daemon's user.
func refuseMode(mode fs.FileMode) error {
	if mode&(fs.ModeSetuid|fs.ModeSetgid) == 0 {
		return nil
	}
	return &sandbar.Error{Code: sandbar.Invalid, Field: "mode",
		Message: "the mode " + mode.String() + " has the set-user-ID or the set-group-ID bit, which is not allowed",
		Fix:     "request permission bits only"}
}

// Mkdir creates a directory.
func (f *files) Mkdir(ctx context.Context, path string, mode fs.FileMode, parents bool) error {
	host, err := f.path(ctx, path)
	if err == nil {
		err = refuseMode(mode)
	}
	if err != nil {
		return err
	}
	if mode == 0 {
		mode = 0o755
	}
	if parents {
		if info, err := os.Stat(host); err == nil && info.IsDir() {
			return nil
		}
		if err := makeParents(host, path); err != nil {
			return err
		}
	}
	err = os.Mkdir(host, mode.Perm())
	if err == nil {
		err = os.Chmod(host, mode.Perm()) // independent of the daemon's umask
	}
	if err != nil {
		return fileError("make the directory", sandbar.Quote(path, 200), err)
	}
	return nil
}

// isHome reports whether a resolved path is the sandbox's home.
func (f *files) isHome(host string) bool { return filepath.Clean(host) == f.sandbox.home }

func homeStays() error {
	return &sandbar.Error{Code: sandbar.Conflict, Field: "path",
		Message: sandbar.DefaultDir + " is the sandbox's own directory; it can be neither moved nor removed"}
}

// Remove removes a file, a link or a directory.
func (f *files) Remove(ctx context.Context, path string, recursive bool) error {
	host, err := f.path(ctx, path)
	if err != nil {
		return err
	}
	if f.isHome(host) {
		return homeStays()
	}
	if recursive {
		err = removeTree(ctx, host)
	} else {
		err = os.Remove(host)
	}
	if err != nil {
		if cerr := contextError(ctx); cerr != nil {
			return cerr
		}
		return fileError("remove", sandbar.Quote(path, 200), err)
	}
	return nil
}

// Rename moves a file or directory. Conflict: also if the paths are on different file systems.
func (f *files) Rename(ctx context.Context, from, to string) error {
	return f.rename(ctx, from, to, renameFile)
}

// RenameNew implements sandbar.Mover.
func (f *files) RenameNew(ctx context.Context, from, to string) error {
	return f.rename(ctx, from, to, renameNew)
}

func (f *files) rename(ctx context.Context, from, to string, rename func(from, to string) error) error {
	hostFrom, err := f.path(ctx, from)
	if err != nil {
		return err
	}
	hostTo, err := f.path(ctx, to)
	if err != nil {
		return err
	}
	if f.isHome(hostFrom) || f.isHome(hostTo) {
		return homeStays()
	}
	if err := rename(hostFrom, hostTo); err != nil {
		return fileError("rename", sandbar.Quote(from, 100)+" to "+sandbar.Quote(to, 100), err)
	}
	return nil
}

// Chmod sets permission bits. It follows a link at path itself, and skips those below.
func (f *files) Chmod(ctx context.Context, path string, mode fs.FileMode, recursive bool) error {
	host, err := f.path(ctx, path)
	if err == nil {
		err = refuseMode(mode)
	}
	if err != nil {
		return err
	}
	if info, serr := os.Lstat(host); recursive && serr == nil && info.IsDir() {
		// Set the directory's own mode last, because it may deny access to the contents.
		if err = os.Chmod(host, mode.Perm()|0o700); err == nil {
			err = chmodBelow(ctx, host, mode.Perm())
		}
	}
	if err == nil {
		err = os.Chmod(host, mode.Perm())
	}
	if err != nil {
		if cerr := contextError(ctx); cerr != nil {
			return cerr
		}
		return fileError("change the mode of", sandbar.Quote(path, 200), err)
	}
	return nil
}

// Chown implements sandbar.Owner. Unsupported: the system has no numeric owners.
func (f *files) Chown(ctx context.Context, path string, uid, gid uint32, recursive bool) error {
	host, err := f.path(ctx, path)
	if err != nil {
		return err
	}
	if err := chownTree(ctx, host, uid, gid, recursive); err != nil {
		if cerr := contextError(ctx); cerr != nil {
			return cerr
		}
		return fileError("change the owner of", sandbar.Quote(path, 200), err)
	}
	return nil
}

// maxRead bounds the result of one ReadFiles, in bytes.
const maxRead = 1 << 20

// ReadFiles implements sandbar.BatchReader.
func (f *files) ReadFiles(ctx context.Context, paths []string, max int) ([]sandbar.FileContent, error) {
	if max < 0 {
		return nil, &sandbar.Error{Code: sandbar.Invalid, Field: "max", Message: "max must be at least 0"}
	}
	var all []sandbar.FileContent
	left := maxRead
	for _, p := range paths[:min(len(paths), sandbar.MaxReadFiles)] {
		host, err := f.path(ctx, p)
		if err != nil && (ctx.Err() != nil || f.sandbox.ended()) {
			return nil, err
		}
		c := sandbar.FileContent{Err: err}
		if err == nil {
			c = readStart(host, p, min(max, sandbar.MaxFileContent))
		}
		if left -= len(c.Data); left < 0 {
			break
		}
		all = append(all, c)
	}
	return all, nil
}

// readStart reads at most most bytes of a regular file, without following a link.
func readStart(host, path string, most int) sandbar.FileContent {
	failed := func(err error) sandbar.FileContent {
		return sandbar.FileContent{Err: fileError("read", sandbar.Quote(path, 200), err)}
	}
	// Check, open, and check again: see Open.
	info, err := os.Lstat(host)
	if err != nil {
		return failed(err)
	}
	if !info.Mode().IsRegular() {
		return failed(notRegular("read", path, info))
	}
	file, err := os.OpenFile(host, os.O_RDONLY|nonblock|notLink, 0)
	if err != nil {
		return failed(err)
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return failed(notRegular("read", path, info))
	}
	b, err := io.ReadAll(io.LimitReader(file, int64(most)+1))
	if err != nil {
		return failed(err)
	}
	return sandbar.FileContent{Data: b[:min(len(b), most)], Complete: len(b) <= most}
}

// fileError converts an error of the operating system. what must be safe to print.
func fileError(verb, what string, err error) error {
	if e, ok := errors.AsType[*sandbar.Error](err); ok {
		return e
	}
	code := sandbar.Internal
	switch {
	case errors.Is(err, fs.ErrNotExist):
		code = sandbar.NotFound
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		code = sandbar.Denied
	case errors.Is(err, syscall.ENOTEMPTY), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR),
		errors.Is(err, syscall.EXDEV), errors.Is(err, syscall.EBUSY), errors.Is(err, syscall.ENXIO), errors.Is(err, syscall.ETXTBSY):
		code = sandbar.Conflict // before Exists, because Go maps ENOTEMPTY to fs.ErrExist
	case errors.Is(err, fs.ErrExist):
		code = sandbar.Exists
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, errQuota):
		code = sandbar.NoSpace
	case errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.EINVAL):
		code = sandbar.Invalid
	case errors.Is(err, syscall.EFBIG):
		code = sandbar.TooLarge
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		code = sandbar.Exhausted
	}
	return &sandbar.Error{Code: code, Field: "path", Message: "cannot " + verb + " " + what, Err: cause(err)}
}
