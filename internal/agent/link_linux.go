package agent

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// link is the agent's end of the connection: blocking reads from one
// goroutine, writes from many.
type link struct {
	fd     int
	passes bool // descriptors can be passed

	mu  sync.Mutex // guards writing
	out []byte     // the frame being written, kept for its memory
}

// read returns the next frame.
func (l *link) read() (wire.Frame, error) {
	var head [wire.HeaderSize]byte
	fds, err := l.readHeader(head[:])
	if err != nil {
		closeAll(fds)
		return wire.Frame{}, err
	}
	h, err := wire.ParseHeader(head[:])
	if err == nil && int(h.FDs) != len(fds) {
		err = unix.EPROTO
	}
	if err != nil {
		closeAll(fds)
		return wire.Frame{}, err
	}
	f := wire.Frame{Type: h.Type, ID: h.ID, FDs: fds, Payload: make([]byte, h.Length)}
	if err := l.readFull(f.Payload); err != nil {
		closeAll(fds)
		return wire.Frame{}, err
	}
	return f, nil
}

// readHeader reads a header and the descriptors attached to its first byte.
func (l *link) readHeader(b []byte) ([]int, error) {
	if !l.passes {
		return nil, l.readFull(b)
	}
	oob := make([]byte, unix.CmsgSpace(4*wire.MaxFDs))
	for {
		n, oobn, flags, _, err := unix.Recvmsg(l.fd, b, oob, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		fds := parseRights(oob[:oobn])
		switch {
		case n == 0:
			return fds, unix.ECONNRESET
		case flags&unix.MSG_CTRUNC != 0:
			return fds, unix.EPROTO
		}
		return fds, l.readFull(b[n:])
	}
}

func parseRights(oob []byte) (fds []int) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range msgs {
		if got, err := unix.ParseUnixRights(&msgs[i]); err == nil {
			fds = append(fds, got...)
		}
	}
	return fds
}

func (l *link) readFull(b []byte) error {
	for len(b) > 0 {
		n, err := unix.Read(l.fd, b)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return err
		case n == 0:
			return unix.ECONNRESET
		default:
			b = b[n:]
		}
	}
	return nil
}

// write sends one frame.
func (l *link) write(f wire.Frame) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out = wire.AppendHeader(l.out[:0], wire.Header{
		Length: uint32(len(f.Payload)), Type: f.Type, FDs: uint8(len(f.FDs)), ID: f.ID})
	if len(f.Payload) > maxCopied && len(f.FDs) == 0 {
		if err := l.writeFull(l.out); err != nil {
			return err
		}
		return l.writeFull(f.Payload)
	}
	l.out = append(l.out, f.Payload...)
	b := l.out
	if cap(l.out) > 64<<10 {
		l.out = nil // do not keep a large frame's memory in an idle sandbox
	}
	if len(f.FDs) > 0 {
		n, err := l.sendRights(b, f.FDs)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return l.writeFull(b)
}

// maxCopied is how large a payload is joined to its header, in bytes, so that
// both are written at once.
const maxCopied = 16 << 10

func (l *link) writeFull(b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(l.fd, b)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (l *link) sendRights(b []byte, fds []int) (int, error) {
	rights := unix.UnixRights(fds...)
	for {
		n, err := unix.SendmsgN(l.fd, b, rights, nil, unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			return n, err
		}
	}
}
