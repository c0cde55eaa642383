package netstack

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/linux/egress/wire"
)

// Policy decides where programs may connect. It is safe for concurrent use.
type Policy struct {
	allow, deny  []netip.Prefix
	ports        []uint16
	rows4, rows6 []entry
	// own reports whether an address is this machine's; errNoRoute where
	// nothing leads to it, which is left to the connecting socket to say.
	own func(netip.Addr) (bool, error)
	// nat64 are the prefixes of this network's translators to IPv4 (RFC 7050);
	// nil while no name server has told them.
	nat64 atomic.Pointer[[]netip.Prefix]
}

// Denied is what Check returns for an address that must not be reached.
type Denied struct {
	Addr netip.AddrPort
	Why  string // for an operator: the range, or the setting
}

// Error names the address and what shuts it.
func (d *Denied) Error() string { return fmt.Sprintf("%v may not be reached: %s", d.Addr, d.Why) }

// errNoRoute is the answer of Policy.own for an address to which no route leads.
var errNoRoute = errors.New("no route")

// newPolicy makes a policy; own tells which addresses are this machine's.
func newPolicy(o driver.Outbound, own func(netip.Addr) (bool, error)) *Policy {
	return &Policy{own: own, allow: o.AllowPrivate, deny: o.Deny, ports: slices.Clone(o.DeniedPorts),
		rows4: parseRows(rangeRows4()), rows6: parseRows(rangeRows6())}
}

// Check returns nil if programs may connect to dst, over TCP or UDP, and
// otherwise a *Denied. It looks at the address as it is given, so it must be
// asked about the one that is connected to.
func (p *Policy) Check(dst netip.AddrPort) error {
	deny := func(why string) error { return &Denied{dst, why} }
	switch {
	case dst.Port() == 0:
		return deny("there is no port 0")
	case slices.Contains(p.ports, dst.Port()):
		return deny("the port is one of network.ports_denied")
	}
	if why := p.whyDenied(dst.Addr()); why != "" {
		return deny(why)
	}
	return nil
}

// whyDenied says why an address may not be reached, "" if it may.
func (p *Policy) whyDenied(a netip.Addr) string {
	switch {
	case !a.IsValid() || a.Zone() != "":
		return "it is no address, or one of a single link"
	case wire.Address.Contains(a) || wire.Address6.Contains(a):
		return "it is the sandbox's own link"
	case covers(p.deny, a):
		return "it is in network.deny"
	}
	for _, v4 := range p.embeddedIPv4(a) {
		if why := p.whyDenied(v4); why != "" {
			return "it leads to " + v4.String() + ": " + why
		}
	}
	e := p.classify(a)
	if !p.isOpened(e, a) {
		return e.why
	}
	if p.mayTranslate(e, a) {
		return "no name server tells whether this network translates such addresses to IPv4 (RFC 7050)"
	}
	if e.kind == loopback || slices.Contains(p.allow, only(a)) {
		return "" // opened by name, whosever it is
	}
	switch own, err := p.own(a); {
	case errors.Is(err, errNoRoute):
		return ""
	case err != nil:
		return "it cannot be told whether it is this machine: " + err.Error()
	case own:
		return "it is an address of this machine"
	}
	return ""
}

// isOpened reports whether what shuts an address's range has been lifted.
func (p *Policy) isOpened(e entry, a netip.Addr) bool {
	switch e.kind {
	case open:
		return true
	case special:
		return covers(p.allow, a)
	case loopback:
		return slices.ContainsFunc(p.allow, func(x netip.Prefix) bool {
			return x.Contains(a) && x.Bits() >= e.prefix.Bits()
		})
	case metadata:
		return slices.Contains(p.allow, only(a))
	}
	return false
}

// only is the range of one address.
func only(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func covers(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(x netip.Prefix) bool { return x.Contains(a) })
}
