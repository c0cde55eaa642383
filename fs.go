package sandbar

import (
	"context"
	"io"
	"io/fs"
	"time"
)

// FS accesses the files of one sandbox. Paths are resolved inside the sandbox and with the
// permissions of its user, never on the host: a symbolic link can lead only to files that the
// sandbox's programs can reach themselves. A relative path starts at DefaultDir.
//
// Errors are *Error: Invalid (the path is empty, too long or has a NUL byte), NotFound, Exists,
// Denied, Conflict (wrong type of file, directory not empty), NoSpace, Gone. If the kernel reported
// the error, the cause is a syscall.Errno.
type FS interface {
	// Open opens a regular file for reading. It never blocks. Conflict: path is a directory, FIFO,
	// socket or device.
	Open(ctx context.Context, path string) (File, error)
	// Create opens a file for writing. The file appears at path only on Commit.
	Create(ctx context.Context, path string, opt CreateOptions) (FileWriter, error)
	// Stat describes path. It does not follow a symbolic link at path.
	Stat(ctx context.Context, path string) (FileInfo, error)
	// ReadDir lists at most limit entries of a directory, sorted by name. It starts after the name
	// after, or at the beginning if after is "".
	ReadDir(ctx context.Context, path, after string, limit int) ([]FileInfo, error)
	// Mkdir makes a directory. With parents it also makes missing parent directories, and an
	// existing directory is no error.
	Mkdir(ctx context.Context, path string, mode fs.FileMode, parents bool) error
	// Remove removes a file, a symbolic link or an empty directory. With recursive it also removes
	// the contents of a directory. It removes symbolic links without following them, and does not
	// cross mount points.
	Remove(ctx context.Context, path string, recursive bool) error
	// Rename moves a file or directory. It replaces an existing file at to.
	Rename(ctx context.Context, from, to string) error
	// Chmod sets the permission bits, and the sticky bit if the driver has one. With recursive it
	// also changes the contents of a directory, except symbolic links. Invalid: mode has the
	// set-user-ID or set-group-ID bit; Create and Mkdir refuse these bits too.
	Chmod(ctx context.Context, path string, mode fs.FileMode, recursive bool) error
}

// BatchReader is an optional interface of an FS that reads many small files in one call.
type BatchReader interface {
	// ReadFiles reads the beginnings of regular files: at most max bytes of each file, and never
	// more than MaxFileContent. It does not follow a symbolic link at a path. It refuses other
	// types of files without blocking.
	//
	// The result holds the first n of paths, with n between 1 and MaxReadFiles. The caller calls
	// again for the rest. An error of one file is in its FileContent. Errors of the call: those of
	// FS, and Unsupported if the FS cannot read in batches.
	ReadFiles(ctx context.Context, paths []string, max int) ([]FileContent, error)
}

// Putter is an optional interface of an FS that writes a small file in one step. This saves two
// round trips to the sandbox.
type Putter interface {
	// Put is Create, a Write of at most MaxPut bytes, and Commit. On an error no file appears at
	// path. Invalid: more than MaxPut bytes, or CreateOptions.Append.
	Put(ctx context.Context, path string, content []byte, opt CreateOptions) error
}

// MaxPut is the largest content of one Put, in bytes.
const MaxPut = 64 << 10

// Limits of one ReadFiles call.
const (
	MaxReadFiles   = 256      // files
	MaxFileContent = 64 << 10 // bytes of each file
)

// FileContent is the beginning of one file.
type FileContent struct {
	Data     []byte // owned by the caller
	Complete bool   // Data is the whole file
	Err      error  // reading failed; *Error, as from FS.Open
}

// Owner is an optional interface of an FS that can change the owner of files.
type Owner interface {
	// Chown changes the user and group of a file. uid and gid are numbers inside the sandbox;
	// SameID keeps the current one. Chown follows a symbolic link at path. With recursive it also
	// changes the contents of a directory, without following symbolic links. Errors: those of FS,
	// Denied with the cause EPERM if the sandbox's user has no permission, and Unsupported.
	Chown(ctx context.Context, path string, uid, gid uint32, recursive bool) error
}

// SameID, as a uid or gid of Owner.Chown, keeps the file's current one.
const SameID uint32 = 1<<32 - 1

// Mover is an optional interface of an FS that can rename without replacing.
type Mover interface {
	// RenameNew is Rename without replacing: Exists if there is a file at to. The check and the
	// move are one atomic step. Errors: those of FS, and Unsupported if the system has no such
	// step.
	RenameNew(ctx context.Context, from, to string) error
}

// FileWatcher is an optional interface of an FS that reports changes of files when they happen.
type FileWatcher interface {
	// Watch watches the entries of a directory, and with recursive those of all directories below
	// it. When it returns, no later change is missed. ctx bounds this call only. It does not follow
	// symbolic links below path, and skips directories that the sandbox's user cannot read.
	// Conflict: path is no directory. Exhausted: the sandbox has 64 watches, or a recursive watch
	// would have more than 10,000 directories.
	Watch(ctx context.Context, path string, recursive bool) (FileWatch, error)
}

// FileWatch is a watch of files. The caller must close it.
type FileWatch interface {
	// Next waits for the next event. io.EOF: the directory itself was removed or renamed; the last
	// event, with the Path "", says so. Gone: the sandbox has ended. If ctx ends, so does the
	// watch. Next must not be called concurrently.
	Next(ctx context.Context) (FileEvent, error)
	// Close ends the watch, and a Next in progress. Until a moment later the watch counts towards
	// the limit.
	Close() error
}

// FileEvent is one change. Events of one directory are in the order of the changes. Files that
// appear together with their directory may be reported twice.
type FileEvent struct {
	Op FileOp
	// Path is relative to the watched directory; "" is that directory itself.
	Path string
}

// FileOp is the kind of a FileEvent.
type FileOp string

// The kinds of events.
const (
	FileCreated FileOp = "create" // the entry is new, or has been renamed to this name
	FileWritten FileOp = "write"  // the content has changed
	FileRemoved FileOp = "remove"
	FileRenamed FileOp = "rename" // the entry does not have this name any more
	FileChmod   FileOp = "chmod"  // mode, owner, time stamps or another attribute has changed
	// FileEventsLost: changes came faster than they were read, or a directory could not be watched.
	// Some events are missing; list the files again.
	FileEventsLost FileOp = "lost"
)

// CreateOptions are the options of FS.Create.
type CreateOptions struct {
	Mode    fs.FileMode // permission bits; default 0o644
	Parents bool        // make missing parent directories
	Append  bool        // append to an existing file; writes are visible at once
}

// File is an open regular file of a sandbox.
type File interface {
	io.ReadSeekCloser
	Info() FileInfo
}

// FileWriter writes one file. The caller ends it with exactly one of Commit and Abort. Abort after
// Commit does nothing.
type FileWriter interface {
	io.Writer
	// Commit makes the file appear at its path. It atomically replaces an existing file.
	Commit() error
	// Abort discards the written bytes.
	Abort()
}

// FileInfo describes a file. Mode has the type and permission bits of io/fs.
type FileInfo struct {
	Name    string
	Size    int64
	Mode    fs.FileMode
	ModTime time.Time
	UID     uint32 // inside the sandbox
	GID     uint32
	Target  string // the target of a symbolic link
}
