package netstack

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// pool is memory for what is on its way, in pieces of one size. It is shared by all
// links: each needs a piece only while something is there.
type pool struct {
	size int
	free sync.Pool
}

func (p *pool) get() *[]byte {
	if b, ok := p.free.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, p.size)
	return &b
}

func (p *pool) put(b *[]byte) { p.free.Put(b) }

// Tun is a TUN device (IFF_TUN with IFF_NO_PI) as a Device.
type Tun struct {
	file *os.File
	raw  syscall.RawConn
	bufs *pool
}

// NewTun takes over the descriptor of a TUN device. On failure it is closed.
func (h *Host) NewTun(fd int) (*Tun, error) {
	// From here on the descriptor waits in the runtime's poller, which takes
	// only those that do not block.
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, err
	}
	t := &Tun{file: os.NewFile(uintptr(fd), "tun"), bufs: &h.packets}
	raw, err := t.file.SyscallConn()
	if err != nil {
		t.file.Close()
		return nil, err
	}
	t.raw = raw
	return t, nil
}

// Receive reads packets until the device ends. It holds memory only while
// there are any.
func (t *Tun) Receive(deliver func([]byte)) error {
	for {
		var failed error
		err := t.raw.Read(func(fd uintptr) bool {
			buf := t.bufs.get()
			defer t.bufs.put(buf)
			for {
				n, err := unix.Read(int(fd), *buf)
				switch {
				case err == unix.EINTR:
				case err == unix.EAGAIN:
					return false
				case err != nil:
					failed = err
					return true
				default:
					deliver((*buf)[:n])
				}
			}
		})
		if err == nil {
			err = failed
		}
		if err != nil {
			return err
		}
	}
}

// Send writes a packet.
func (t *Tun) Send(parts [][]byte) {
	_ = t.raw.Write(func(fd uintptr) bool {
		for {
			if _, err := unix.Writev(int(fd), parts); err != unix.EINTR {
				return true
			}
		}
	})
}

// Close removes the device, unless another descriptor holds it.
func (t *Tun) Close() error { return t.file.Close() }
