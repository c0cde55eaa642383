package netstack

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/sandbar-dev/sandbar/internal/linux/egress/wire"
)

// firstWindow is what a program may send before its connection has its part of
// the memory.
const firstWindow = leastBuffer

// onTCP carries one connection. The stack calls it in a goroutine of its own.
// The program's connect returns when the daemon's socket is connected, or with a
// reset when it cannot be.
func (s *netstack) onTCP(r *tcp.ForwarderRequest) {
	l := s.link
	if !l.begin() {
		r.Complete(false)
		return
	}
	defer l.busy.Done()
	if !l.reserveFlow() {
		r.Complete(true)
		return
	}
	defer l.releaseFlow()
	if !l.awaitTurn() {
		r.Complete(true)
		return
	}
	dst := addrPort(r.ID().LocalAddress, r.ID().LocalPort)
	var out *net.TCPConn // nil: to the name server
	if dst != netip.AddrPortFrom(wire.Gateway, wire.DNSPort) {
		c, err := l.host.dial(l.ctx, "tcp", dst)
		if err != nil {
			r.Complete(!slow(err)) // who is slow may be there when asked again
			return
		}
		out = c.(*net.TCPConn)
		defer out.Close()
	}
	// Before the program's connect returns: no connection is open that is not in the
	// ledger.
	slot, ok := l.ledger.open(conn{r.ID().RemotePort, dst})
	if !ok {
		r.Complete(true)
		return
	}
	defer l.ledger.erase(slot)
	if out == nil {
		s.serveDNS(r)
	} else if c := newRelay(s, r, out); c != nil {
		c.run()
	}
}

// awaitTurn waits until one more connection is within the rate.
func (l *Link) awaitTurn() bool {
	ctx, cancel := context.WithTimeout(l.ctx, newTimeout)
	defer cancel()
	return l.fresh.Wait(ctx) == nil
}

// slow reports whether a connection failed by nobody's answering.
func slow(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, syscall.ETIMEDOUT)
}

// relay carries the bytes of one connection, each direction by a goroutine that
// waits without holding memory.
type relay struct {
	link  *Link
	in    tcpip.Endpoint // the program's
	wq    *waiter.Queue
	out   *net.TCPConn // the world's
	size  int64        // of each buffer
	cut   context.Context
	abort context.CancelFunc // cuts both sides: one has failed
}

// newRelay completes the program's connection; nil if it is gone.
func newRelay(s *netstack, r *tcp.ForwarderRequest, out *net.TCPConn) *relay {
	c := &relay{link: s.link, wq: &waiter.Queue{}, out: out}
	ep, err := r.CreateEndpoint(c.wq)
	r.Complete(err != nil)
	if err != nil {
		return nil
	}
	c.in, c.size = ep, s.link.memory.share(leastBuffer, mostBuffer)
	ep.SocketOptions().SetReceiveBufferSize(c.size, true)
	ep.SocketOptions().SetSendBufferSize(c.size, true)
	c.cut, c.abort = context.WithCancel(s.link.ctx)
	c.keepAlive()
	return c
}

// A program's socket can vanish without a word, once it has sent its end and
// its kernel has waited long enough for ours. Asking finds that out.
const (
	aliveIdle  = tcpip.KeepaliveIdleOption(time.Minute)
	aliveAgain = tcpip.KeepaliveIntervalOption(20 * time.Second)
	aliveCount = 3
)

func (c *relay) keepAlive() {
	idle, again := aliveIdle, aliveAgain
	_ = c.in.SetSockOpt(&idle)
	_ = c.in.SetSockOpt(&again)
	_ = c.in.SetSockOptInt(tcpip.KeepaliveCountOption, aliveCount)
	c.in.SocketOptions().SetKeepAlive(true)
}

// run carries bytes until both directions have ended, and what was sent has
// arrived.
func (c *relay) run() {
	defer c.link.memory.release(c.size)
	defer c.abort()
	// Whoever waits for the world's socket is woken by its end.
	stop := context.AfterFunc(c.cut, func() {
		c.out.SetLinger(0)
		c.out.Close()
	})
	// A reset from the program cuts the connection whoever waits for whom.
	reset := waiter.NewFunctionEntry(waiter.EventErr|waiter.EventHUp, func(waiter.EventMask) {
		if tcp.EndpointState(c.in.State()) == tcp.StateError {
			c.abort()
		}
	})
	c.wq.EventRegister(&reset)
	defer c.wq.EventUnregister(&reset)
	var back sync.WaitGroup
	back.Go(c.copyIn)
	c.copyOut()
	back.Wait()
	if stop() { // both directions ended in order
		c.drain()
	} else {
		c.in.Abort()
	}
	c.in.Close()
}

// wait waits until the program's connection is ready for an event; false when
// the connection is cut.
func (c *relay) wait(mask waiter.EventMask) bool { return await(c.cut, c.wq, c.in, mask) }

// await waits until an endpoint of the stack is ready for an event; false when
// ctx ends first.
func await(ctx context.Context, wq *waiter.Queue, ep tcpip.Endpoint, mask waiter.EventMask) bool {
	if ep.Readiness(mask)&mask != 0 {
		return true
	}
	e, ch := waiter.NewChannelEntry(mask | waiter.EventHUp | waiter.EventErr)
	wq.EventRegister(&e)
	defer wq.EventUnregister(&e)
	for ep.Readiness(mask)&mask == 0 {
		select {
		case <-ch:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// copyOut carries what the program sends.
func (c *relay) copyOut() {
	for c.wait(waiter.ReadableEvents) {
		more, err := c.sendSome()
		switch {
		case err != nil:
			c.abort()
			return
		case !more:
			if c.out.CloseWrite() != nil {
				c.abort()
			}
			return
		}
	}
}

// sendSome sends what is there; no more at the end of what the program sends.
func (c *relay) sendSome() (more bool, err error) {
	bufs := &c.link.host.packets
	if c.size < int64(bufs.size) {
		bufs = &c.link.host.pieces
	}
	buf := bufs.get()
	defer bufs.put(buf)
	w := tcpip.SliceWriter(*buf)
	res, terr := c.in.Read(&w, tcpip.ReadOptions{})
	switch terr.(type) {
	case nil:
	case *tcpip.ErrWouldBlock:
		return true, nil
	case *tcpip.ErrClosedForReceive:
		return false, nil
	default:
		return false, errors.New(terr.String())
	}
	_, err = c.out.Write((*buf)[:res.Count])
	return err == nil, err
}

// smallWrite is the size below which data costs much more memory than it is
// long, and mostSmall how many of these may wait in a connection.
const (
	smallWrite = 4096
	mostSmall  = 64
)

// copyIn carries what the world sends.
func (c *relay) copyIn() {
	raw, err := c.out.SyscallConn()
	if err == nil {
		// Urgent data stays in its place, where it is counted like any other.
		err = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_OOBINLINE, 1) })
	}
	if err != nil {
		c.abort()
		return
	}
	for small := 0; ; {
		if !c.wait(waiter.WritableEvents) {
			return
		}
		n, err := c.receiveSome(raw)
		switch {
		case err == io.EOF:
			if c.in.Shutdown(tcpip.ShutdownWrite) != nil {
				c.abort()
			}
			return
		case err != nil:
			c.abort()
			return
		}
		if n < smallWrite {
			small++
		}
		if small >= mostSmall {
			small = 0
			if !c.waitDelivered() {
				return
			}
		}
	}
}

// receiveSome waits for data and passes on as much as there is room for. The
// room is there before the data is taken from the socket, whose own buffer holds
// the world back.
func (c *relay) receiveSome(raw syscall.RawConn) (n int64, err error) {
	p := inbound{}
	rerr := raw.Read(func(fd uintptr) bool {
		p.fd = int(fd)
		if p.look(); p.err == unix.EAGAIN {
			return false
		}
		if p.err == nil {
			var terr tcpip.Error
			n, terr = c.in.Write(&p, tcpip.WriteOptions{})
			if _, full := terr.(*tcpip.ErrWouldBlock); terr != nil && !full && p.err == nil {
				p.err = errors.New(terr.String())
			}
		}
		return true
	})
	if rerr != nil {
		return n, rerr
	}
	return n, p.err
}

// inbound is what waits in a socket, as the stack takes it: by length first, so
// that the memory it takes is no more than is needed.
type inbound struct {
	fd  int
	err error // io.EOF at the end, EAGAIN when there is nothing
	n   int   // bytes
}

// look finds out how much there is.
func (p *inbound) look() {
	var b [1]byte
	n, _, err := unix.Recvfrom(p.fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	switch {
	case err == unix.EINTR:
		p.err = unix.EAGAIN // the poller says it again
	case err != nil:
		p.err = err
	case n == 0:
		p.err = io.EOF
	default:
		p.n, p.err = unix.IoctlGetInt(p.fd, unix.TIOCINQ)
	}
}

// Len is how many bytes there are.
func (p *inbound) Len() int { return p.n }

// Read takes bytes from the socket. The stack asks until it has as many as Len
// promised, and an empty b only asks whether there are more.
func (p *inbound) Read(b []byte) (int, error) {
	for len(b) > 0 {
		n, err := unix.Read(p.fd, b)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.ErrUnexpectedEOF
		default:
			return n, nil
		}
	}
	return 0, nil
}

// waitDelivered waits until the program's kernel has taken all that was sent. The
// stack bounds what waits by its length, and many small pieces take far more
// than that; a buffer of two bytes is writable exactly when nothing waits.
func (c *relay) waitDelivered() bool {
	o := c.in.SocketOptions()
	o.SetSendBufferSize(2, true)
	ok := c.wait(waiter.WritableEvents)
	o.SetSendBufferSize(c.size, true)
	return ok
}

// drainTimeout is how long data may wait for a program that has closed its own
// direction and does not read.
const drainTimeout = 5 * time.Minute

// drain waits until what was sent last has been taken, so that the connection
// keeps its place until then.
func (c *relay) drain() {
	ctx, cancel := context.WithTimeout(c.cut, drainTimeout)
	defer cancel()
	closed := func() bool {
		switch tcp.EndpointState(c.in.State()) {
		case tcp.StateClose, tcp.StateError, tcp.StateTimeWait, tcp.StateFinWait2:
			return true
		}
		return false
	}
	e, ch := waiter.NewChannelEntry(waiter.EventHUp | waiter.EventErr | waiter.WritableEvents)
	c.wq.EventRegister(&e)
	defer c.wq.EventUnregister(&e)
	for !closed() {
		select {
		case <-ch:
		case <-time.After(drainLook):
		case <-ctx.Done():
			c.in.Abort()
			return
		}
	}
}

// drainLook is how often the state is looked at besides: the stack does not tell
// of every change.
const drainLook = 50 * time.Millisecond
