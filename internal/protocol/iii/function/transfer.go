package function

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"path"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/channel"
)

// inlineCap is the size from which a file's text is not part of the result, in bytes.
const inlineCap = 1 << 20

// writeRequest is a file to write.
type writeRequest struct {
	raw     request
	path    string
	mode    uint32
	parents bool
}

// fsWrite implements sandbox::fs::write.
func (f *Functions) fsWrite(ctx context.Context, data json.RawMessage, ends channel.Ends) (any, error) {
	var id string
	var c content
	var b64 *string
	req, mode := writeRequest{}, "0644"
	var err error
	req.raw, err = decode(data, "WriteRequest", must(text("sandbox_id", &id)), must(text("path", &req.path)),
		text("mode", &mode), boolean("parents", &req.parents), body("content", &c), optional(text, "content_b64", &b64))
	if err != nil {
		return nil, err
	}
	given := c.text != nil || c.ref != nil
	if given == (b64 != nil) {
		return nil, fail(S001, "exactly one of content and content_b64 must be given: content is text or a channel, content_b64 is bytes in base64")
	}
	b, err := f.find(id)
	if err != nil {
		return nil, err
	}
	if c.ref != nil {
		return f.receive(ctx, b, req, mode, *c.ref, ends)
	}
	var bytes []byte
	if c.text != nil {
		bytes = []byte(*c.text)
	} else if bytes, err = parseBase64("content_b64", *b64); err != nil {
		return nil, err
	}
	w, err := f.beginWrite(ctx, b, req, mode)
	if err != nil {
		return nil, err
	}
	if err := writeAll(w, req.path, bytes); err != nil {
		return nil, err
	}
	return written(req.path, int64(len(bytes))), nil
}

func written(path string, n int64) any {
	return map[string]any{"bytes_written": n, "path": path}
}

// beginWrite checks the mode and opens a file for writing.
func (f *Functions) beginWrite(ctx context.Context, b *sandboxEntry, req writeRequest, mode string) (sandbar.FileWriter, error) {
	var err error
	if req.mode, err = parseMode(mode); err != nil {
		return nil, modeFailure(err, req.raw, mode)
	}
	return f.openWrite(ctx, b, req)
}

// openWrite opens a file for writing.
func (f *Functions) openWrite(ctx context.Context, b *sandboxEntry, req writeRequest) (sandbar.FileWriter, error) {
	if req.path == "" {
		return nil, fail(S211, "path not found: ")
	}
	w, err := b.sandbox.FS().Create(ctx, absolute(req.path), sandbar.CreateOptions{Mode: fileMode(req.mode), Parents: req.parents})
	switch {
	case err == nil:
		return w, nil
	case !req.parents && errors.Is(err, syscall.ENOTDIR):
		return nil, noParent(req).with(nil, "something above the file is no directory")
	case !req.parents && (errors.Is(err, syscall.ENOENT) || sandbar.CodeOf(err) == sandbar.NotFound):
		if path.Dir(path.Clean(absolute(req.path))) == exampleDir { // created as if it had existed
			req.parents = true
			return f.openWrite(ctx, b, req)
		}
		return nil, missingParent(req)
	}
	return nil, fileFailure(err, req.path, "path")
}

// exampleDir is the directory of the examples in the protocol's text, which write to it without
// creating it. The first write creates it.
const exampleDir = "/home/app"

func noParent(req writeRequest) *failure {
	return &failure{code: S211, message: "parent directory not found: parent not found: " + clip(req.path)}
}

// missingParent returns S211 with a fix that creates the parent. A stream cannot be repeated, so
// the fix is then only the field to add.
func missingParent(req writeRequest) error {
	change := map[string]any{"parents": true}
	if kindOf(req.raw["content"]) == '{' || req.raw == nil {
		return noParent(req).with(change, "merge `fix` into the original request and resubmit")
	}
	return noParent(req).with(req.raw.fixed(change), "merge `fix` into the original request and resubmit")
}

// writeAll writes a file from memory.
func writeAll(w sandbar.FileWriter, path string, b []byte) error {
	defer w.Abort()
	if _, err := w.Write(b); err != nil {
		return fileFailure(err, path, "path")
	}
	if err := w.Commit(); err != nil {
		return fileFailure(err, path, "path")
	}
	return nil
}

// receive writes a file from a channel. If the file cannot be written it still consumes the stream:
// clients do not handle a reader that leaves.
func (f *Functions) receive(ctx context.Context, b *sandboxEntry, req writeRequest, mode string, ref channel.Ref, ends channel.Ends) (any, error) {
	r, err := ends.Reader(ctx, ref)
	if err != nil {
		return nil, fail(S218, "%s", err)
	}
	defer r.Close()
	defer b.sandbox.Hold()()
	w, failed := f.beginWrite(ctx, b, req, mode)
	if failed == nil {
		defer w.Abort()
	}
	var size int64
	for {
		piece, err := f.next(ctx, r)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			if failed != nil {
				return nil, failed
			}
			return nil, aborted(err, req, size, f.opt.StreamGap)
		}
		if failed != nil {
			continue
		}
		if _, err := w.Write(piece); err != nil {
			failed = fileFailure(err, req.path, "path")
		}
		size += int64(len(piece))
	}
	if failed != nil {
		return nil, failed
	}
	if err := w.Commit(); err != nil {
		return nil, fileFailure(err, req.path, "path")
	}
	return written(req.path, size), nil
}

var errGap = errors.New("no data for too long")

// next waits for the next bytes of a stream, at most StreamGap.
func (f *Functions) next(ctx context.Context, r channel.Reader) ([]byte, error) {
	limited, cancel := context.WithTimeoutCause(ctx, f.opt.StreamGap, errGap)
	defer cancel()
	b, err := r.Next(limited)
	if err != nil && context.Cause(limited) == errGap {
		err = errGap
	}
	return b, err
}

// aborted returns S218. A stream without any data may have been empty: known clients do not connect
// then.
func aborted(err error, req writeRequest, size int64, gap time.Duration) error {
	if !errors.Is(err, errGap) {
		return fail(S218, "%s", err)
	}
	e := fail(S218, "no chunks from caller for %ds — channel stalled or aborted", int(gap.Seconds()))
	if size == 0 {
		return e.with(req.raw.fixed(map[string]any{"content": ""}), "if the file is to be empty, this call makes it")
	}
	return e
}

// fsRead implements sandbox::fs::read.
func (f *Functions) fsRead(ctx context.Context, data json.RawMessage, ends channel.Ends) (any, error) {
	var id, path string
	if _, err := decode(data, "ReadRequest", must(text("sandbox_id", &id)), must(text("path", &path))); err != nil {
		return nil, err
	}
	b, err := f.find(id)
	if err != nil {
		return nil, err
	}
	if path == "" {
		return nil, fail(S211, "path not found: ")
	}
	file, err := b.sandbox.FS().Open(ctx, absolute(path))
	switch {
	case errors.Is(err, syscall.EISDIR):
		return nil, fail(S212, "is a directory: %s", clip(path))
	case err != nil:
		return nil, fileFailure(err, path, "path")
	}
	info := file.Info()
	src, text, held, err := split(file, b)
	if err != nil {
		file.Close()
		return nil, fileFailure(err, path, "path")
	}
	ref, err := ends.Offer(ctx, src, held)
	if err != nil {
		return nil, fail(S216, "shell client error: no channel could be made: %s", err)
	}
	result := map[string]any{"content": ref, "size": info.Size, "mode": showMode(info.Mode), "mtime": info.ModTime.Unix()}
	if text != nil {
		result["body"] = *text
	}
	return result, nil
}

// split reads the first bytes of a file. It returns them as text if they are the whole file and
// valid text, and a source of all bytes. held is the memory of the source.
func split(file sandbar.File, b *sandboxEntry) (src io.ReadCloser, text *string, held int64, err error) {
	if file.Info().Size >= inlineCap {
		return newSandboxFile(file, file, b), nil, 0, nil
	}
	head, err := io.ReadAll(io.LimitReader(file, inlineCap))
	if err != nil {
		return nil, nil, 0, err
	}
	if len(head) == inlineCap { // it has grown
		return newSandboxFile(io.MultiReader(bytes.NewReader(head), file), file, b), nil, inlineCap, nil
	}
	file.Close()
	if utf8.Valid(head) {
		s := string(head)
		text = &s
	}
	return io.NopCloser(bytes.NewReader(head)), text, int64(len(head)), nil
}

// sandboxFile is an open file of a sandbox in a channel without a reader yet. It is closed with the
// sandbox, because an open file would keep the sandbox's memory.
type sandboxFile struct {
	io.Reader
	close func()
}

func newSandboxFile(r io.Reader, file sandbar.File, b *sandboxEntry) sandboxFile {
	closed := make(chan struct{})
	l := sandboxFile{r, sync.OnceFunc(func() {
		close(closed)
		file.Close()
	})}
	go func() {
		select {
		case <-b.sandbox.Done():
			l.close()
		case <-closed:
		}
	}()
	return l
}

// Close implements io.Closer.
func (l sandboxFile) Close() error {
	l.close()
	return nil
}
