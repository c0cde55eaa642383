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

// firstWindow is the receive window of a connection before it has its share of the buffers, in
// bytes.
const firstWindow = leastBuffer

// onTCP relays one connection. The stack calls it in a goroutine of its own. The program's connect
// returns when the process's socket is connected, or fails with a reset if that fails.
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
	ctx, end := l.track(dst)
	defer end()
	var out *net.TCPConn // nil: to the name server
	if dst != netip.AddrPortFrom(wire.Gateway, wire.DNSPort) {
		c, err := l.host.dial(ctx, "tcp", dst, l.check)
		if err != nil {
			r.Complete(!slow(err)) // after a timeout the program's kernel may retry
			return
		}
		out = c.(*net.TCPConn)
		defer out.Close()
	}
	// Before the program's connect returns: every open connection is in the ledger.
	slot, ok := l.ledger.open(conn{r.ID().RemotePort, dst})
	if !ok {
		r.Complete(true)
		return
	}
	defer l.ledger.erase(slot)
	if out == nil {
		s.serveDNS(r)
	} else if c := newRelay(ctx, s, r, out); c != nil {
		c.run()
	}
}

// awaitTurn waits for the rate limit of new connections.
func (l *Link) awaitTurn() bool {
	ctx, cancel := context.WithTimeout(l.ctx, newTimeout)
	defer cancel()
	return l.fresh.Wait(ctx) == nil
}

// slow reports whether a connect failed by a timeout.
func slow(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, syscall.ETIMEDOUT)
}

// relay copies the bytes of one connection, with a goroutine per direction that holds no buffer
// while it waits.
type relay struct {
	link  *Link
	in    tcpip.Endpoint // the program's side
	wq    *waiter.Queue
	out   *net.TCPConn // the remote side
	size  int64        // of each buffer, in bytes
	cut   context.Context
	abort context.CancelFunc // cuts both sides after an error
}

// newRelay completes the program's connection, which ends with ctx; nil if it is gone.
func newRelay(ctx context.Context, s *netstack, r *tcp.ForwarderRequest, out *net.TCPConn) *relay {
	c := &relay{link: s.link, wq: &waiter.Queue{}, out: out}
	ep, err := r.CreateEndpoint(c.wq)
	r.Complete(err != nil)
	if err != nil {
		return nil
	}
	c.in, c.size = ep, s.link.memory.share(leastBuffer, mostBuffer)
	ep.SocketOptions().SetReceiveBufferSize(c.size, true)
	ep.SocketOptions().SetSendBufferSize(c.size, true)
	c.cut, c.abort = context.WithCancel(ctx)
	c.keepAlive()
	return c
}

// A program's socket can disappear silently after it has sent its FIN and its kernel has timed out.
// Keep-alive detects that.
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

// run relays until both directions have ended and all data has been delivered.
func (c *relay) run() {
	defer c.link.memory.release(c.size)
	defer c.abort()
	// unblocks goroutines that wait for the remote socket
	stop := context.AfterFunc(c.cut, func() {
		c.out.SetLinger(0)
		c.out.Close()
	})
	// A reset by the program cuts the connection in any state.
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
	if stop() { // both directions ended regularly
		c.drain()
	} else {
		c.in.Abort()
	}
	c.in.Close()
}

// wait waits until the program's connection is ready for an event. It returns false if the
// connection is cut.
func (c *relay) wait(mask waiter.EventMask) bool { return await(c.cut, c.wq, c.in, mask) }

// await waits until an endpoint of the stack is ready for an event. It returns false if ctx ends
// first.
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

// copyOut copies data from the program to the remote side.
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

// sendSome sends the available data. more is false at the end of the program's data.
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

// smallWrite is the size below which a segment uses much more memory than its length; mostSmall is
// the number of such segments that may be queued per connection.
const (
	smallWrite = 4096
	mostSmall  = 64
)

// copyIn copies data from the remote side to the program.
func (c *relay) copyIn() {
	raw, err := c.out.SyscallConn()
	if err == nil {
		// Keep urgent data in line, so that it is counted like other data.
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

// receiveSome waits for data and passes on as much as the stack has room for. It checks the room
// before it reads from the socket, whose own buffer applies back-pressure to the remote side.
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

// inbound is the data in a socket as the stack's Payloader: the stack asks for its length first, so
// that it allocates no more than needed.
type inbound struct {
	fd  int
	err error // io.EOF at the end, EAGAIN without data
	n   int   // bytes
}

// look reads the number of available bytes.
func (p *inbound) look() {
	var b [1]byte
	n, _, err := unix.Recvfrom(p.fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	switch {
	case err == unix.EINTR:
		p.err = unix.EAGAIN // the poller reports the error again
	case err != nil:
		p.err = err
	case n == 0:
		p.err = io.EOF
	default:
		p.n, p.err = unix.IoctlGetInt(p.fd, unix.TIOCINQ)
	}
}

// Len returns the number of available bytes.
func (p *inbound) Len() int { return p.n }

// Read reads from the socket. The stack calls it until it has Len bytes; with an empty b it only
// asks whether there are more.
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

// waitDelivered waits until the program's kernel has acknowledged all data. The stack bounds its
// queue by length, but many small segments use far more memory. A send buffer of two bytes is
// writable exactly when the queue is empty.
func (c *relay) waitDelivered() bool {
	o := c.in.SocketOptions()
	o.SetSendBufferSize(2, true)
	ok := c.wait(waiter.WritableEvents)
	o.SetSendBufferSize(c.size, true)
	return ok
}

// drainTimeout bounds the time that data waits for a program that has closed its own direction and
// does not read.
const drainTimeout = 5 * time.Minute

// drain waits until the last data has been acknowledged, so that the connection counts towards the
// bound until then.
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

// drainLook is the polling interval of the state, because the stack does not signal every change.
const drainLook = 50 * time.Millisecond
