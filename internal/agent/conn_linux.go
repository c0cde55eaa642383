package agent

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// conn is the agent's end of the connection. One goroutine reads, blocking; any goroutine may
// write.
type conn struct {
	in, out   int  // descriptors, of one socket or of two pipes
	passesFDs bool // SCM_RIGHTS works
	// wholeMachine: the connection is the port of a machine.
	wholeMachine bool

	mu     sync.Mutex // guards writing
	buffer []byte     // the encoded frame being written; kept to reuse its memory
	least  uint32     // frames with a smaller id are for a former host, and are dropped

	transfers sync.Pool // of *transfer
}

// openConn returns the connection of a mode.
func openConn(mode string, port uint16) (*conn, error) {
	switch mode {
	case ModeStdio:
		return takeStdio()
	case ModeDial:
		fd, err := dialHost(port)
		return &conn{in: fd, out: fd}, err
	}
	if mode == ModeMachine {
		return &conn{in: MachineSocketFD, out: MachineSocketFD, wholeMachine: true}, nil
	}
	return &conn{in: SocketFD, out: SocketFD, passesFDs: mode == ModeSocket}, nil
}

// takeStdio moves standard input and output to other descriptors, as the connection, and replaces
// them with /dev/null, so that no stray write can reach it. Messages to the process that started
// the agent go to standard error.
func takeStdio() (*conn, error) {
	in, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, SocketFD)
	if err != nil {
		return nil, err
	}
	out, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, SocketFD)
	if err != nil {
		return nil, err
	}
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(null)
	for _, fd := range []int{0, 1} {
		if err := unix.Dup3(null, fd, 0); err != nil {
			return nil, err
		}
	}
	return &conn{in: in, out: out}, nil
}

// Bounds of dialHost: its time, and the pause between two attempts.
const (
	dialBound = 30 * time.Second
	dialPause = 10 * time.Millisecond
)

// dialHost connects to the port of a relay, and waits until it listens.
func dialHost(port uint16) (int, error) {
	for end := time.Now().Add(dialBound); ; time.Sleep(dialPause) {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return -1, err
		}
		err = unix.Connect(fd, &unix.SockaddrInet4{Port: int(port), Addr: [4]byte{127, 0, 0, 1}})
		if err == nil {
			// frames are small, and each waits for none before it
			return fd, unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		}
		unix.Close(fd)
		if err != unix.ECONNREFUSED || time.Now().After(end) {
			return -1, err
		}
	}
}

// firstRequestTimeout bounds the wait of an agent in ModeStdio for the host's first request. The
// host sends it at once. A container engine that crashes while it starts a container may leave the
// agent running on an input that nobody has opened, which never reports its end.
const firstRequestTimeout = time.Minute

// awaitReadable waits until data or the connection's end can be read, at most bound.
func (l *conn) awaitReadable(bound time.Duration) error {
	fds := []unix.PollFd{{Fd: int32(l.in), Events: unix.POLLIN}}
	for end := time.Now().Add(bound); ; {
		left := time.Until(end)
		if left <= 0 {
			return unix.ETIMEDOUT
		}
		n, err := unix.Poll(fds, int(left.Milliseconds())+1)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return err
		case n > 0:
			return nil
		}
	}
}

// read reads the next frame.
func (l *conn) read() (wire.Frame, error) {
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
	f := wire.Frame{Type: h.Type, ID: h.ID, FDs: fds}
	if h.Type == wire.TypeFS {
		f.Payload = l.newTransfer(int(h.Length))
	}
	if f.Payload == nil {
		f.Payload = make([]byte, h.Length)
	}
	if err := l.readFull(f.Payload); err != nil {
		closeAll(fds)
		return wire.Frame{}, err
	}
	return f, nil
}

// readHeader reads a header and the descriptors that are attached to its first byte.
func (l *conn) readHeader(b []byte) ([]int, error) {
	if !l.passesFDs {
		return nil, l.readFull(b)
	}
	oob := make([]byte, unix.CmsgSpace(4*wire.MaxFDs))
	for {
		n, oobn, flags, _, err := unix.Recvmsg(l.in, b, oob, unix.MSG_CMSG_CLOEXEC)
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

func (l *conn) readFull(b []byte) error {
	for len(b) > 0 {
		n, err := unix.Read(l.in, b)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			if err := awaitPort(l.in, unix.POLLIN); err != nil {
				return err
			}
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

// write writes one frame. It is atomic towards other writers.
func (l *conn) write(f wire.Frame) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writeLocked(f)
}

// writeLocked is write for a caller that holds mu.
func (l *conn) writeLocked(f wire.Frame) error {
	if f.ID < l.least {
		return nil
	}
	l.buffer = wire.AppendHeader(l.buffer[:0], wire.Header{
		Length: uint32(len(f.Payload)), Type: f.Type, FDs: uint8(len(f.FDs)), ID: f.ID})
	if len(f.Payload) > l.maxCopied() && len(f.FDs) == 0 {
		if err := writeAll(l.out, l.buffer); err != nil {
			return err
		}
		return writeAll(l.out, f.Payload)
	}
	l.buffer = append(l.buffer, f.Payload...)
	b := l.buffer
	if cap(l.buffer) > 64<<10 {
		l.buffer = nil // release the memory: most sandboxes are idle
	}
	if len(f.FDs) > 0 {
		n, err := l.sendRights(b, f.FDs)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return writeAll(l.out, b)
}

// maxCopied is the largest payload, in bytes, that is copied behind its header so that one write(2)
// sends both. A write to the port of a machine costs far more than a copy.
func (l *conn) maxCopied() int {
	if l.wholeMachine {
		return 64 << 10
	}
	return 16 << 10
}

// writeAll writes all of b.
func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		switch err {
		case nil:
			b = b[n:]
		case unix.EINTR:
		case unix.EAGAIN:
			if err := awaitPort(fd, unix.POLLOUT); err != nil {
				return err
			}
		default:
			return err
		}
	}
	return nil
}

// awaitPort waits until the port of a machine is ready. Only that connection is in non-blocking
// mode; see package boot.
func awaitPort(fd int, events int16) error {
	_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: events}}, -1)
	if err == unix.EINTR {
		return nil
	}
	return err
}

func (l *conn) sendRights(b []byte, fds []int) (int, error) {
	rights := unix.UnixRights(fds...)
	for {
		n, err := unix.SendmsgN(l.out, b, rights, nil, unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			return n, err
		}
	}
}
