package engine

import (
	"context"
	"io"
	"io/fs"
	"strconv"
	"sync"

	"github.com/sandbar-dev/sandbar"
)

// files wraps a driver's FS. It counts calls and open files as activity of their sandbox, and fails
// after the sandbox has ended.
type files struct {
	s  *Sandbox
	fs sandbar.FS
}

// counted runs call as activity of the sandbox.
func (f files) counted(ctx context.Context, verb Verb, call func() error) error {
	release, err := f.s.hold(ctx, verb)
	if err != nil {
		return err
	}
	defer release()
	return f.s.explainGone(call())
}

// recorded is counted, as an action of the caller in ctx.
func (f files) recorded(ctx context.Context, verb Verb, call func() error) error {
	err := f.counted(ctx, verb, call)
	f.s.called(ctx, verb, err)
	return err
}

// explainGone replaces the error of a call that ended because the sandbox was paused.
func (s *Sandbox) explainGone(err error) error {
	if sandbar.CodeOf(err) == sandbar.Gone && s.wasPaused() {
		return isPaused(s.id)
	}
	return err
}

func (f files) Open(ctx context.Context, path string) (_ sandbar.File, err error) {
	defer func() { f.s.called(ctx, DidRead, err) }()
	release, err := f.s.hold(ctx, DidRead)
	if err != nil {
		return nil, err
	}
	file, err := f.fs.Open(ctx, path)
	if err != nil {
		release()
		return nil, err
	}
	held := &heldFile{File: file, s: f.s, release: release, maxSize: f.s.e.cfg.MaxFile}
	if size := file.Info().Size; size < 0 || size > held.maxSize {
		held.Close()
		return nil, fileTooLarge(path, held.maxSize)
	}
	return held, nil
}

// fileTooLarge is the error for a file above the limit. The size includes holes: a sparse file can
// have 8 EiB, and reading it would take centuries.
func fileTooLarge(path string, most int64) error {
	return &sandbar.Error{Code: sandbar.TooLarge, Field: "path",
		Message: "read " + sandbar.Quote(path, 200) + ": the file has more than " + strconv.FormatInt(most, 10) + " bytes, holes included",
		Fix:     "read it inside the sandbox, or have the operator raise max_file"}
}

func (f files) Create(ctx context.Context, path string, opt sandbar.CreateOptions) (_ sandbar.FileWriter, err error) {
	defer func() {
		if err != nil { // otherwise Commit records it
			f.s.called(ctx, DidWrite, err)
		}
	}()
	release, err := f.s.hold(ctx, DidWrite)
	if err != nil {
		return nil, err
	}
	w, err := f.fs.Create(ctx, path, opt)
	if err != nil {
		release()
		return nil, err
	}
	return heldWriter{w, f.s, release, func(err error) { f.s.called(ctx, DidWrite, err) }}, nil
}

func (f files) Stat(ctx context.Context, path string) (info sandbar.FileInfo, err error) {
	err = f.counted(ctx, looks, func() (err error) { info, err = f.fs.Stat(ctx, path); return err })
	return info, err
}

func (f files) ReadDir(ctx context.Context, path, after string, limit int) (infos []sandbar.FileInfo, err error) {
	err = f.counted(ctx, looks, func() (err error) { infos, err = f.fs.ReadDir(ctx, path, after, limit); return err })
	return infos, err
}

func (f files) Mkdir(ctx context.Context, path string, mode fs.FileMode, parents bool) error {
	return f.recorded(ctx, DidMkdir, func() error { return f.fs.Mkdir(ctx, path, mode, parents) })
}

func (f files) Remove(ctx context.Context, path string, recursive bool) error {
	return f.recorded(ctx, DidRemove, func() error { return f.fs.Remove(ctx, path, recursive) })
}

func (f files) Rename(ctx context.Context, from, to string) error {
	return f.recorded(ctx, DidRename, func() error { return f.fs.Rename(ctx, from, to) })
}

func (f files) Chmod(ctx context.Context, path string, mode fs.FileMode, recursive bool) error {
	return f.recorded(ctx, DidChmod, func() error { return f.fs.Chmod(ctx, path, mode, recursive) })
}

// ReadFiles implements sandbar.BatchReader if the driver's FS does. Otherwise: Unsupported.
func (f files) ReadFiles(ctx context.Context, paths []string, max int) (all []sandbar.FileContent, err error) {
	if err := f.s.permit(ctx, DidRead); err != nil {
		return nil, err
	}
	r, ok := f.fs.(sandbar.BatchReader)
	if !ok {
		return nil, f.cannot("read many files at once", "open them one by one")
	}
	err = f.recorded(ctx, DidRead, func() (err error) { all, err = r.ReadFiles(ctx, paths, max); return err })
	return all, err
}

// Chown implements sandbar.Owner if the driver's FS does. Otherwise: Unsupported.
func (f files) Chown(ctx context.Context, path string, uid, gid uint32, recursive bool) error {
	if err := f.s.permit(ctx, DidChmod); err != nil {
		return err
	}
	o, ok := f.fs.(sandbar.Owner)
	if !ok {
		return f.cannot("change the owner of files", "leave it as it is")
	}
	return f.recorded(ctx, DidChmod, func() error { return o.Chown(ctx, path, uid, gid, recursive) })
}

// RenameNew implements sandbar.Mover if the driver's FS does. Otherwise: Unsupported.
func (f files) RenameNew(ctx context.Context, from, to string) error {
	if err := f.s.permit(ctx, DidRename); err != nil {
		return err
	}
	m, ok := f.fs.(sandbar.Mover)
	if !ok {
		return f.cannot("rename without replacing", "look first, then rename")
	}
	return f.recorded(ctx, DidRename, func() error { return m.RenameNew(ctx, from, to) })
}

// Watch implements sandbar.FileWatcher. If the driver's FS does not, the engine compares listings.
// An open watch keeps the sandbox from being idle.
func (f files) Watch(ctx context.Context, path string, recursive bool) (_ sandbar.FileWatch, err error) {
	defer func() { f.s.called(ctx, DidWatch, err) }()
	release, err := f.s.hold(ctx, DidWatch)
	if err != nil {
		return nil, err
	}
	var w sandbar.FileWatch
	if d, ok := f.fs.(sandbar.FileWatcher); ok {
		w, err = d.Watch(ctx, path, recursive)
	} else if release, err = f.s.holdPoll(release); err == nil {
		w, err = pollFiles(ctx, f.fs, path, recursive)
	}
	if err != nil {
		release()
		return nil, f.s.explainGone(err)
	}
	return &heldWatch{FileWatch: w, s: f.s, release: sync.OnceFunc(release)}, nil
}

// maxPolls is the most watches of a sandbox that compare listings.
const maxPolls = 64

// holdPoll counts a watch that compares listings. The returned release calls the given one, too.
func (s *Sandbox) holdPoll(release func()) (func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.polls >= maxPolls {
		return release, &sandbar.Error{Code: sandbar.Exhausted, Message: "sandbox " + string(s.id) + " has " + strconv.Itoa(maxPolls) + " watches, which is the limit",
			Fix: "close other watches"}
	}
	s.polls++
	return func() {
		s.mu.Lock()
		s.polls--
		s.mu.Unlock()
		release()
	}, nil
}

// heldWatch is a watch that keeps its sandbox from being idle until Close.
type heldWatch struct {
	sandbar.FileWatch
	s       *Sandbox
	release func()
}

func (w *heldWatch) Next(ctx context.Context) (sandbar.FileEvent, error) {
	e, err := w.FileWatch.Next(ctx)
	return e, w.s.explainGone(err)
}

func (w *heldWatch) Close() error {
	defer w.release()
	return w.FileWatch.Close()
}

func (f files) cannot(what, fix string) error {
	return &sandbar.Error{Code: sandbar.Unsupported, Message: "the driver's file access cannot " + what, Fix: fix}
}

// heldFile is an open file that keeps its sandbox from being idle until Close. Reads beyond maxSize
// fail, because a file can grow after Open.
type heldFile struct {
	sandbar.File
	s       *Sandbox
	release func()
	maxSize int64 // Config.MaxFile
	at      int64 // the current offset
}

func (f *heldFile) Close() error {
	defer f.release()
	return f.File.Close()
}

func (f *heldFile) Read(p []byte) (int, error) {
	left := f.maxSize - f.at
	if left <= 0 {
		if n, err := f.File.Read(make([]byte, min(1, len(p)))); n == 0 {
			return 0, err
		}
		return 0, fileTooLarge(f.Info().Name, f.maxSize)
	}
	n, err := f.File.Read(p[:min(int64(len(p)), left)])
	f.at += int64(n)
	return n, f.s.explainGone(err)
}

func (f *heldFile) Seek(offset int64, whence int) (int64, error) {
	at, err := f.File.Seek(offset, whence)
	if err != nil {
		return at, err
	}
	if f.at = at; at > f.maxSize {
		return at, fileTooLarge(f.Info().Name, f.maxSize)
	}
	return at, nil
}

// Unwrap returns the driver's file, for callers that can send a part of it faster (sendfile). That
// file has no size limit: the part must lie within the range that Seek has checked.
func (f *heldFile) Unwrap() any { return f.File }

// heldWriter is a file writer that keeps its sandbox from being idle until Commit or Abort.
type heldWriter struct {
	sandbar.FileWriter
	s       *Sandbox
	release func()
	record  func(error) // of Commit
}

func (w heldWriter) Commit() error {
	defer w.release()
	err := w.s.explainGone(w.FileWriter.Commit())
	w.record(err)
	return err
}

func (w heldWriter) Abort() {
	defer w.release()
	w.FileWriter.Abort()
}

// ReadFrom lets io.Copy use ReadFrom of the driver's writer.
func (w heldWriter) ReadFrom(r io.Reader) (int64, error) { return io.Copy(w.FileWriter, r) }
