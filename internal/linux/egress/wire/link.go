package wire

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

// DNSPort is where name servers listen.
const DNSPort = 53

// MaxServers is how many name servers are asked, as by the C library.
const MaxServers = 3

// Name is the argv[0] under which the daemon starts the stack's process.
const Name = "sandbar-network"

// The ledger of a link is a memory file that outlives the stack's process: how
// many bytes are charged to the link, and the TCP connections that are open.
// Only stack processes read and write it.
const (
	LedgerHead = 16 // bytes before the slots; the first 8 are the charge
	LedgerSlot = 24 // bytes of a connection
)

// LedgerSize returns the size in bytes of the ledger of a link with so many
// connections. There are two slots a connection, since those of a stack process
// that has died stay until they have been reset.
func LedgerSize(connections int64) int64 { return LedgerHead + 2*LedgerSlot*connections }
