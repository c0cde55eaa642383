package agent

import (
	"encoding/binary"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// An archive has the files that programs have written, as a stream: archiveMagic, and then records
// in the order of a walk through the tree. A record is its kind and the fields that the kind needs.
// Numbers are little endian; a string has its length in 4 bytes before it.
//
//	enter   name, own; if own: mode, time, attributes: a directory, and the walk goes into it
//	leave   the walk goes back to the parent directory
//	file    name, mode, time, attributes, size, and its data in pieces: offset, bytes; an empty
//	        piece is the end. What is in no piece is zero.
//	again   name, and the path of a file before: another name of that file
//	symlink name, time, text
//	fifo    name, mode, time
//	whiteout name: a file of the lower layer is removed (overlayfs.rst)
//	end     the stream is complete
//
// The reader is the agent of another sandbox, so it trusts nothing in the archive.

const archiveMagic = "sandbar files 1\n"

// The kinds of record.
const (
	recordEnter byte = iota + 1
	recordLeave
	recordFile
	recordAgain
	recordSymlink
	recordFIFO
	recordWhiteout
	recordEnd
)

// Bounds of an archive.
const (
	maxPiece      = 128 << 10 // bytes
	maxAttributes = 64        // of one file
	maxAttribute  = 64 << 10  // bytes of a name or value (xattr(7): XATTR_SIZE_MAX)
	maxNesting    = 20_000    // directories
	savedMode     = 0o7777
)

// The extended attributes that are kept. overlayfs keeps its own data in attributes that begin with
// overlayAttributes. Of these only those of an opaque directory, and a program's own, which
// overlayfs writes with a second such prefix, mean the same in another overlay.
const (
	userAttributes    = "user."
	overlayAttributes = "user.overlay."
	overlayOpaque     = overlayAttributes + "opaque"
	overlayEscaped    = overlayAttributes + "overlay."
)

// keepsAttribute reports whether an extended attribute is saved and restored.
func keepsAttribute(name string) bool {
	if strings.HasPrefix(name, overlayAttributes) {
		return name == overlayOpaque || strings.HasPrefix(name, overlayEscaped)
	}
	return strings.HasPrefix(name, userAttributes)
}

// attribute is an extended attribute.
type attribute struct{ name, value string }

// archiveWriter writes an archive to a pipe.
type archiveWriter struct {
	fd  int
	buf []byte
}

// room flushes the buffer if it has no place for n bytes.
func (w *archiveWriter) room(n int) error {
	if len(w.buf)+n <= cap(w.buf) {
		return nil
	}
	err := writeAll(w.fd, w.buf)
	w.buf = w.buf[:0]
	return err
}

func (w *archiveWriter) u32(n uint32) { w.buf = binary.LittleEndian.AppendUint32(w.buf, n) }
func (w *archiveWriter) u64(n uint64) { w.buf = binary.LittleEndian.AppendUint64(w.buf, n) }

func (w *archiveWriter) str(s string) {
	w.u32(uint32(len(s)))
	w.buf = append(w.buf, s...)
}

// begin begins a record that is at most maxName and some numbers long, and n bytes more.
func (w *archiveWriter) begin(kind byte, name string, n int) error {
	if err := w.room(maxName + 64 + n); err != nil {
		return err
	}
	w.buf = append(w.buf, kind)
	if kind != recordLeave && kind != recordEnd {
		w.str(name)
	}
	return nil
}

func (w *archiveWriter) attributes(list []attribute) error {
	w.u32(uint32(len(list)))
	for _, a := range list {
		if err := w.room(len(a.name) + len(a.value) + 8); err != nil {
			return err
		}
		w.str(a.name)
		w.str(a.value)
	}
	return w.room(64)
}

// piece reads up to n bytes of a file at an offset and writes them as a piece, if there are any.
func (w *archiveWriter) piece(fd int, at int64, n int) (int, error) {
	const head = 8 + 4
	if err := w.room(head + n); err != nil {
		return 0, err
	}
	begin := len(w.buf)
	n, err := unix.Pread(fd, w.buf[begin+head:begin+head+n], at)
	if err != nil || n == 0 {
		return 0, err
	}
	w.u64(uint64(at))
	w.u32(uint32(n))
	w.buf = w.buf[:begin+head+n]
	return n, nil
}

// archiveReader reads an archive from a file. The first error stays.
type archiveReader struct {
	fd   int
	buf  []byte
	rest []byte // of buf, not read yet
	err  error
}

// fill makes n bytes available in rest.
func (r *archiveReader) fill(n int) bool {
	for r.err == nil && len(r.rest) < n {
		r.buf = append(r.buf[:0], r.rest...)
		have, err := unix.Read(r.fd, r.buf[len(r.buf):cap(r.buf)])
		switch {
		case err == unix.EINTR:
			have = 0
		case err != nil:
			r.err = err
			return false
		case have == 0:
			r.err = errArchive // truncated
			return false
		}
		r.buf = r.buf[:len(r.buf)+have]
		r.rest = r.buf
	}
	return r.err == nil
}

// errArchive is the error of a damaged archive.
const errArchive = unix.EBADMSG

func (r *archiveReader) take(n int) []byte {
	if !r.fill(n) {
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *archiveReader) u8() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *archiveReader) u32() uint32 {
	if b := r.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *archiveReader) u64() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// bytes reads a string of at most most bytes. Its memory is valid until the next read.
func (r *archiveReader) bytes(most int) []byte {
	n := r.u32()
	if n > uint32(most) {
		r.fail()
		return nil
	}
	return r.take(int(n))
}

func (r *archiveReader) fail() {
	if r.err == nil {
		r.err = errArchive
	}
}

// name reads the name of an entry.
func (r *archiveReader) name() string {
	name := string(r.bytes(maxName))
	if name == "" || name == "." || name == ".." || strings.IndexByte(name, '/') >= 0 || strings.IndexByte(name, 0) >= 0 {
		r.fail()
	}
	return name
}

func (r *archiveReader) attributes() (list []attribute) {
	n := r.u32()
	if n > maxAttributes {
		r.fail()
	}
	for range n {
		name := string(r.bytes(maxName))
		value := string(r.bytes(maxAttribute))
		if r.err != nil || !keepsAttribute(name) {
			r.fail()
			return nil
		}
		list = append(list, attribute{name, value})
	}
	return list
}

// keep is the tmpfs of MountKeep.
type keep struct {
	dir  int             // a private clone of its mount, without the mounts in it; 0: none
	skip map[string]bool // paths
}

// onSaveFiles starts to write the archive, and answers at its end.
func (a *agent) onSaveFiles(f wire.Frame) error {
	if !a.ready || len(f.FDs) != 1 || len(f.Payload) > 0 || a.keep.dir == 0 {
		closeAll(f.FDs)
		return unix.EPROTO
	}
	go func() {
		err := a.saveFiles(f.FDs[0])
		unix.Close(f.FDs[0])
		if err != nil {
			a.reply(f.ID, wire.FailFile, err, "", nil)
			return
		}
		a.reply(f.ID, wire.OK, nil, "", nil)
	}()
	return nil
}
