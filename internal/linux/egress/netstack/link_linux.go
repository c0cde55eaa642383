package netstack

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/sandbar-dev/sandbar/internal/linux/egress/wire"
)

// Device carries a sandbox's IP packets. Send and Close may be called at any time.
type Device interface {
	// Receive calls deliver with each packet from the sandbox until the device is closed. The
	// packet is valid until deliver returns.
	Receive(deliver func(packet []byte)) error
	// Send sends the concatenation of parts as a packet to the sandbox. It does not block; a packet
	// that cannot be sent is dropped.
	Send(parts [][]byte)
	// Close closes the device and ends Receive.
	Close() error
}

// Bounds of one sandbox.
const (
	// buffers bounds the data buffered in connections, per direction, in bytes. Each connection
	// gets a share, or leastBuffer if nothing is left.
	buffers     = 16 << 20
	leastBuffer = 16 << 10
	mostBuffer  = 1 << 20

	// Rate of new connections and flows: a burst, and then a number per second.
	newBurst     = 256
	newPerSecond = 200
	// newTimeout bounds the time that a TCP connection waits for the rate limit.
	newTimeout = 10 * time.Second
)

// Link is the network access of one sandbox.
type Link struct {
	host *Host
	dev  Device

	ctx  context.Context // ends with the link
	stop context.CancelFunc

	conns  budget // connections and flows
	memory budget // bytes of buffers
	fresh  *rate.Limiter
	asked  *rate.Limiter // DNS queries
	asking budget
	id     uint32

	ledger   *ledger
	bytes    atomic.Int64 // sent and received
	charged  atomic.Int64 // as stored in the ledger: at least bytes
	charging sync.Mutex
	used     atomic.Bool // the end of the byte limit was reported

	restriction atomic.Pointer[restriction]

	pump sync.WaitGroup // the goroutine that reads dev

	mu     sync.Mutex
	closed bool
	stack  *netstack // nil until the first packet
	broken bool      // a failure to create the stack was reported
	busy   sync.WaitGroup
	open   map[*openFlow]struct{}
}

// Attach takes ownership of dev and forwards its packets until Close. The link has no ledger.
func (h *Host) Attach(dev Device) *Link {
	return h.attach(0, dev, restriction{}, &ledger{}, 0, nil)
}

// attach is Attach with a ledger and its byte count. left are the connections of an earlier
// process, which are reset.
func (h *Host) attach(id uint32, dev Device, limit restriction, book *ledger, charged uint64, left map[int]conn) *Link {
	l := &Link{
		host: h, dev: dev, id: id, ledger: book,
		fresh: rate.NewLimiter(newPerSecond, max(newBurst, int(h.most))),
		asked: rate.NewLimiter(questionsPerSecond, questionBurst),
		open:  map[*openFlow]struct{}{},
	}
	l.restriction.Store(&limit)
	l.conns.most, l.memory.most, l.asking.most = h.most, buffers, questionsAtOnce
	l.ctx, l.stop = context.WithCancel(context.Background())
	l.charged.Store(int64(min(charged, math.MaxInt64)))
	l.bytes.Store(l.charged.Load())
	l.count(0)
	l.pump.Go(l.receive)
	if len(left) > 0 {
		l.busy.Go(func() { l.reset(left) })
	}
	return l
}

// receive delivers packets until the device is closed, by the end of the sandbox or of the link.
func (l *Link) receive() { _ = l.dev.Receive(l.deliver) }

// deliver passes a packet to the stack. Packets that the sandbox's kernel sends by itself when the
// interface comes up do not create a stack.
func (l *Link) deliver(packet []byte) {
	if !wanted(packet) {
		return
	}
	l.count(len(packet))
	if s := l.netstack(); s != nil {
		s.inject(packet)
	}
}

// count counts the bytes of a packet. Beyond the bound it cuts all connections and flows and
// refuses new ones.
func (l *Link) count(n int) {
	most := l.host.bytes
	if most <= 0 {
		return
	}
	if total := l.bytes.Add(int64(n)); total > l.charged.Load() && !l.charge(total) || total > most {
		if !l.used.Swap(true) {
			l.host.note(l.id, wire.UsedUp)
		}
		l.stop()
	}
}

// chargeStep is the fraction of the bound that is charged in advance: at most that much is charged
// and not transferred if the process dies.
const chargeStep = 256

// charge charges at least total bytes to the ledger before they are transferred. It returns false
// if they cannot be stored.
func (l *Link) charge(total int64) bool {
	l.charging.Lock()
	defer l.charging.Unlock()
	if total <= l.charged.Load() {
		return true
	}
	step := max(l.host.bytes/chargeStep, 1)
	up := (total-1)/step*step + step
	if l.ledger.charge(uint64(up)) != nil {
		return false
	}
	l.charged.Store(up)
	return true
}

// netstack returns the stack, creating it on the first call. It returns nil if the link is closed.
func (l *Link) netstack() *netstack {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	if l.stack == nil {
		s, err := newNetstack(l)
		if err != nil {
			if !l.broken {
				l.broken = true
				l.host.note(l.id, wire.Broken)
			}
			return nil
		}
		l.stack = s
	}
	return l.stack
}

// begin counts a goroutine for which Close waits. It returns false if the link is closed.
func (l *Link) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.busy.Add(1)
	return true
}

// reserveFlow reserves the bounded resources of a connection or flow.
func (l *Link) reserveFlow() bool {
	if !l.conns.reserve(1) {
		return false
	}
	if !l.host.sockets.reserve(1) {
		l.conns.release(1)
		return false
	}
	return true
}

func (l *Link) releaseFlow() {
	l.host.sockets.release(1)
	l.conns.release(1)
}

// Close cuts all connections and releases all resources of the link. It is idempotent; when it
// returns nothing is left.
func (l *Link) Close() error {
	l.mu.Lock()
	first, s := !l.closed, l.stack
	l.closed = true
	l.mu.Unlock()
	l.stop()
	var err error
	if first {
		err = l.dev.Close()
	}
	l.pump.Wait()
	if s != nil && first {
		s.close()
	}
	l.busy.Wait()
	if s != nil && first {
		s.wait()
	}
	if first {
		l.ledger.close()
	}
	return err
}
