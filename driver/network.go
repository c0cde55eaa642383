package driver

import "net/netip"

// Outbound is the operator's rules for sandboxes with sandbar.NetworkOutbound. In any case a
// program cannot reach multicast and broadcast addresses or another sandbox, and cannot receive
// connections from outside.
type Outbound struct {
	// AllowPrivate allows ranges that are denied by default: private networks, link-local and other
	// special ranges. The host's loopback is allowed only by a range within it (127.0.0.0/8,
	// ::1/128). The host's other addresses and cloud metadata addresses are allowed only by a range
	// of that one address.
	AllowPrivate []netip.Prefix
	// Deny denies ranges, even if AllowPrivate has them.
	Deny []netip.Prefix
	// DeniedPorts are TCP and UDP ports that are denied for all addresses.
	DeniedPorts []uint16
	// DNS are the name servers for sandboxes. They may have any address. Default: the host's.
	DNS []netip.AddrPort
	// MaxConnections is the largest number of TCP connections and UDP flows of one sandbox at once.
	// Default: DefaultMaxConnections.
	MaxConnections int
	// MaxBytes is the largest number of bytes that one sandbox may send and receive in its life,
	// packet headers included. Beyond it all connections are closed and further ones refused. Zero
	// or sandbar.Unlimited: no limit.
	MaxBytes int64
}

// DefaultMaxConnections is the default of Outbound.MaxConnections.
const DefaultMaxConnections = 1024
