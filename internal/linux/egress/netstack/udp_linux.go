package netstack

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// flowIdle is the time without datagrams in either direction after which a flow ends. RFC 4787
// requires two minutes; QUIC sends at least every half minute.
const flowIdle = 2 * time.Minute

// flowBuffer bounds the queued datagrams of one flow, in bytes.
const flowBuffer = 256 << 10

// onUDP starts a flow with the first datagram between two ports. The goroutine that reads the
// device calls it, so it must not block.
func (s *netstack) onUDP(r *udp.ForwarderRequest) {
	l, id := s.link, r.ID()
	from, to := addrPort(id.RemoteAddress, id.RemotePort), addrPort(id.LocalAddress, id.LocalPort)
	if !l.fresh.Allow() || !l.begin() {
		return // dropped
	}
	refuse := func() {
		s.unreachable(from, to)
		l.busy.Done()
	}
	if !l.reserveFlow() {
		refuse()
		return
	}
	ctx, end := l.track(to)
	out, err := l.host.dial(ctx, "udp", to, l.check)
	if err != nil {
		end()
		l.releaseFlow()
		refuse()
		return
	}
	f := &flow{stack: s, ctx: ctx, end: end, wq: &waiter.Queue{}, out: out.(*net.UDPConn), from: from, to: to, size: l.memory.share(leastBuffer, flowBuffer)}
	ep, terr := r.CreateEndpoint(f.wq)
	if terr != nil {
		f.release()
		return
	}
	ep.SocketOptions().SetReceiveBufferSize(f.size, true)
	f.in = ep
	go f.run()
}

// flow relays the datagrams between two ports.
type flow struct {
	stack    *netstack
	ctx      context.Context // of Link.track
	end      func()
	wq       *waiter.Queue
	in       tcpip.Endpoint // the program's side
	out      *net.UDPConn   // the remote side
	from, to netip.AddrPort
	size     int64
	last     atomic.Pointer[time.Time] // time of the last datagram, by the monotonic clock
}

func (f *flow) release() {
	f.out.Close()
	f.end()
	l := f.stack.link
	l.memory.release(f.size)
	l.releaseFlow()
	l.busy.Done()
}

// run relays datagrams until none was sent for flowIdle.
func (f *flow) run() {
	defer f.release()
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { f.out.SetReadDeadline(time.Unix(1, 0)) })()
	f.touch()
	var back sync.WaitGroup
	back.Go(func() {
		defer cancel()
		f.copyIn(ctx)
	})
	f.copyOut(ctx)
	cancel()
	back.Wait()
	f.in.Close()
}

func (f *flow) touch() { now := time.Now(); f.last.Store(&now) }

// deadline returns when the flow ends without further datagrams.
func (f *flow) deadline() time.Time { return f.last.Load().Add(flowIdle) }

func (f *flow) over(ctx context.Context) bool {
	return ctx.Err() != nil || !time.Now().Before(f.deadline())
}

// copyOut copies datagrams from the program.
func (f *flow) copyOut(ctx context.Context) {
	for !f.over(ctx) {
		bound, cancel := context.WithDeadline(ctx, f.deadline())
		ready := await(bound, f.wq, f.in, waiter.ReadableEvents)
		cancel()
		if ready && !f.sendOne() {
			return
		}
	}
}

// sendOne sends a datagram. It returns false if the flow cannot continue.
func (f *flow) sendOne() bool {
	bufs := &f.stack.link.host.packets
	buf := bufs.get()
	defer bufs.put(buf)
	w := tcpip.SliceWriter(*buf)
	res, terr := f.in.Read(&w, tcpip.ReadOptions{})
	switch terr.(type) {
	case nil:
	case *tcpip.ErrWouldBlock:
		return true
	default:
		return false
	}
	_, err := f.out.Write((*buf)[:res.Count])
	f.touch()
	// too long, or out of memory: the datagram is lost and the flow continues
	return f.note(err)
}

// copyIn copies datagrams to the program.
func (f *flow) copyIn(ctx context.Context) {
	raw, err := f.out.SyscallConn()
	if err != nil {
		return
	}
	for !f.over(ctx) {
		f.out.SetReadDeadline(f.deadline())
		if ctx.Err() != nil {
			return // the deadline that the cancellation had set was just overwritten
		}
		err := raw.Read(func(fd uintptr) bool { return f.receiveOne(int(fd)) })
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
	}
}

// receiveOne forwards a datagram. It returns false if there is none.
func (f *flow) receiveOne(fd int) bool {
	bufs := &f.stack.link.host.packets
	buf := bufs.get()
	defer bufs.put(buf)
	n, err := unix.Read(fd, *buf)
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return false
	case err != nil:
		f.note(err)
		return true
	}
	f.touch()
	var r bytes.Reader
	r.Reset((*buf)[:n])
	_, _ = f.in.Write(&r, tcpip.WriteOptions{}) // dropped if there is no room
	return true
}

// note reports an error of the remote socket to the program. It returns false if the socket is
// unusable.
func (f *flow) note(err error) bool {
	if errors.Is(err, syscall.ECONNREFUSED) {
		f.stack.unreachable(f.from, f.to)
	}
	return !errors.Is(err, net.ErrClosed)
}

// unreachable sends the program an ICMP "port unreachable" from the destination address.
func (s *netstack) unreachable(from, to netip.AddrPort) {
	if from.Addr().Is4() {
		s.link.dev.Send([][]byte{unreachable4(from, to)})
	} else {
		s.link.dev.Send([][]byte{unreachable6(from, to)})
	}
}

// unreachable4 returns the ICMP message. It contains what the program's kernel needs of the
// undelivered packet: the addresses and ports. Its length and checksum are not verified.
func unreachable4(from, to netip.AddrPort) []byte {
	const inner = header.IPv4MinimumSize + header.UDPMinimumSize
	b := make([]byte, header.IPv4MinimumSize+header.ICMPv4MinimumSize+inner)
	src, dst := tcpip.AddrFrom4(to.Addr().As4()), tcpip.AddrFrom4(from.Addr().As4())
	encode4(b, src, dst, header.ICMPv4ProtocolNumber, len(b))
	icmp := header.ICMPv4(b[header.IPv4MinimumSize:])
	icmp.SetType(header.ICMPv4DstUnreachable)
	icmp.SetCode(header.ICMPv4PortUnreachable)
	lost := icmp[header.ICMPv4MinimumSize:]
	encode4(lost, dst, src, header.UDPProtocolNumber, inner)
	header.UDP(lost[header.IPv4MinimumSize:]).Encode(&header.UDPFields{SrcPort: from.Port(), DstPort: to.Port(), Length: header.UDPMinimumSize})
	icmp.SetChecksum(header.ICMPv4Checksum(icmp, 0))
	return b
}

func encode4(b []byte, src, dst tcpip.Address, proto tcpip.TransportProtocolNumber, length int) {
	ip := header.IPv4(b)
	ip.Encode(&header.IPv4Fields{TotalLength: uint16(length), TTL: 64, Protocol: uint8(proto), SrcAddr: src, DstAddr: dst})
	ip.SetChecksum(^ip.CalculateChecksum())
}

// unreachable6 is unreachable4 for IPv6.
func unreachable6(from, to netip.AddrPort) []byte {
	const inner = header.IPv6MinimumSize + header.UDPMinimumSize
	b := make([]byte, header.IPv6MinimumSize+header.ICMPv6DstUnreachableMinimumSize+inner)
	src, dst := tcpip.AddrFrom16(to.Addr().As16()), tcpip.AddrFrom16(from.Addr().As16())
	encode6(b, src, dst, header.ICMPv6ProtocolNumber, len(b)-header.IPv6MinimumSize)
	icmp := header.ICMPv6(b[header.IPv6MinimumSize:])
	icmp.SetType(header.ICMPv6DstUnreachable)
	icmp.SetCode(header.ICMPv6PortUnreachable)
	lost := icmp[header.ICMPv6DstUnreachableMinimumSize:]
	encode6(lost, dst, src, header.UDPProtocolNumber, header.UDPMinimumSize)
	header.UDP(lost[header.IPv6MinimumSize:]).Encode(&header.UDPFields{SrcPort: from.Port(), DstPort: to.Port(), Length: header.UDPMinimumSize})
	icmp.SetChecksum(header.ICMPv6Checksum(header.ICMPv6ChecksumParams{Header: icmp, Src: src, Dst: dst}))
	return b
}

func encode6(b []byte, src, dst tcpip.Address, proto tcpip.TransportProtocolNumber, length int) {
	header.IPv6(b).Encode(&header.IPv6Fields{PayloadLength: uint16(length), TransportProtocol: proto, HopLimit: 64, SrcAddr: src, DstAddr: dst})
}
