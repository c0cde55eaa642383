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

// Link is the way out of one sandbox.
type Link struct {
	host   *Host
	id     uint32
	device int // a descriptor of the TUN device
	ledger int // a memory file, which only stack processes look into

	once sync.Once
	err  error

	// Guarded by host.mu.
	stack    *stack                // the process that has the device; nil: none
	detached chan struct{}         // closed when holder has let go of it; nil: it was not asked
	reported map[wire.Event]*stack // the last that told of it
}

// newLink takes over the descriptor of a device.
func (h *Host) newLink(device int) (*Link, error) {
	l := &Link{host: h, device: device, ledger: -1, reported: map[wire.Event]*stack{}}
	// The device is read by who waits for it with a poller. The flag is one of the
	// device's description, which all descriptors share.
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

// newLedger makes a memory file whose size nobody can change: one that shrinks
// could take bytes back that are charged.
func newLedger(size int64) (fd int, err error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err = unix.MemfdCreate("sandbar-ledger", flags|unix.MFD_NOEXEC_SEAL)
	if err == unix.EINVAL { // before Linux 6.3
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

// letGo is how long a process may take to let go of a device.
const detachTimeout = 30 * time.Second

// Close cuts all connections and releases all that the link holds. It is
// idempotent, and when it returns no process has the device.
func (l *Link) Close() error {
	l.once.Do(func() {
		l.detach()
		l.err = l.release()
	})
	return l.err
}

// recall has the process that holds the device let go of it. One that does not
// is killed.
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
