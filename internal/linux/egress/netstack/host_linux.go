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

// Host is the ways out of all sandboxes of one process: the policy, the name
// servers, and the descriptors they share. It is safe for concurrent use.
type Host struct {
	policy *Policy
	names  *resolver
	routes *routes
	most   int64 // connections of one sandbox
	bytes  int64 // of one sandbox, if over 0
	note   func(link uint32, e wire.Event)

	discovers bool          // discover runs
	asked     chan struct{} // closed when discover has asked once

	sockets budget // descriptors of all sandboxes' connections
	packets pool   // as large as a packet can be
	pieces  pool   // for connections whose buffers are smaller than that
}

// New makes a Host of rules that are valid (wire.ValidRange). It fails where the
// kernel cannot be asked for its routes.
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

// Close releases what the Host holds; all its Links must be closed.
func (h *Host) Close() error { return h.routes.close() }

// mostSockets is how many descriptors sandboxes may have together: half of what
// the process may have, which Go raises to the hard limit at its start.
func maxSockets() int64 {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil || l.Cur > 1<<21 {
		return 1 << 20
	}
	return max(int64(l.Cur/2), 16)
}

// connectTimeout is how long a connection may take to be made. Linux gives up
// after about twice that; few programs wait so long.
const connectTimeout = 60 * time.Second

// dial connects a socket of the process's to dst, if the policy lets it; the
// error is then a *Denied within. The policy is asked about what the program
// wants, and again by the socket itself about what it is about to connect to:
// package net takes some addresses for others, 0.0.0.0 for the loopback.
func (h *Host) dial(ctx context.Context, network string, dst netip.AddrPort) (net.Conn, error) {
	if network == "tcp" { // a datagram is refused, as its flow may not wait
		h.awaitTranslators(ctx, dst)
	}
	if err := h.policy.Check(dst); err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: connectTimeout, Control: h.control}
	return d.DialContext(ctx, network, dst.String())
}

func (h *Host) control(_, address string, _ syscall.RawConn) error {
	dst, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	return h.policy.Check(dst)
}

// gauge counts what is in use, up to a bound.
type budget struct {
	most int64
	now  atomic.Int64
}

// take takes n if they are there.
func (g *budget) reserve(n int64) bool {
	if g.now.Add(n) <= g.most {
		return true
	}
	g.now.Add(-n)
	return false
}

func (g *budget) release(n int64) { g.now.Add(-n) }

// share takes a part of what is left: a quarter, but at least lo and at most hi.
// lo it takes even if there is less.
func (g *budget) share(lo, hi int64) int64 {
	n := min(max((g.most-g.now.Load())/4, lo), hi)
	g.now.Add(n)
	return n
}
