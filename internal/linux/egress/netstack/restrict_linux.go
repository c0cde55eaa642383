package netstack

import (
	"context"
	"net/netip"

	"github.com/sandbar-dev/sandbar/internal/linux/egress/wire"
)

// restriction is what the owner of one sandbox denies within the operator's rules.
type restriction struct{ allow, deny []netip.Prefix }

// denies reports whether an address is denied. For an IPv6 address from which routers or
// translators may derive IPv4 ones, all of them must be allowed.
func (r *restriction) denies(a netip.Addr, embedded []netip.Addr) bool {
	for _, x := range append(embedded, a) {
		if covers(r.deny, x) && !covers(r.allow, x) {
			return true
		}
	}
	return false
}

// check is Policy.Check with the link's restriction.
func (l *Link) check(dst netip.AddrPort) error {
	if l.denies(dst.Addr()) {
		return &Denied{dst, "the sandbox's owner denies it"}
	}
	return l.host.policy.Check(dst)
}

func (l *Link) denies(a netip.Addr) bool {
	return l.restriction.Load().denies(a, l.host.policy.embeddedIPv4(a))
}

// deniesNames reports whether the gateway answers no DNS query.
func (l *Link) deniesNames() bool { return l.denies(wire.Gateway) }

// restrict replaces the restriction and cuts connections and flows to addresses that it denies.
// When it returns, no new one can be made to them.
func (l *Link) restrict(r restriction) {
	l.restriction.Store(&r)
	l.mu.Lock()
	defer l.mu.Unlock()
	for o := range l.open {
		if l.denies(o.to.Addr()) {
			o.cut()
		}
	}
}

// openFlow is a connection or flow, from before the policy was asked until its end.
type openFlow struct {
	to  netip.AddrPort
	cut context.CancelFunc
}

// track returns the context of a connection or flow, which ends with the link or by restrict. The
// policy must be asked after it: so no connection escapes a restriction that comes in between.
func (l *Link) track(to netip.AddrPort) (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancel(l.ctx)
	o := &openFlow{to, cancel}
	l.mu.Lock()
	l.open[o] = struct{}{}
	l.mu.Unlock()
	return ctx, func() {
		l.mu.Lock()
		delete(l.open, o)
		l.mu.Unlock()
		cancel()
	}
}
