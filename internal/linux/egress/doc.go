// Package egress is the way out of sandboxes, as the daemon has it: it starts one
// process (package netstack) in which a TCP/IP stack takes apart what programs
// send, hands it the sandboxes' TUN devices, and starts it again when it dies. The
// daemon itself reads no packet.
//
// What it promises:
//
//   - The process starts with the first sandbox that reaches out, ends a few seconds
//     after the last or with the Host, and dies with the daemon. A program that does not dispatch to it
//     (child.Claim) is refused a Host.
//   - When the process dies, programs see their TCP connections end; the device,
//     what is charged to max_bytes and the sandbox stay. Until the next process
//     runs, packets wait in the device's queue or are dropped. The pause before a
//     restart is at most 30 s.
//   - When Link.Close returns, no process holds the device. A process that does not
//     let go of it in time is killed.
package egress

import "github.com/sandbar-dev/sandbar/internal/linux/egress/wire"

// The link's addresses, for who configures the sandbox's end; see package wire.
var (
	Gateway, Gateway6 = wire.Gateway, wire.Gateway6
	Address, Address6 = wire.Address, wire.Address6
)

// MTU is the link's largest packet in bytes.
const MTU = wire.MTU
