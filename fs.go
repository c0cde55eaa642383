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
	// Chmod sets permission bits. Links met on the way down are left alone.
	Chmod(ctx context.Context, path string, mode fs.FileMode, recursive bool) error
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
