package driver

import "net/netip"

// Outbound is the operator's rules for sandboxes with sandbar.NetworkOutbound.
// Whatever they say, a program never reaches multicast and broadcast addresses
// nor another sandbox, and nothing outside reaches a program.
type Outbound struct {
	// AllowPrivate opens ranges that are shut otherwise: private networks,
	// link-local and other special ranges. The host's loopback is opened only
	// by a range within it (127.0.0.0/8, ::1/128), and the host's other
	// addresses and those of cloud metadata only by the one address.
	AllowPrivate []netip.Prefix
	// Deny shuts ranges, also those of AllowPrivate.
	Deny []netip.Prefix
	// DeniedPorts are TCP and UDP ports that are reached nowhere.
	DeniedPorts []uint16
	// DNS are the name servers that are asked on behalf of sandboxes, which may
	// have any address. Empty: those of the host.
	DNS []netip.AddrPort
	// MaxConnections is how many TCP connections and UDP flows one sandbox may
	// have at once. Zero: DefaultMaxConnections.
	MaxConnections int
	// MaxBytes is how many bytes one sandbox may send and receive over its life,
	// packets' headers included. Beyond it all is cut and refused. Zero or
	// sandbar.Unlimited: no bound.
	MaxBytes int64
}

// DefaultMaxConnections is how many connections a sandbox may have at once if
// the operator says nothing.
const DefaultMaxConnections = 1024
