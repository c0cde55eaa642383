// Package program defines programs of the sandbox's shell. A program is a Go function with
// arguments, an environment, three streams and the sandbox's files, which returns an exit status.
// The shell's utilities are programs, and so are others that are added to it, such as a Python
// interpreter.
//
// A program accesses only its [Context].
package program

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"syscall"

	"github.com/sandbar-dev/sandbar/internal/wasm/memfs"
)

// Program runs a program and returns its exit status, 0 to 255. It must return when ctx ends, and
// must leave no goroutine.
type Program func(ctx context.Context, c *Context) int

// Context is the environment of a program.
type Context struct {
	Args  []string // program name first
	Env   []string // "NAME=value"
	Dir   string   // working directory, absolute
	Umask fs.FileMode
	FS    *memfs.FS

	// The streams are never nil. If a pipe has no reader, a write ends a utility of the shell with
	// SIGPIPE; other programs get EPIPE.
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	// Descriptor opens a descriptor by number, as /dev/fd does. Nil: only the three streams exist.
	Descriptor func(n int) (io.ReadWriteCloser, error)
	// Run runs another program, which the shell finds by c.Args[0], and returns its exit status.
	// Nil: the program cannot run others.
	Run func(ctx context.Context, c *Context) int
}

// Getenv returns the value of an environment variable; "" if it is not set.
func (c *Context) Getenv(name string) string {
	v, _ := c.LookupEnv(name)
	return v
}

// LookupEnv is Getenv and reports whether the variable is set.
func (c *Context) LookupEnv(name string) (string, bool) {
	for i := len(c.Env) - 1; i >= 0; i-- {
		if k, v, ok := strings.Cut(c.Env[i], "="); ok && k == name {
			return v, true
		}
	}
	return "", false
}

// OpenFile opens a file of the sandbox. /dev/stdin, /dev/stdout, /dev/stderr and /dev/fd/N are the
// program's own streams. flag is that of os.OpenFile. The umask is applied to perm.
func (c *Context) OpenFile(name string, flag int, perm fs.FileMode) (io.ReadWriteCloser, error) {
	if n, ok := StreamNumber(c.Dir, name); ok {
		return c.openStream(n)
	}
	f, err := c.FS.OpenFile(c.Dir, name, flag, perm&^c.Umask)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// StreamNumber returns the descriptor if a path names a stream of the program.
func StreamNumber(dir, name string) (int, bool) {
	if !strings.HasPrefix(name, "/") {
		name = dir + "/" + name
	}
	name = path.Clean(name)
	switch name {
	case "/dev/stdin":
		return 0, true
	case "/dev/stdout":
		return 1, true
	case "/dev/stderr":
		return 2, true
	}
	for _, prefix := range []string{"/dev/fd/", "/proc/self/fd/"} {
		if digits, ok := strings.CutPrefix(name, prefix); ok {
			n, err := strconv.Atoi(digits)
			return n, err == nil && n >= 0
		}
	}
	return 0, false
}

func (c *Context) openStream(n int) (io.ReadWriteCloser, error) {
	switch {
	case c.Descriptor != nil:
		return c.Descriptor(n)
	case n == 0:
		return stream{Reader: c.Stdin}, nil
	case n == 1:
		return stream{Writer: c.Stdout}, nil
	case n == 2:
		return stream{Writer: c.Stderr}, nil
	}
	return nil, syscall.ENOENT
}

// stream is a reader or writer as a file. Close does not close it.
type stream struct {
	io.Reader
	io.Writer
}

func (s stream) Read(p []byte) (int, error) {
	if s.Reader == nil {
		return 0, syscall.EBADF
	}
	return s.Reader.Read(p)
}

func (s stream) Write(p []byte) (int, error) {
	if s.Writer == nil {
		return 0, syscall.EBADF
	}
	return s.Writer.Write(p)
}

func (s stream) Close() error { return nil }

// ErrorText returns the text of an error as programs print it: for a system call's error that of
// strerror(3) on Linux, on any host.
func ErrorText(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		for _, t := range errorTexts {
			if t.errno == errno {
				return t.text
			}
		}
	}
	return err.Error()
}

var errorTexts = []struct {
	errno syscall.Errno
	text  string
}{
	{syscall.ENOENT, "No such file or directory"},
	{syscall.EEXIST, "File exists"},
	{syscall.EISDIR, "Is a directory"},
	{syscall.ENOTDIR, "Not a directory"},
	{syscall.ENOTEMPTY, "Directory not empty"},
	{syscall.ENOSPC, "No space left on device"},
	{syscall.EFBIG, "File too large"},
	{syscall.ELOOP, "Too many levels of symbolic links"},
	{syscall.ENAMETOOLONG, "File name too long"},
	{syscall.EINVAL, "Invalid argument"},
	{syscall.EBADF, "Bad file descriptor"},
	{syscall.EPERM, "Operation not permitted"},
	{syscall.EACCES, "Permission denied"},
	{syscall.EPIPE, "Broken pipe"},
	{syscall.EBUSY, "Device or resource busy"},
	{syscall.EMLINK, "Too many links"},
	{syscall.EMFILE, "Too many open files"},
	{syscall.EAGAIN, "Resource temporarily unavailable"},
	{syscall.ENXIO, "No such device or address"},
	{syscall.EINTR, "Interrupted system call"},
	{syscall.ENOEXEC, "Exec format error"},
	{syscall.E2BIG, "Argument list too long"},
	{syscall.ENOMEM, "Cannot allocate memory"},
	{syscall.ESTALE, "Stale file handle"},
	{syscall.ESPIPE, "Illegal seek"},
	{syscall.EIO, "Input/output error"},
}
