package netstack

import (
	"context"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/linux/egress/wire"
)

// Host has what the links of all sandboxes of one process share: the policy, the name servers, and
// the descriptors. It is safe for concurrent use.
type Host struct {
	policy *Policy
	names  *resolver
	routes *routes
	most   int64 // connections per sandbox
	bytes  int64 // per sandbox; 0 means no bound
	note   func(link uint32, e wire.Event)

	discovers bool          // discover runs
	asked     chan struct{} // closed after the first query of discover

	sockets budget // descriptors of all sandboxes' connections
	packets pool   // buffers of the largest packet
	pieces  pool   // smaller buffers for connections
}

// New creates a Host with valid rules (wire.ValidRange). It fails if the kernel refuses route
// queries.
func New(o driver.Outbound) (*Host, error) {
	r, err := openRoutes()
	if err != nil {
		return nil, err
	}
	return newHost(o, r), nil
}

func newHost(o driver.Outbound, r *routes) *Host {
	h := &Host{policy: newPolicy(o, r.own), names: newResolver(o.DNS), routes: r, most: int64(o.MaxConnections), bytes: o.MaxBytes,
		note: func(uint32, wire.Event) {}, asked: make(chan struct{})}
	if h.most <= 0 {
		h.most = driver.DefaultMaxConnections
	}
	h.sockets.most = maxSockets()
	h.packets.size, h.pieces.size = wire.MTU, leastBuffer
	return h
}

// Close releases the Host's resources. All its Links must be closed.
func (h *Host) Close() error { return h.routes.close() }

// maxSockets returns the descriptors for all sandboxes together: half of the process's limit, which
// Go raises to the hard limit at its start.
func maxSockets() int64 {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil || l.Cur > 1<<21 {
		return 1 << 20
	}
	return max(int64(l.Cur/2), 16)
}

// connectTimeout bounds a connect. Linux gives up after about twice that, and few programs wait
// that long.
const connectTimeout = 60 * time.Second

// dial connects a socket to dst if check allows it; otherwise the error wraps a *Denied. check is
// Policy.Check or stricter. It is asked for the program's address, and again for the address that
// the socket is about to connect to: package net replaces some addresses, such as 0.0.0.0 by the
// loopback.
func (h *Host) dial(ctx context.Context, network string, dst netip.AddrPort, check func(netip.AddrPort) error) (net.Conn, error) {
	if network == "tcp" { // a datagram must not wait
		h.awaitTranslators(ctx, dst)
	}
	if err := check(dst); err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: connectTimeout, Control: func(_, address string, _ syscall.RawConn) error {
		dst, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return check(dst)
	}}
	return d.DialContext(ctx, network, dst.String())
}

// budget counts what is in use, up to a bound.
type budget struct {
	most int64
	now  atomic.Int64
}

// reserve takes n if that much is left.
func (g *budget) reserve(n int64) bool {
	if g.now.Add(n) <= g.most {
		return true
	}
	g.now.Add(-n)
	return false
}

func (g *budget) release(n int64) { g.now.Add(-n) }

// share takes a quarter of what is left, at least lo and at most hi. It takes lo even if less is
// left.
func (g *budget) share(lo, hi int64) int64 {
	n := min(max((g.most-g.now.Load())/4, lo), hi)
	g.now.Add(n)
	return n
}
