// Package egress is the daemon's side of the sandboxes' network access. It starts one process
// (package netstack) with a TCP/IP stack per sandbox, passes it the sandboxes' TUN devices, and
// restarts it if it dies. The daemon itself parses no packet.
//
// Invariants:
//
//   - The process starts with the first sandbox that has a network. It ends a few seconds after the
//     last such sandbox, or with the Host, and dies with the daemon. New fails in a program that
//     does not dispatch to it (child.Claim).
//   - If the process dies, programs see their TCP connections end. The device, the bytes counted
//     towards max_bytes and the sandbox stay. Until the next process runs, packets wait in the
//     device's queue or are dropped. The pause before a restart is at most 30 s.
//   - When Link.Close returns, no process has the device open. A process that does not release it
//     in time is killed.
package egress

import (
	"net/netip"

	agentwire "github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/linux/egress/wire"
)

// Addresses of the link, for the configuration of the sandbox's end; see package wire.
var (
	Gateway, Gateway6 = wire.Gateway, wire.Gateway6
	Address, Address6 = wire.Address, wire.Address6
)

// MTU is the largest packet of the link, in bytes.
const MTU = wire.MTU

// Interface is the network device at the sandbox's end of the link.
func Interface() agentwire.Interface {
	addr := func(a netip.Prefix, gateway netip.Addr) agentwire.Addr {
		return agentwire.Addr{IP: a.Addr().AsSlice(), Bits: uint8(a.Bits()), Gateway: gateway.AsSlice()}
	}
	return agentwire.Interface{Name: "eth0", MTU: MTU, Addrs: []agentwire.Addr{addr(Address, Gateway), addr(Address6, Gateway6)}}
}
