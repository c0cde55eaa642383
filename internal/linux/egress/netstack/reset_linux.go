package netstack

import (
	"net/netip"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/sandbar-dev/sandbar/internal/linux/egress/wire"
)

// Rate of reset: rounds, the pause after each, which exceeds Linux's limit of one answer per 500 ms
// (tcp_invalid_ratelimit), and the number of segments sent at once.
const (
	resetRounds = 3
	resetPause  = time.Second
	resetAtOnce = 64
	resetRest   = 5 * time.Millisecond
)

// reset ends connections of an earlier process. The program's kernel answers a SYN on an open
// connection with an ACK of its exact sequence numbers (RFC 5961, section 4.2). The stack, which
// has no such connection, answers that with a reset. If there is a new connection between the same
// ports, the ACK reaches it and has no effect.
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

// sleep sleeps. It returns false if the link is closed.
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

// synTo returns a SYN to the program's end of a connection, from the remote address.
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
