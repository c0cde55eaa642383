package client

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// canPass reports whether conn can carry descriptors.
func canPass(conn net.Conn) bool {
	_, ok := conn.(*net.UnixConn)
	return ok
}

// readWithFDs fills b and returns the descriptors that are attached to its first byte.
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
			return nil // even an empty write fails if the other side has answered and closed
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

// pipes are the three streams of a program, as the host creates them.
type pipes struct {
	in       *os.File
	out, err *pipeReader
	theirs   []int
}

// makePipes creates the wanted pipes and opens /dev/null for the others. own, if not nil, is called
// on each pipe end of the program.
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

// add creates the program's next descriptor and returns the host's end.
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
	// The host's end only: the program's end is another open file description and stays blocking.
	if err := unix.SetNonblock(ours, true); err != nil {
		unix.Close(ours)
		return nil, err
	}
	return os.NewFile(uintptr(ours), "pipe"), nil
}

// chownPipe changes the owner of a pipe, best effort: without it the program only cannot reopen its
// pipe by name.
func chownPipe(fd, uid, gid int) { _ = unix.Fchown(fd, uid, gid) }

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

// pipeReader reads a program's output. After finish it delivers the bytes in the pipe at that
// moment and then returns EOF, even if a process still holds the write end.
type pipeReader struct {
	f     *os.File
	last  bool
	limit int // bytes to deliver once last is set
}

func (r *pipeReader) Read(b []byte) (int, error) {
	if !r.last {
		n, err := r.f.Read(b)
		if n > 0 || !os.IsTimeout(err) {
			return n, err
		}
		r.last = true
		r.limit = r.buffered()
	}
	return r.readBuffered(b)
}

// buffered returns the number of bytes in the pipe (FIONREAD, pipe(7)).
func (r *pipeReader) buffered() (n int) {
	c, err := r.f.SyscallConn()
	if err != nil {
		return 0
	}
	c.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return n
}

// readBuffered reads without blocking, past the read deadline that finish has set.
func (r *pipeReader) readBuffered(b []byte) (n int, err error) {
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

// grow enlarges the pipe to size bytes and reports whether that succeeded. The kernel bounds all
// pipes of an unprivileged user together (pipe(7), pipe-user-pages-soft).
func (r *pipeReader) grow(size int) bool {
	c, err := r.f.SyscallConn()
	if err != nil {
		return false
	}
	got := 0
	c.Control(func(fd uintptr) { got, err = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, size) })
	return err == nil && got >= size
}

// finish ends the wait for further bytes.
func (r *pipeReader) finish() { r.f.SetReadDeadline(time.Unix(1, 0)) }

// Close closes the pipe; the program then gets EPIPE.
func (r *pipeReader) Close() error { return r.f.Close() }

// asFile checks that a descriptor from the agent is a regular file, open for reading or writing,
// and wraps it. It refuses files of procfs, sysfs and cgroups, where the kernel could check the
// host's rights instead of the agent's.
func asFile(fd int, name string, write bool) (*os.File, error) {
	if !regular(fd, write) {
		unix.Close(fd)
		return nil, errViolation
	}
	return os.NewFile(uintptr(fd), name), nil
}

func regular(fd int, write bool) bool {
	var st unix.Stat_t
	var fs unix.Statfs_t
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_PATH != 0 || unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || unix.Fstatfs(fd, &fs) != nil {
		return false
	}
	mode := flags & unix.O_ACCMODE
	switch {
	case fs.Type == unix.PROC_SUPER_MAGIC:
		return false
	case !write:
		return mode != unix.O_WRONLY
	case fs.Type == unix.SYSFS_MAGIC || fs.Type == unix.CGROUP_SUPER_MAGIC || fs.Type == unix.CGROUP2_SUPER_MAGIC:
		return false
	}
	return mode != unix.O_RDONLY
}

// isTun reports whether a descriptor is open on /dev/net/tun.
func isTun(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(10, 200)
}

// isAnonymous reports whether a descriptor is of an anonymous inode, as that of a Landlock ruleset
// is. The kernel checks the kind on use.
func isAnonymous(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == 0
}

// asConn checks that a descriptor from the agent is a connected TCP socket and wraps it.
func asConn(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "port")
	defer f.Close() // FileConn duplicates the descriptor
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil || domain != unix.AF_INET && domain != unix.AF_INET6 {
		return nil, errViolation
	}
	protocol, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	listens, lerr := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil || lerr != nil || protocol != unix.IPPROTO_TCP || listens != 0 {
		return nil, errViolation
	}
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		conn.Close()
		return nil, errViolation
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &portConn{Conn: tcp, tcp: tcp, raw: raw}, nil
}

// portConn is a TCP connection whose open file description the agent shares. The agent can clear
// O_NONBLOCK at any time, so every call passes MSG_DONTWAIT: a thread that blocks in the kernel
// would ignore deadlines and Close.
type portConn struct {
	net.Conn // methods that move no bytes
	tcp      *net.TCPConn
	raw      syscall.RawConn
}

func (p *portConn) Read(b []byte) (n int, err error) {
	if len(b) == 0 {
		return 0, nil
	}
	return p.receive(p.raw, func() []byte { return b }, func() {})
}

// receive reads from a socket, after waiting for it to become readable. It calls take for a buffer
// only then, and giveBack if the socket turns out to be empty.
func (p *portConn) receive(raw syscall.RawConn, take func() []byte, giveBack func()) (n int, err error) {
	if rerr := raw.Read(func(fd uintptr) bool {
		b := take()
		n, err = retryEINTR(func() (int, error) {
			n, _, err := unix.Recvfrom(int(fd), b, unix.MSG_DONTWAIT)
			return n, err
		})
		if err == unix.EAGAIN {
			giveBack()
			return false
		}
		return true
	}); rerr != nil {
		return 0, rerr
	}
	if err != nil {
		return 0, p.failed("read", err)
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (p *portConn) Write(b []byte) (n int, err error) {
	for n < len(b) {
		var k int
		if werr := p.raw.Write(func(fd uintptr) bool {
			k, err = retryEINTR(func() (int, error) {
				return unix.SendmsgN(int(fd), b[n:], nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
			})
			return err != unix.EAGAIN
		}); werr != nil {
			return n, werr
		}
		if err != nil {
			return n, p.failed("write", err)
		}
		n += k
	}
	return n, nil
}

// WriteTo copies from the port to w until the end.
func (p *portConn) WriteTo(w io.Writer) (int64, error) { return p.transfer(w, p.raw) }

// ReadFrom copies from r to the port until the end.
func (p *portConn) ReadFrom(r io.Reader) (int64, error) {
	if c, ok := r.(*net.TCPConn); ok {
		raw, err := c.SyscallConn()
		if err != nil {
			return 0, err
		}
		return p.transfer(struct{ io.Writer }{p}, raw)
	}
	return io.Copy(struct{ io.Writer }{p}, struct{ io.Reader }{r})
}

// largeTransfer and smallTransfer are buffer sizes in bytes. splice(2) is not possible: only
// O_NONBLOCK, which the agent can clear, keeps it from blocking. With the 32 KiB of io.Copy the
// proxy took 0.4 s more CPU time per GiB than with splice, with 256 KiB 0.2 s (two CPUs).
const (
	largeTransfer = 1 << 20
	smallTransfer = 32 << 10
)

// largeTransfers bounds the large buffers of all transfers to 32 MiB. A transfer beyond that uses a
// small buffer, because a client that does not read keeps its buffer.
var (
	largeTransfers = make(chan struct{}, 32)
	largeBuffers   = sync.Pool{New: func() any { return new([largeTransfer]byte) }}
)

func takeBuffer() []byte {
	select {
	case largeTransfers <- struct{}{}:
		return largeBuffers.Get().(*[largeTransfer]byte)[:]
	default:
		return make([]byte, smallTransfer)
	}
}

func giveBack(b []byte) {
	if len(b) == largeTransfer {
		largeBuffers.Put((*[largeTransfer]byte)(b))
		<-largeTransfers
	}
}

// transfer copies from a socket to w. An idle connection holds no buffer.
func (p *portConn) transfer(w io.Writer, from syscall.RawConn) (total int64, err error) {
	for {
		var buf []byte
		n, err := p.receive(from, func() []byte {
			buf = takeBuffer()
			return buf
		}, func() {
			giveBack(buf)
			buf = nil
		})
		if n > 0 {
			n, err = w.Write(buf[:n])
			total += int64(n)
		}
		giveBack(buf)
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// retryEINTR repeats a call that a signal has interrupted.
func retryEINTR(f func() (int, error)) (n int, err error) {
	for {
		if n, err = f(); err != unix.EINTR {
			return n, err
		}
	}
}

func (p *portConn) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: p.LocalAddr(), Addr: p.RemoteAddr(), Err: os.NewSyscallError(op, err)}
}

// CloseWrite half-closes the connection.
func (p *portConn) CloseWrite() error { return p.tcp.CloseWrite() }

// Close closes the connection. The agent can set SO_LINGER, which would make close(2) block, so it
// is reset first.
func (p *portConn) Close() error {
	_ = p.tcp.SetLinger(-1) // an error of a closed connection is returned below
	return p.tcp.Close()
}
