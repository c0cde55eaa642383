package wire

import "net/netip"

// The link between a sandbox and the stack. The IPv4 addresses are of 192.0.0.0/29, which RFC 7335
// reserves for links inside one machine, so they collide with no reachable network. The IPv6
// addresses are of a unique local prefix (RFC 4193) with random bits.
var (
	// Gateway is the stack's address. It answers DNS on port 53 only.
	Gateway = netip.AddrFrom4([4]byte{192, 0, 0, 1})
	// Address is the sandbox's address, with the prefix length of the link.
	Address = netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 0, 2}), 29)
	// Gateway6 is the stack's IPv6 address; nothing answers there.
	Gateway6 = netip.AddrFrom16([16]byte{0: 0xfd, 0x5b, 0xa4, 0xd1, 0x7c, 0x32, 15: 1})
	// Address6 is the sandbox's IPv6 address, with the prefix length of the link.
	Address6 = netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 0x5b, 0xa4, 0xd1, 0x7c, 0x32, 15: 2}), 64)
)

// MTU is the largest packet of the link, in bytes. Packets do not leave the machine, so a large MTU
// only reduces their number.
const MTU = 65520

// DNSPort is the port of name servers.
const DNSPort = 53

// MaxServers is the most name servers that are asked, as in the C library (resolv.conf(5)).
const MaxServers = 3

// Name is the argv[0] under which the daemon starts the stack's process.
const Name = "sandbar-network"

// The ledger of a link is a memory file that outlives the stack's process. It has the number of
// bytes that the link has used, and the open TCP connections. Only stack processes access it.
const (
	LedgerHead = 16 // bytes before the slots; the first 8 are the used bytes
	LedgerSlot = 24 // bytes per connection
)

// LedgerSize returns the size in bytes of a ledger for that many connections. Each connection has
// two slots, because those of a dead stack process stay in use until its connections have been
// reset.
func LedgerSize(connections int64) int64 { return LedgerHead + 2*LedgerSlot*connections }
