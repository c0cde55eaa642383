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

// flowIdle ends a UDP flow over which nothing was sent for so long, either way.
// RFC 4787 asks for two minutes; QUIC, the longest-lived, says something every
// half minute at least.
const flowIdle = 2 * time.Minute

// flowBuffer is how many bytes of datagrams wait in one flow.
const flowBuffer = 256 << 10

// onUDP starts a flow with the first datagram from one port of the sandbox to
// one of the world. It is called by the goroutine that reads the device, so it
// does not wait.
func (s *netstack) onUDP(r *udp.ForwarderRequest) {
	l, id := s.link, r.ID()
	from, to := addrPort(id.RemoteAddress, id.RemotePort), addrPort(id.LocalAddress, id.LocalPort)
	if !l.fresh.Allow() || !l.begin() {
		return // lost, as datagrams may be
	}
	refuse := func() {
		s.unreachable(from, to)
		l.busy.Done()
	}
	if !l.reserveFlow() {
		refuse()
		return
	}
	out, err := l.host.dial(l.ctx, "udp", to)
	if err != nil {
		l.releaseFlow()
		refuse()
		return
	}
	f := &flow{stack: s, wq: &waiter.Queue{}, out: out.(*net.UDPConn), from: from, to: to, size: l.memory.share(leastBuffer, flowBuffer)}
	ep, terr := r.CreateEndpoint(f.wq)
	if terr != nil {
		f.release()
		return
	}
	ep.SocketOptions().SetReceiveBufferSize(f.size, true)
	f.in = ep
	go f.run()
}

// flow carries the datagrams between two ports.
type flow struct {
	stack    *netstack
	wq       *waiter.Queue
	in       tcpip.Endpoint // the program's
	out      *net.UDPConn   // the world's
	from, to netip.AddrPort
	size     int64
	last     atomic.Pointer[time.Time] // when something was sent, by a clock that does not jump
}

func (f *flow) release() {
	f.out.Close()
	l := f.stack.link
	l.memory.release(f.size)
	l.releaseFlow()
	l.busy.Done()
}

// run carries datagrams both ways until nothing was sent for flowIdle.
func (f *flow) run() {
	defer f.release()
	ctx, cancel := context.WithCancel(f.stack.link.ctx)
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

// deadline is when the flow ends unless something is sent before.
func (f *flow) deadline() time.Time { return f.last.Load().Add(flowIdle) }

func (f *flow) over(ctx context.Context) bool {
	return ctx.Err() != nil || !time.Now().Before(f.deadline())
}

// copyOut carries what the program sends.
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

// sendOne sends a datagram; false when the flow cannot go on.
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
	// Too long, or no memory just now: a datagram is lost, and the flow goes on.
	return f.note(err)
}

// copyIn carries what the world sends.
func (f *flow) copyIn(ctx context.Context) {
	raw, err := f.out.SyscallConn()
	if err != nil {
		return
	}
	for !f.over(ctx) {
		f.out.SetReadDeadline(f.deadline())
		if ctx.Err() != nil {
			return // the deadline that cancelling set has just been undone
		}
		err := raw.Read(func(fd uintptr) bool { return f.receiveOne(int(fd)) })
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
	}
}

// receiveOne passes on a datagram; false when there is none.
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
	_, _ = f.in.Write(&r, tcpip.WriteOptions{}) // what does not fit is lost
	return true
}

// note tells the program what the world's socket has heard; false if the socket
// is of no more use.
func (f *flow) note(err error) bool {
	if errors.Is(err, syscall.ECONNREFUSED) {
		f.stack.unreachable(f.from, f.to)
	}
	return !errors.Is(err, net.ErrClosed)
}

// unreachable tells the program that nobody takes what it sent: an ICMP message
// "port unreachable", from the address it sent to.
func (s *netstack) unreachable(from, to netip.AddrPort) {
	if from.Addr().Is4() {
		s.link.dev.Send([][]byte{unreachable4(from, to)})
	} else {
		s.link.dev.Send([][]byte{unreachable6(from, to)})
	}
}

// unreachable4 is the message with, as the program's kernel wants it, the headers
// of what could not be delivered: the addresses and the ports. Its length and
// checksum nobody looks at.
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

// unreachable6 is the same for IPv6.
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
