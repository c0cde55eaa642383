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

// Policy decides to which addresses programs may connect. It is safe for concurrent use.
type Policy struct {
	allow, deny  []netip.Prefix
	ports        []uint16
	rows4, rows6 []entry
	// own reports whether an address is this machine's, or errNoRoute if it is unreachable, which
	// the socket's connect reports then.
	own func(netip.Addr) (bool, error)
	// nat64 are the prefixes of this network's IPv4 translators (RFC 7050), nil until a name server
	// has answered.
	nat64 atomic.Pointer[[]netip.Prefix]
}

// Denied is the error of Check for a denied address.
type Denied struct {
	Addr netip.AddrPort
	Why  string // for operators: the range or the setting
}

// Error returns the address and the reason.
func (d *Denied) Error() string { return fmt.Sprintf("%v may not be reached: %s", d.Addr, d.Why) }

// errNoRoute: no route leads to the address.
var errNoRoute = errors.New("no route")

// newPolicy creates a policy. own reports which addresses are this machine's.
func newPolicy(o driver.Outbound, own func(netip.Addr) (bool, error)) *Policy {
	return &Policy{own: own, allow: o.AllowPrivate, deny: o.Deny, ports: slices.Clone(o.DeniedPorts),
		rows4: parseRows(rangeRows4()), rows6: parseRows(rangeRows6())}
}

// Check returns nil if programs may connect to dst over TCP or UDP, otherwise a *Denied. Callers
// must pass the exact address to which they connect.
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

// whyDenied returns why an address is denied, "" if it is allowed.
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
		return "" // allowed explicitly, whatever machine it belongs to
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

// isOpened reports whether the operator has allowed an address of a denied range.
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

// only returns the range of one address.
func only(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func covers(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(x netip.Prefix) bool { return x.Contains(a) })
}
