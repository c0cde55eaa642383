package cgroup

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// system is this package's interface to the kernel. Tests replace it with a model, for hosts on
// which they do not run.
type system interface {
	// ReadFile returns a file's contents.
	ReadFile(name string) ([]byte, error)
	// WriteFile writes to an existing file, with one write(2), on the calling thread.
	WriteFile(name, data string) error
	// OpenWriter opens an existing file for writing.
	OpenWriter(name string) (io.WriteCloser, error)
	// Readable reports whether a file exists and can be read.
	Readable(name string) bool
	// Mkdir and Rmdir create and remove a directory.
	Mkdir(name string) error
	Rmdir(name string) error
	// Subdirs returns the names of the directories in a directory.
	Subdirs(name string) ([]string, error)
	// Writable returns nil if this process may write the file, or create directories in the
	// directory.
	Writable(name string) error
	// Version returns 1 or 2 for a directory of that cgroup version, otherwise 0.
	Version(name string) int
	// Pid and Uid are those of this process.
	Pid() int
	Uid() int
}

// host is the kernel of this process. Errors are plain errno values, because callers report the
// path themselves.
type host struct{}

func (host) ReadFile(name string) ([]byte, error) {
	fd, err := retry(func() (int, error) { return unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	// Most files have a line or two; mountinfo can be long.
	var small [1024]byte
	buf := small[:0]
	for {
		n, err := retry(func() (int, error) { return unix.Read(fd, buf[len(buf):cap(buf)]) })
		if err != nil {
			return nil, err
		}
		buf = buf[:len(buf)+n]
		if n == 0 {
			return append([]byte(nil), buf...), nil
		}
		if len(buf) == cap(buf) {
			buf = append(make([]byte, 0, 4*cap(buf)), buf...)
		}
	}
}

func (host) WriteFile(name, data string) error {
	fd, err := retry(func() (int, error) { return unix.Open(name, unix.O_WRONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = retry(func() (int, error) { return unix.Write(fd, []byte(data)) })
	return err
}

func (host) OpenWriter(name string) (io.WriteCloser, error) {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return nil, errnoOf(err)
	}
	return f, nil
}

func (host) Mkdir(name string) error { return unix.Mkdir(name, 0o755) }
func (host) Rmdir(name string) error { return unix.Rmdir(name) }

func (host) Subdirs(name string) ([]string, error) {
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, errnoOf(err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func (host) Writable(name string) error {
	return unix.Faccessat(unix.AT_FDCWD, name, unix.W_OK, unix.AT_EACCESS)
}

func (host) Readable(name string) bool {
	return unix.Faccessat(unix.AT_FDCWD, name, unix.R_OK, unix.AT_EACCESS) == nil
}

func (host) Version(name string) int {
	var st unix.Statfs_t
	if unix.Statfs(name, &st) != nil {
		return 0
	}
	switch int64(st.Type) {
	case unix.CGROUP_SUPER_MAGIC:
		return 1
	case unix.CGROUP2_SUPER_MAGIC:
		return 2
	}
	return 0
}

func (host) Pid() int { return os.Getpid() }
func (host) Uid() int { return os.Geteuid() }

// retry repeats a call that a signal interrupted.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}

// errnoOf unwraps the errno of an error of package os.
func errnoOf(err error) error {
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return errno
	}
	return err
}
