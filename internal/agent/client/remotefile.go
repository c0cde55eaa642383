package client

import (
	"context"
	"io"
	"os"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// readAhead is the number of bytes that remoteFile asks for at once. While the caller uses them,
// the agent reads the next.
const readAhead = 256 << 10

// remoteFile is a file that the agent reads for the host.
type remoteFile struct {
	f      files
	handle uint32
	info   sandbar.FileInfo
	offset int64
	closed bool

	ready []byte // what the file has at offset
	next  *call  // the request for what follows ready; nil if there is none
}

func (r *remoteFile) Info() sandbar.FileInfo { return r.info }

func (r *remoteFile) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if len(r.ready) == 0 {
		if err := r.fetch(); err != nil {
			return 0, err
		}
	}
	n := copy(b, r.ready)
	r.ready = r.ready[n:]
	r.offset += int64(n)
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// fetch waits for the bytes at offset. After a full answer it asks for the next ones.
func (r *remoteFile) fetch() error {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	if r.next == nil {
		if err := r.ask(ctx, r.offset); err != nil {
			return err
		}
	}
	c := r.next
	r.next = nil
	resp, err := r.f.sandbox.answer(ctx, c)
	switch {
	case err != nil && ctx.Err() != nil:
		r.f.sandbox.conn.Close()
		return err
	case err != nil:
		return err
	case resp.Failure != wire.OK:
		return fileError("read", r.info.Name, resp.Errno)
	case len(resp.Data) > readAhead:
		return r.f.sandbox.violated("read " + sandbar.Quote(r.info.Name, 200))
	}
	r.ready = resp.Data
	if len(r.ready) == readAhead {
		_ = r.ask(ctx, r.offset+readAhead) // after an error the next fetch asks
	}
	return nil
}

// ask sends the request for the bytes at an offset.
func (r *remoteFile) ask(ctx context.Context, offset int64) error {
	c := &call{}
	read := &wire.FSRequest{Op: wire.FSRead, Handle: r.handle, Offset: uint64(offset), Size: readAhead}
	err := r.f.sandbox.ask(ctx, wire.TypeFS, read.Append(nil), nil, c)
	if err == nil {
		r.next = c
	}
	return err
}

// drop forgets all bytes that the caller has not read.
func (r *remoteFile) drop() {
	r.ready = nil
	if r.next != nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, _ = r.f.sandbox.abandon(ctx, r.next)
		r.next = nil
	}
}

func (r *remoteFile) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.offset
	case io.SeekEnd:
		offset += r.info.Size
	}
	if offset < 0 {
		return 0, &sandbar.Error{Code: sandbar.Invalid, Field: "offset", Message: "seek to before the start of the file"}
	}
	r.drop()
	r.offset = offset
	return offset, nil
}

func (r *remoteFile) Close() error {
	if r.closed {
		return os.ErrClosed
	}
	r.closed = true
	r.drop()
	_, err := r.f.doWithTimeout("close", &wire.FSRequest{Op: wire.FSClose, Handle: r.handle})
	return err
}
