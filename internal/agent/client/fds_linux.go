package client

import (
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// canPass reports whether descriptors can travel over conn.
func canPass(conn net.Conn) bool {
	_, ok := conn.(*net.UnixConn)
	return ok
}

// readWithFDs fills b and returns the descriptors attached to its first byte.
func readWithFDs(conn net.Conn, b []byte) ([]int, error) {
	u, ok := conn.(*net.UnixConn)
	if !ok {
		_, err := io.ReadFull(conn, b)
		return nil, err
	}
	oob := make([]byte, unix.CmsgSpace(4*wire.MaxFDs))
	n, oobn, flags, _, err := u.ReadMsgUnix(b, oob)
	fds := parseRights(oob[:max(oobn, 0)])
	switch {
	case err != nil:
		return fds, err
	case n == 0:
		return fds, io.EOF
	case flags&unix.MSG_CTRUNC != 0:
		return fds, errViolation
	}
	_, err = io.ReadFull(conn, b[n:])
	return fds, err
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

// writeWithFDs writes b with descriptors attached to its first byte.
func writeWithFDs(conn net.Conn, b []byte, fds []int) error {
	if len(fds) > 0 {
		n, _, err := conn.(*net.UnixConn).WriteMsgUnix(b, unix.UnixRights(fds...), nil)
		if err != nil {
			return err
		}
		if b = b[n:]; len(b) == 0 {
			return nil // even a write of nothing fails if the other side has answered and gone
		}
	}
	_, err := conn.Write(b)
	return err
}

func closeFDs(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// pipes are the three connections of a program, made by the host.
type pipes struct {
	in       *os.File
	out, err *pipeReader
	theirs   []int
}

// makePipes makes the pipes that stdio needs; what it does not need is
// /dev/null. own, if set, is called on each end that the program gets.
func makePipes(stdin, stdout, stderr bool, own func(fd int)) (p *pipes, err error) {
	p = &pipes{}
	defer func() {
		if err != nil {
			p.close()
			err = sandbar.Errorf(sandbar.Exhausted, "making pipes for a program: %w", err)
		}
	}()
	for i, wanted := range [...]bool{stdin, stdout, stderr} {
		ours, err := p.add(i == 0, wanted)
		if err != nil {
			return p, err
		}
		if own != nil && wanted {
			own(p.theirs[i])
		}
		switch {
		case !wanted:
		case i == 0:
			p.in = ours
		case i == 1:
			p.out = &pipeReader{f: ours}
		default:
			p.err = &pipeReader{f: ours}
		}
	}
	return p, nil
}

// add makes the next descriptor of the program and returns the other end.
func (p *pipes) add(input, wanted bool) (*os.File, error) {
	if !wanted {
		fd, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err == nil {
			p.theirs = append(p.theirs, fd)
		}
		return nil, err
	}
	var fd [2]int
	if err := unix.Pipe2(fd[:], unix.O_CLOEXEC); err != nil {
		return nil, err
	}
	ours, theirs := fd[0], fd[1]
	if input {
		ours, theirs = fd[1], fd[0]
	}
	p.theirs = append(p.theirs, theirs)
	// Ours only: the program's end is another open file and stays blocking.
	if err := unix.SetNonblock(ours, true); err != nil {
		unix.Close(ours)
		return nil, err
	}
	return os.NewFile(uintptr(ours), "pipe"), nil
}

// giveTo makes a descriptor's file a user's. Failure only takes a convenience
// from the program, so it is not one.
func giveTo(fd, uid, gid int) { _ = unix.Fchown(fd, uid, gid) }

func (p *pipes) closeTheirs() {
	closeFDs(p.theirs)
	p.theirs = nil
}

func (p *pipes) close() {
	p.closeTheirs()
	if p.in != nil {
		p.in.Close()
	}
	if p.out != nil {
		p.out.Close()
	}
	if p.err != nil {
		p.err.Close()
	}
}

// pipeReader reads a program's output. After finish it delivers what the pipe
// holds at that moment and then ends, whoever still has the other end.
type pipeReader struct {
	f     *os.File
	last  bool
	limit int // bytes still to deliver once last is set
}

func (r *pipeReader) Read(b []byte) (int, error) {
	if !r.last {
		n, err := r.f.Read(b)
		if n > 0 || !os.IsTimeout(err) {
			return n, err
		}
		r.last = true
		r.limit = r.held()
	}
	return r.readHeld(b)
}

// held is how many bytes the pipe holds.
func (r *pipeReader) held() (n int) {
	c, err := r.f.SyscallConn()
	if err != nil {
		return 0
	}
	c.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return n
}

// readHeld reads without waiting, past the deadline that ended the waiting.
func (r *pipeReader) readHeld(b []byte) (n int, err error) {
	if len(b) > r.limit {
		b = b[:r.limit]
	}
	if len(b) == 0 {
		return 0, io.EOF
	}
	c, err := r.f.SyscallConn()
	if err != nil {
		return 0, err
	}
	if cerr := c.Control(func(fd uintptr) { n, err = unix.Read(int(fd), b) }); cerr != nil {
		return 0, cerr
	}
	if err != nil || n <= 0 {
		return 0, io.EOF
	}
	r.limit -= n
	return n, nil
}

// finish ends the waiting for more.
func (r *pipeReader) finish() { r.f.SetReadDeadline(time.Unix(1, 0)) }

// Close closes the pipe; the program then gets EPIPE.
func (r *pipeReader) Close() error { return r.f.Close() }

// asFile checks that a descriptor from the agent is a regular file and wraps it.
func asFile(fd int, name string) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		unix.Close(fd)
		return nil, errViolation
	}
	return os.NewFile(uintptr(fd), name), nil
}

// asConn checks that a descriptor from the agent is a stream socket and wraps it.
func asConn(fd int) (net.Conn, error) {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_STREAM {
		unix.Close(fd)
		return nil, errViolation
	}
	f := os.NewFile(uintptr(fd), "port")
	defer f.Close() // FileConn has its own copy
	return net.FileConn(f)
}
