// Package egress is the way out of a sandbox: a TCP/IP stack in the daemon's
// own process, at the other end of a TUN device that is the sandbox's only
// interface beside its loopback.
//
// What a program sends arrives here as IP packets. The stack ends each TCP
// connection and each UDP flow, and a socket of the daemon, an ordinary one,
// carries the bytes on. So nothing of the host's network is configured, no
// right is needed for it, and there is nothing to come in by: the sandbox has
// no address that anything outside knows. Names are asked of the gateway
// (Gateway, port 53), which asks the operator's servers.
//
// What a Host promises of all its sandboxes together, and a Link of its own:
//
//   - The policy is asked about the very address that is connected to, in the
//     moment before the daemon's socket connects (Policy). A name that changes
//     its address between two looks gains nothing.
//   - Never reached, unless the operator says otherwise: this machine by any of
//     its addresses, private and special ranges, cloud metadata, mail's port 25.
//     Never at all: multicast, broadcast, other sandboxes.
//   - A refusal is an answer: a reset for TCP, "port unreachable" for UDP,
//     REFUSED for a name server's question. Nothing hangs because of the policy.
//   - Connections and flows, the rate at which they are made, the memory that
//     waits in them and the questions to name servers are bounded for each
//     sandbox, descriptors also for the daemon, and bytes if the operator says so.
//   - A Link that nothing was sent over costs a goroutine and a descriptor: its
//     stack is made with the first packet. After Close nothing of it remains.
//
// It does not look into what is sent, keeps no record of it, and does not keep
// one sandbox from using up the host's bandwidth.
package egress

import "net/netip"

// The link between a sandbox and the stack. The addresses are of 192.0.0.0/29,
// which RFC 7335 sets aside for links that begin and end in one machine, so
// that they collide with no network anybody wants to reach; and of a unique
// local prefix (RFC 4193) with random bits.
var (
	// Gateway is the stack's address. Only DNS answers there, on port 53.
	Gateway = netip.AddrFrom4([4]byte{192, 0, 0, 1})
	// Address is the sandbox's, with the length of the link's prefix.
	Address = netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 0, 2}), 29)
	// Gateway6 is the stack's IPv6 address; nothing answers there.
	Gateway6 = netip.AddrFrom16([16]byte{0: 0xfd, 0x5b, 0xa4, 0xd1, 0x7c, 0x32, 15: 1})
	// Address6 is the sandbox's, with the length of the link's prefix.
	Address6 = netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 0x5b, 0xa4, 0xd1, 0x7c, 0x32, 15: 2}), 64)
)

// MTU is the link's largest packet in bytes: packets do not leave the machine,
// and the larger they are the fewer there are.
const MTU = 65520

// dnsPort is where name servers listen.
const dnsPort = 53
