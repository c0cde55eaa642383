package netstack

import (
	"net/netip"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/sandbar-dev/sandbar/internal/linux/egress/wire"
)

// Pace of reset: rounds, the pause after each, which is longer than the one in
// which Linux answers once (tcp_invalid_ratelimit, 500 ms), and how many segments
// are sent at once.
const (
	resetRounds = 3
	resetPause  = time.Second
	resetAtOnce = 64
	resetRest   = 5 * time.Millisecond
)

// reset ends connections that an earlier process has left open. The program's
// kernel answers a SYN on an open connection with an ACK of its exact numbers (RFC
// 5961, section 4.2), and the stack, which has no such connection, answers that
// with a reset. Where there is a new connection between the same ports, its ACK
// comes to that and changes nothing.
func (l *Link) reset(left map[int]conn) {
	for range resetRounds {
		n := 0
		for _, c := range left {
			l.dev.Send([][]byte{synTo(c)})
			if n++; n%resetAtOnce == 0 && !l.sleep(resetRest) {
				return
			}
		}
		if !l.sleep(resetPause) {
			return
		}
	}
	for slot := range left {
		l.ledger.erase(slot)
	}
}

// sleep waits; false when the link is closed.
func (l *Link) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.ctx.Done():
		return false
	}
}

// synTo is a SYN to the program's end of a connection, from the world's.
func synTo(c conn) []byte {
	from, to := c.to, netip.AddrPortFrom(wire.Address.Addr(), c.port)
	size := header.IPv4MinimumSize
	if from.Addr().Is6() {
		to, size = netip.AddrPortFrom(wire.Address6.Addr(), c.port), header.IPv6MinimumSize
	}
	b := make([]byte, size+header.TCPMinimumSize)
	src, dst := tcpip.AddrFromSlice(from.Addr().AsSlice()), tcpip.AddrFromSlice(to.Addr().AsSlice())
	if from.Addr().Is4() {
		encode4(b, src, dst, header.TCPProtocolNumber, len(b))
	} else {
		encode6(b, src, dst, header.TCPProtocolNumber, header.TCPMinimumSize)
	}
	tcp := header.TCP(b[size:])
	tcp.Encode(&header.TCPFields{SrcPort: from.Port(), DstPort: to.Port(), DataOffset: header.TCPMinimumSize, Flags: header.TCPFlagSyn, WindowSize: 1})
	tcp.SetChecksum(^checksum.Checksum(tcp, header.PseudoHeaderChecksum(header.TCPProtocolNumber, src, dst, header.TCPMinimumSize)))
	return b
}
