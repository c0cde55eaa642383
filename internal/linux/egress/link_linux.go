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
	limits   sandbar.Egress        // of Restrict
	pending  []chan struct{}       // of Restrict calls that stack has not reported yet, oldest first
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

// detachTimeout bounds the time in which a process must release a device or restrict it.
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

// Restrict replaces what the sandbox may reach within the operator's rules. When it returns nil,
// the connections to denied addresses are cut, and no new one is possible; a process that takes the
// place of the present one has the same restriction. Gone: the link is closed.
func (l *Link) Restrict(to sandbar.Egress) error {
	h := l.host
	h.mu.Lock()
	if h.links[l.id] != l {
		h.mu.Unlock()
		return sandbar.Errorf(sandbar.Gone, "the sandbox's network is closed")
	}
	l.limits = to
	s := l.stack
	if s == nil { // the next process gets it with the link
		h.mu.Unlock()
		return nil
	}
	done := make(chan struct{})
	l.pending = append(l.pending, done)
	s.send(wire.Frame{Kind: wire.Restrict, Link: l.id, Allow: to.Allow, Deny: to.Deny})
	h.mu.Unlock()
	s.await(done)
	return nil
}

// await waits until the process reports something, or ends. It kills the process after
// detachTimeout.
func (s *stack) await(done <-chan struct{}) {
	t := time.NewTimer(detachTimeout)
	defer t.Stop()
	select {
	case <-done:
	case <-s.ended():
	case <-t.C:
		s.kill()
		<-s.ended()
	}
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
	if s != nil {
		s.await(let)
	}
}
