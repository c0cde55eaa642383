package sandbar

import (
	"context"
	"io"
	"io/fs"
	"time"
)

// FS is the files of one sandbox, as its programs see them. Paths are resolved
// inside the sandbox and with the rights of its user, never by the host: a
// link that a program planted leads only where that program could go itself.
// A relative path starts at DefaultDir.
//
// Errors are *Error: Invalid (an empty path, a NUL, too long), NotFound,
// Exists, Denied, Conflict (wrong kind of file, directory not empty), NoSpace,
// Gone. The cause, where the kernel gave one, is a syscall.Errno.
type FS interface {
	// Open opens a regular file for reading. Anything else (a directory, FIFO,
	// socket, device) is Conflict, at once and without blocking.
	Open(ctx context.Context, path string) (File, error)
	// Create opens a file for writing. Until Commit nothing is seen at path.
	Create(ctx context.Context, path string, opt CreateOptions) (FileWriter, error)
	// Stat describes path itself; a symbolic link is not followed.
	Stat(ctx context.Context, path string) (FileInfo, error)
	// ReadDir lists at most limit entries of a directory, in the order of
	// names, after the name `after` ("" from the start).
	ReadDir(ctx context.Context, path, after string, limit int) ([]FileInfo, error)
	// Mkdir makes a directory; with parents also those above it, and an
	// existing directory is then no error.
	Mkdir(ctx context.Context, path string, mode fs.FileMode, parents bool) error
	// Remove removes a file, a link or an empty directory; recursive also what
	// is in a directory. Links are removed, not followed; mounts are not crossed.
	Remove(ctx context.Context, path string, recursive bool) error
	// Rename moves a file or directory, replacing a file that is there.
	Rename(ctx context.Context, from, to string) error
	// Chmod sets permission bits, and the sticky bit where it is real. Set-user-ID and
	// set-group-ID are Invalid, here and where a file or directory is made. Links met on
	// the way down are left alone.
	Chmod(ctx context.Context, path string, mode fs.FileMode, recursive bool) error
}

// BatchReader is an FS that reads many small files at the price of few. An FS
// need not be one.
type BatchReader interface {
	// ReadFiles reads the beginnings of regular files: at most max bytes of
	// each, and never more than MaxFileContent. A link is not followed, and what
	// is not a regular file is refused without blocking.
	//
	// It answers for the first of paths, for at least one and for as many as go
	// at once, which is never more than MaxReadFiles; the caller asks for the
	// rest again. What is wrong with one file is in its FileContent. Errors:
	// those of FS, and Unsupported where files can only be opened one by one.
	ReadFiles(ctx context.Context, paths []string, max int) ([]FileContent, error)
}

// Putter is an FS that writes a small file in one step, which saves waiting for
// the sandbox twice. An FS need not be one.
type Putter interface {
	// Put is Create, a Write of at most MaxPut bytes, and Commit. On an error
	// nothing is seen at path. More is Invalid, as is CreateOptions.Append.
	Put(ctx context.Context, path string, content []byte, opt CreateOptions) error
}

// MaxPut is how many bytes one Put takes.
const MaxPut = 64 << 10

// Limits of one ReadFiles.
const (
	MaxReadFiles   = 256      // files
	MaxFileContent = 64 << 10 // bytes of each
)

// FileContent is the beginning of one file.
type FileContent struct {
	Data  []byte // owned by the caller
	Whole bool   // Data is all there is
	Err   error  // why the file could not be read; *Error, as from FS.Open
}

// Owner is an FS that can give files away. An FS need not be one.
type Owner interface {
	// Chown gives a file to a user and a group, as numbered inside the sandbox;
	// SameID leaves either as it is. A link at path is followed; links met on
	// the way down are left alone. Errors: those of FS, Denied with the cause
	// EPERM where the sandbox's user may not, and Unsupported.
	Chown(ctx context.Context, path string, uid, gid uint32, recursive bool) error
}

// SameID is the user or group that a file has already, for Owner.
const SameID uint32 = 1<<32 - 1

// Mover is an FS that can move without replacing. An FS need not be one.
type Mover interface {
	// RenameNew is Rename, but what is at to stays: that is Exists. It looks and
	// moves in one step. Errors: those of FS, and Unsupported where the system
	// cannot do it in one step.
	RenameNew(ctx context.Context, from, to string) error
}

// CreateOptions say how Create makes a file.
type CreateOptions struct {
	Mode    fs.FileMode // permission bits; default 0o644
	Parents bool        // make missing directories above it
	Append  bool        // add to what is there; then writes are seen at once
}

// File is an open regular file of a sandbox.
type File interface {
	io.ReadSeekCloser
	Info() FileInfo
}

// FileWriter is a file being written. Exactly one of Commit and Abort ends it;
// Abort after Commit does nothing.
type FileWriter interface {
	io.Writer
	// Commit makes the file appear at its path, replacing what was there in
	// one step.
	Commit() error
	// Abort throws the written bytes away.
	Abort()
}

// FileInfo describes a file. Mode has the type and permission bits of io/fs.
type FileInfo struct {
	Name    string
	Size    int64
	Mode    fs.FileMode
	ModTime time.Time
	UID     uint32 // as seen inside the sandbox
	GID     uint32
	Target  string // of a symbolic link
}
