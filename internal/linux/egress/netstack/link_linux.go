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

// Device carries a sandbox's IP packets. Send and Close may be called
// concurrently with anything.
type Device interface {
	// Receive calls deliver with each packet from the sandbox until the device
	// ends. The packet is deliver's until it returns.
	Receive(deliver func(packet []byte)) error
	// Send gives the sandbox the packet that the parts make up. It does not
	// block; a packet that cannot be sent is lost, as packets may be.
	Send(parts [][]byte)
	// Close ends the device, and Receive with it.
	Close() error
}

// Bounds of one sandbox.
const (
	// buffers is the memory for data that waits in connections, in bytes, in
	// one direction. Each connection gets a part; when it is used up, leastBuffer.
	buffers     = 16 << 20
	leastBuffer = 16 << 10
	mostBuffer  = 1 << 20

	// New connections and flows: at least so many at once, and then so many a
	// second.
	newBurst     = 256
	newPerSecond = 200
	// newTimeout is how long a TCP connection waits for its turn.
	newTimeout = 10 * time.Second
)

// Link is the way out of one sandbox.
type Link struct {
	host *Host
	dev  Device

	ctx  context.Context // ends with the link
	stop context.CancelFunc

	conns  budget // connections and flows
	memory budget // bytes of buffers
	fresh  *rate.Limiter
	asked  *rate.Limiter // questions to name servers
	asking budget
	id     uint32

	ledger   *ledger
	bytes    atomic.Int64 // sent and received
	charged  atomic.Int64 // in the ledger: at least bytes
	charging sync.Mutex
	used     atomic.Bool // the end of the bytes was noted

	pump sync.WaitGroup // the goroutine that reads from dev

	mu     sync.Mutex
	closed bool
	stack  *netstack // nil until the first packet
	broken bool      // that there can be none was noted
	busy   sync.WaitGroup
}

// Attach takes over dev and carries what is sent over it until Close. Nothing of
// the link outlives the process.
func (h *Host) Attach(dev Device) *Link { return h.attach(0, dev, &ledger{}, 0, nil) }

// attach is Attach of a link with a ledger, whose charge is charged. left are the
// connections that an earlier process has left; they are reset.
func (h *Host) attach(id uint32, dev Device, book *ledger, charged uint64, left map[int]conn) *Link {
	l := &Link{
		host: h, dev: dev, id: id, ledger: book,
		fresh: rate.NewLimiter(newPerSecond, max(newBurst, int(h.most))),
		asked: rate.NewLimiter(questionsPerSecond, questionBurst),
	}
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

// receive delivers packets until the device ends. That can only be the end of
// the sandbox, or of the link.
func (l *Link) receive() { _ = l.dev.Receive(l.deliver) }

// deliver gives a packet to the stack. What the sandbox's kernel says by itself
// when an interface comes up is nothing to make a stack for.
func (l *Link) deliver(packet []byte) {
	if !wanted(packet) {
		return
	}
	l.count(len(packet))
	if s := l.netstack(); s != nil {
		s.inject(packet)
	}
}

// count counts the bytes of a packet. Beyond the bound it cuts all connections
// and flows; new ones are refused from then on.
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

// chargeStep is the part of the bound by which bytes are charged ahead: so much
// can be charged and not carried when the process dies.
const chargeStep = 256

// charge charges the link total bytes or a little more, before they are carried;
// false if that cannot be recorded.
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

// netstack returns the stack, which is made when it is first asked for; nil when
// the link is closed.
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

// begin counts a goroutine that Close waits for; false when the link is closed.
func (l *Link) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.busy.Add(1)
	return true
}

// takePlace takes what a connection or a flow needs of what is bounded.
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

// Close cuts all connections and releases all that the link holds. It is
// idempotent, and when it returns nothing is left.
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
