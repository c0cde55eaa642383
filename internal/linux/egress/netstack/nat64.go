package netstack

import (
	"net/netip"
	"slices"
)

// translated is the well-known prefix of IPv4 translators (RFC 6052), translatedHere the range of a
// network's own prefixes (RFC 8215).
var (
	translated     = netip.MustParsePrefix("64:ff9b::/96")
	translatedHere = netip.MustParsePrefix("64:ff9b:1::/48")
)

// layout is the position of an IPv4 address in an IPv6 address, by the length of the translator's
// prefix (RFC 6052, section 2.2). Byte 8 is never part of it.
type layout struct {
	bits int
	at   [4]int
}

func layouts() []layout {
	return []layout{
		{32, [4]int{4, 5, 6, 7}}, {40, [4]int{5, 6, 7, 9}}, {48, [4]int{6, 7, 9, 10}},
		{56, [4]int{7, 9, 10, 11}}, {64, [4]int{9, 10, 11, 12}}, {96, [4]int{12, 13, 14, 15}},
	}
}

// read returns the IPv4 address. It ignores the bits that must be zero by RFC 6052, because a
// translator may ignore them too.
func (l layout) read(a netip.Addr) netip.Addr {
	b := a.As16()
	return netip.AddrFrom4([4]byte{b[l.at[0]], b[l.at[1]], b[l.at[2]], b[l.at[3]]})
}

// embeddedIPv4 returns the IPv4 addresses that routers or translators may derive from an IPv6
// address.
func (p *Policy) embeddedIPv4(a netip.Addr) (out []netip.Addr) {
	if !a.Is6() {
		return nil
	}
	b := a.As16()
	last := netip.AddrFrom4([4]byte(b[12:]))
	known := false
	if list := p.nat64.Load(); list != nil {
		for _, x := range *list {
			if !x.Contains(a) {
				continue
			}
			known = true
			for _, l := range layouts() {
				if l.bits == x.Bits() {
					out = append(out, l.read(a))
				}
			}
		}
	}
	switch {
	case translated.Contains(a):
		out = append(out, last)
	case translatedHere.Contains(a) && !known:
		for _, l := range layouts() {
			if l.bits >= translatedHere.Bits() {
				out = append(out, l.read(a))
			}
		}
	case b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe: // ISATAP, RFC 5214
		out = append(out, last)
	}
	return out
}

// mayTranslate reports whether an address could be that of an unknown translator: a public one,
// while no name server has answered. An entry of AllowPrivate allows it.
func (p *Policy) mayTranslate(e entry, a netip.Addr) bool {
	return a.Is6() && e.kind == open && p.nat64.Load() == nil && !translated.Contains(a) && !covers(p.allow, a)
}

// wellKnown are the addresses of ipv4only.arpa, which a DNS64 server translates (RFC 7050, section
// 2.2).
var wellKnown = []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 0, 170}), netip.AddrFrom4([4]byte{192, 0, 0, 171})}

// translators returns the prefixes from which an address can be built out of a well-known one. If
// there are several it returns all: a superfluous prefix only denies more.
func translators(a netip.Addr) (out []netip.Prefix) {
	if !a.Is6() || a.Is4In6() {
		return nil
	}
	for _, l := range layouts() {
		if slices.Contains(wellKnown, l.read(a)) {
			out = append(out, netip.PrefixFrom(a, l.bits).Masked())
		}
	}
	return out
}
