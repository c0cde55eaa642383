package engine

import (
	"context"
	"io"
	"io/fs"
	"strconv"

	"github.com/sandbar-dev/sandbar"
)

// files is a driver's FS that counts calls and open files as work in their
// sandbox and refuses when the sandbox has ended.
type files struct {
	s  *Sandbox
	fs sandbar.FS
}

// during runs f as work in the sandbox.
func (f files) during(call func() error) error {
	release, err := f.s.hold()
	if err != nil {
		return err
	}
	defer release()
	return call()
}

func (f files) Open(ctx context.Context, path string) (sandbar.File, error) {
	release, err := f.s.hold()
	if err != nil {
		return nil, err
	}
	file, err := f.fs.Open(ctx, path)
	if err != nil {
		release()
		return nil, err
	}
	held := &heldFile{File: file, release: release, most: f.s.e.cfg.MaxFile}
	if size := file.Info().Size; size < 0 || size > held.most {
		held.Close()
		return nil, fileTooLarge(path, held.most)
	}
	return held, nil
}

// fileTooLarge refuses a file. Its size is that which it claims: a file that holds
// nothing can claim 8 EiB, and to read that takes centuries.
func fileTooLarge(path string, most int64) error {
	return &sandbar.Error{Code: sandbar.TooLarge, Field: "path",
		Message: "read " + sandbar.Quote(path, 200) + ": the file has more than " + strconv.FormatInt(most, 10) + " bytes, holes included",
		Fix:     "read it inside the sandbox, or have the operator raise max_file"}
}

func (f files) Create(ctx context.Context, path string, opt sandbar.CreateOptions) (sandbar.FileWriter, error) {
	release, err := f.s.hold()
	if err != nil {
		return nil, err
	}
	w, err := f.fs.Create(ctx, path, opt)
	if err != nil {
		release()
		return nil, err
	}
	return heldWriter{w, release}, nil
}

func (f files) Stat(ctx context.Context, path string) (info sandbar.FileInfo, err error) {
	err = f.during(func() (err error) { info, err = f.fs.Stat(ctx, path); return err })
	return info, err
}

func (f files) ReadDir(ctx context.Context, path, after string, limit int) (infos []sandbar.FileInfo, err error) {
	err = f.during(func() (err error) { infos, err = f.fs.ReadDir(ctx, path, after, limit); return err })
	return infos, err
}

func (f files) Mkdir(ctx context.Context, path string, mode fs.FileMode, parents bool) error {
	return f.during(func() error { return f.fs.Mkdir(ctx, path, mode, parents) })
}

func (f files) Remove(ctx context.Context, path string, recursive bool) error {
	return f.during(func() error { return f.fs.Remove(ctx, path, recursive) })
}

func (f files) Rename(ctx context.Context, from, to string) error {
	return f.during(func() error { return f.fs.Rename(ctx, from, to) })
}

func (f files) Chmod(ctx context.Context, path string, mode fs.FileMode, recursive bool) error {
	return f.during(func() error { return f.fs.Chmod(ctx, path, mode, recursive) })
}

// ReadFiles implements sandbar.BatchReader where the driver's FS does.
func (f files) ReadFiles(ctx context.Context, paths []string, max int) (all []sandbar.FileContent, err error) {
	r, ok := f.fs.(sandbar.BatchReader)
	if !ok {
		return nil, f.cannot("read many files at once", "open them one by one")
	}
	err = f.during(func() (err error) { all, err = r.ReadFiles(ctx, paths, max); return err })
	return all, err
}

// Chown implements sandbar.Owner where the driver's FS does.
func (f files) Chown(ctx context.Context, path string, uid, gid uint32, recursive bool) error {
	o, ok := f.fs.(sandbar.Owner)
	if !ok {
		return f.cannot("change the owner of files", "leave it as it is")
	}
	return f.during(func() error { return o.Chown(ctx, path, uid, gid, recursive) })
}

// RenameNew implements sandbar.Mover where the driver's FS does.
func (f files) RenameNew(ctx context.Context, from, to string) error {
	m, ok := f.fs.(sandbar.Mover)
	if !ok {
		return f.cannot("rename without replacing", "look first, then rename")
	}
	return f.during(func() error { return m.RenameNew(ctx, from, to) })
}

func (f files) cannot(what, fix string) error {
	return &sandbar.Error{Code: sandbar.Unsupported, Message: "the files of this sandbox cannot do this: " + what, Fix: fix}
}

// heldFile is an open file that holds its sandbox until it is closed. It ends
// with an error beyond the size that may be read: a file can grow after Open.
type heldFile struct {
	sandbar.File
	release func()
	most    int64 // Config.MaxFile
	at      int64 // the offset
}

func (f *heldFile) Close() error {
	defer f.release()
	return f.File.Close()
}

func (f *heldFile) Read(p []byte) (int, error) {
	left := f.most - f.at
	if left <= 0 {
		if n, err := f.File.Read(make([]byte, min(1, len(p)))); n == 0 {
			return 0, err
		}
		return 0, fileTooLarge(f.Info().Name, f.most)
	}
	n, err := f.File.Read(p[:min(int64(len(p)), left)])
	f.at += int64(n)
	return n, err
}

func (f *heldFile) Seek(offset int64, whence int) (int64, error) {
	at, err := f.File.Seek(offset, whence)
	if err != nil {
		return at, err
	}
	if f.at = at; at > f.most {
		return at, fileTooLarge(f.Info().Name, f.most)
	}
	return at, nil
}

// Unwrap lets whoever sends a part of a file use what the driver's file can do
// best. That one has no bound: the part must lie within what Seek has found.
func (f *heldFile) Unwrap() any { return f.File }

// heldWriter is a file being written that holds its sandbox until it is ended.
type heldWriter struct {
	sandbar.FileWriter
	release func()
}

func (w heldWriter) Commit() error {
	defer w.release()
	return w.FileWriter.Commit()
}

func (w heldWriter) Abort() {
	defer w.release()
	w.FileWriter.Abort()
}

// ReadFrom lets io.Copy use what the driver's writer can do best.
func (w heldWriter) ReadFrom(r io.Reader) (int64, error) { return io.Copy(w.FileWriter, r) }
