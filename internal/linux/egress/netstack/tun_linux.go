package netstack

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// pool is a pool of buffers of one size, shared by all links. Each link needs a buffer only while
// it has data.
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

// NewTun takes ownership of the descriptor of a TUN device. On failure it closes it.
func (h *Host) NewTun(fd int) (*Tun, error) {
	// The runtime's poller needs a non-blocking descriptor.
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

// Receive reads packets until the device is closed. It holds a buffer only while there are packets.
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

// Close closes the descriptor. The device disappears unless another descriptor keeps it.
func (t *Tun) Close() error { return t.file.Close() }
