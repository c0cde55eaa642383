package egress

import (
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/linux/egress/wire"
)

// Link is the network access of one sandbox.
type Link struct {
	host   *Host
	id     uint32
	device int // descriptor of the TUN device or socket
	// memory file with the byte counts and connections, which only stack processes access
	ledger int

	once sync.Once
	err  error

	// Guarded by host.mu.
	stack    *stack                // the process that has the device open; nil: none
	detached chan struct{}         // closed when stack has released the device; nil: not requested
	reported map[wire.Event]*stack // the last process that reported the event
}

// newLink takes ownership of a TUN device's descriptor.
func (h *Host) newLink(device int) (*Link, error) {
	l := &Link{host: h, device: device, ledger: -1, reported: map[wire.Event]*stack{}}
	// The stack process reads the device through a poller, so it must be non-blocking. O_NONBLOCK
	// belongs to the open file description, which all its descriptors share.
	err := unix.SetNonblock(device, true)
	if err == nil {
		l.ledger, err = newLedger(wire.LedgerSize(int64(h.rules.MaxConnections)))
	}
	if err != nil {
		l.release()
		return nil, sandbar.Errorf(sandbar.Exhausted, "making the ledger of a network device: %w", err)
	}
	return l, nil
}

// newLedger creates a memory file of fixed size (F_SEAL_SHRINK, F_SEAL_GROW): a stack process that
// could shrink it could reset the counted bytes.
func newLedger(size int64) (fd int, err error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err = unix.MemfdCreate("sandbar-ledger", flags|unix.MFD_NOEXEC_SEAL)
	if err == unix.EINVAL { // Linux before 6.3 has no MFD_NOEXEC_SEAL
		fd, err = unix.MemfdCreate("sandbar-ledger", flags)
	}
	if err != nil {
		return -1, err
	}
	err = unix.Ftruncate(fd, size)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		unix.Close(fd)
		return -1, os.NewSyscallError("memfd", err)
	}
	return fd, nil
}

func (l *Link) release() error {
	err := unix.Close(l.device)
	if l.ledger >= 0 {
		err = errors.Join(err, unix.Close(l.ledger))
	}
	return err
}

// detachTimeout bounds the time in which a process must release a device.
const detachTimeout = 30 * time.Second

// Close cuts all connections and releases the link's resources. It is idempotent. When it returns,
// no process has the device open.
func (l *Link) Close() error {
	l.once.Do(func() {
		l.detach()
		l.err = l.release()
	})
	return l.err
}

// detach makes the process release the device, and kills it after detachTimeout.
func (l *Link) detach() {
	h := l.host
	h.mu.Lock()
	delete(h.links, l.id)
	s := l.stack
	if s != nil {
		l.detached = make(chan struct{})
		s.send(wire.Frame{Kind: wire.Detach, Link: l.id})
	}
	let := l.detached
	h.mu.Unlock()
	if s == nil {
		return
	}
	t := time.NewTimer(detachTimeout)
	defer t.Stop()
	select {
	case <-let:
	case <-s.ended():
	case <-t.C:
		s.kill()
		<-s.ended()
	}
}
