package netstack

import (
	"net/netip"

	"github.com/sandbar-dev/sandbar/internal/linux/egress/wire"
)

// Offsets and values of IP headers that are checked before a packet is accepted.
const (
	ipv4Header = 20
	ipv6Header = 40

	protoTCP      = 6
	protoUDP      = 17
	protoFragment = 44 // an IPv6 extension header
)

// wanted reports whether a packet is TCP or UDP from the sandbox's own address. Anything else is
// neighbour or router discovery by the sandbox's kernel, or has a forged address.
func wanted(b []byte) bool {
	if len(b) < ipv4Header {
		return false
	}
	switch b[0] >> 4 {
	case 4:
		return netip.AddrFrom4([4]byte(b[12:16])) == wire.Address.Addr() && (b[9] == protoTCP || b[9] == protoUDP)
	case 6:
		return len(b) >= ipv6Header && netip.AddrFrom16([16]byte(b[8:24])) == wire.Address6.Addr() &&
			(b[6] == protoTCP || b[6] == protoUDP || b[6] == protoFragment)
	}
	return false
}
