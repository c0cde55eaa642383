package egress

import (
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/sandbar-dev/sandbar/internal/linux/egress/wire"
)

// nameServers returns the name servers for programs: those of the operator's configuration, or the
// host's.
func nameServers(configured []netip.AddrPort) []netip.AddrPort {
	list := configured
	if len(list) == 0 {
		b, err := os.ReadFile("/etc/resolv.conf")
		if err != nil {
			b = nil
		}
		list = parseResolvConf(string(b))
	}
	out := make([]netip.AddrPort, 0, wire.MaxServers)
	for _, s := range list[:min(len(list), wire.MaxServers)] {
		out = append(out, netip.AddrPortFrom(numericZone(s.Addr()), s.Port()))
	}
	return out
}

// parseResolvConf returns the servers of a resolv.conf(5), at most wire.MaxServers, like the C
// library.
func parseResolvConf(text string) []netip.AddrPort {
	var out []netip.AddrPort
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "nameserver" || len(out) == wire.MaxServers {
			continue
		}
		if a, err := netip.ParseAddr(f[1]); err == nil {
			out = append(out, netip.AddrPortFrom(a, wire.DNSPort))
		}
	}
	if len(out) == 0 {
		out = append(out, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), wire.DNSPort))
	}
	return out
}

// numericZone replaces an interface name in an address's zone by its index: the stack's process
// cannot look interfaces up.
func numericZone(a netip.Addr) netip.Addr {
	a = a.Unmap()
	zone := a.Zone()
	if zone == "" {
		return a
	}
	if _, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return a
	}
	i, err := net.InterfaceByName(zone)
	if err != nil {
		return a.WithZone("")
	}
	return a.WithZone(strconv.Itoa(i.Index))
}
