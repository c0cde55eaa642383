package wire

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Conn is one end of the connection. Send may be called concurrently.
type Conn struct {
	socket *net.UnixConn

	mu sync.Mutex // guards sending
}

// sendTimeout bounds the time in which the other side must accept a frame.
const sendTimeout = 10 * time.Second

// Pair creates a connection and returns one end, and the file of the other end.
func Pair() (*Conn, *os.File, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	theirs := os.NewFile(uintptr(pair[1]), "network")
	ours, err := NewConn(os.NewFile(uintptr(pair[0]), "network"))
	if err != nil {
		theirs.Close()
	}
	return ours, theirs, err
}

// NewConn takes ownership of the file of an end.
func NewConn(file *os.File) (*Conn, error) {
	defer file.Close()
	c, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errors.New("not a UNIX socket")
	}
	return &Conn{socket: u}, nil
}

// Close ends the connection.
func (c *Conn) Close() error { return c.socket.Close() }

// Send sends a frame with descriptors, which the caller keeps. It fails if the other side does not
// accept the frame within 10 s.
func (c *Conn) Send(f Frame, fds ...int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.socket.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	_, _, err := c.socket.WriteMsgUnix(f.Append(nil), rights, nil)
	return err
}

// attached is the number of descriptors of an Attach frame.
const attached = 2

// Receive reads the next frame of the daemon. An Attach frame has two descriptors, the device and
// the ledger, which the caller then owns.
func (c *Conn) Receive() (Frame, []int, error) {
	var buf [MaxFrame + 1]byte
	oob := make([]byte, unix.CmsgSpace(4*attached))
	n, k, flags, _, err := c.socket.ReadMsgUnix(buf[:], oob)
	if err != nil {
		return Frame{}, nil, err
	}
	fds, err := rights(oob[:k])
	var f Frame
	if err == nil {
		f, err = Decode(buf[:n])
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 || err == nil && (f.Kind == Attach) != (len(fds) == attached) {
		err = errFrame
	}
	if err != nil {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return Frame{}, nil, err
	}
	return f, fds, nil
}

// ReceiveBare is Receive for the daemon's end. It provides no space for descriptors, so the kernel
// discards them; a frame with descriptors is an error.
func (c *Conn) ReceiveBare() (Frame, error) {
	var buf [MaxFrame + 1]byte
	n, _, flags, _, err := c.socket.ReadMsgUnix(buf[:], nil)
	if err != nil {
		return Frame{}, err
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		return Frame{}, errFrame
	}
	return Decode(buf[:n])
}

// rights returns the descriptors of a message.
func rights(oob []byte) (fds []int, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		got, err := unix.ParseUnixRights(&m)
		if err != nil {
			return fds, err
		}
		fds = append(fds, got...)
	}
	return fds, nil
}
