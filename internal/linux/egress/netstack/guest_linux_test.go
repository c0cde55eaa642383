package netstack

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/linux/egress/wire"
)

func TestMain(m *testing.M) {
	Main()
	goleak.VerifyTestMain(m)
}

// patience ends a test that hangs; no test needs that long.
const patience = 2 * time.Minute

// guest is a second stack at the other end of the device. It has the role of a sandbox's kernel.
type guest struct {
	t    testing.TB
	link *Link
	host *Host
	ip   *stack.Stack
	ep   *channel.Endpoint
	dev  *memory
}

// memory is a Device in memory.
type memory struct {
	toHost chan []byte
	done   chan struct{}
	once   sync.Once
	send   func(packet []byte)
}

func (m *memory) Receive(deliver func([]byte)) error {
	for {
		select {
		case p := <-m.toHost:
			deliver(p)
		case <-m.done:
			return os.ErrClosed
		}
	}
}

func (m *memory) Send(parts [][]byte) { m.send(bytes.Join(parts, nil)) }

func (m *memory) Close() error {
	m.once.Do(func() { close(m.done) })
	return nil
}

// rules returns the rules of most tests, which allow the loopback as the outside network.
func rules() driver.Outbound {
	return driver.Outbound{AllowPrivate: prefixes("127.0.0.0/8", "::1/128"), DeniedPorts: []uint16{25}}
}

// newHostFor makes a Host that is closed at the test's end.
func newHostFor(t testing.TB, o driver.Outbound) *Host {
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n := h.sockets.now.Load(); n != 0 {
			t.Errorf("%d descriptors are still counted", n)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// newGuest makes a guest on a Host of its own.
func newGuest(t testing.TB, o driver.Outbound) *guest { return newHostFor(t, o).guest(t) }

func (h *Host) guest(t testing.TB) *guest {
	g := &guest{t: t, host: h, ep: channel.New(4096, wire.MTU, ""), dev: &memory{toHost: make(chan []byte, 4096), done: make(chan struct{})}}
	g.dev.send = func(p []byte) {
		proto := header.IPv4ProtocolNumber
		if p[0]>>4 == 6 {
			proto = header.IPv6ProtocolNumber
		}
		pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(p)})
		g.ep.InjectInbound(proto, pkt)
		pkt.DecRef()
	}
	g.ip = stack.New(stack.Options{
		NetworkProtocols: []stack.NetworkProtocolFactory{
			ipv4.NewProtocolWithOptions(ipv4.Options{AllowExternalLoopbackTraffic: true}),
			ipv6.NewProtocolWithOptions(ipv6.Options{AllowExternalLoopbackTraffic: true})},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
	})
	check := func(err tcpip.Error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	check(g.ip.CreateNIC(1, g.ep))
	for _, a := range []netip.Prefix{wire.Address, wire.Address6} {
		proto := ipv4.ProtocolNumber
		if a.Addr().Is6() {
			proto = ipv6.ProtocolNumber
		}
		check(g.ip.AddProtocolAddress(1, tcpip.ProtocolAddress{Protocol: proto, AddressWithPrefix: tcpip.AddressWithPrefix{
			Address: tcpip.AddrFromSlice(a.Addr().AsSlice()), PrefixLen: a.Bits()}}, stack.AddressProperties{}))
	}
	g.ip.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: 1}, {Destination: header.IPv6EmptySubnet, NIC: 1}})
	ctx, stop := context.WithCancel(context.Background())
	var pump sync.WaitGroup
	pump.Go(func() {
		for {
			pkt := g.ep.ReadContext(ctx)
			if pkt == nil {
				return
			}
			b := pkt.ToView().AsSlice()
			pkt.DecRef()
			select {
			case g.dev.toHost <- b:
			case <-g.dev.done:
			}
		}
	})
	g.link = h.Attach(g.dev)
	t.Cleanup(func() {
		g.close()
		stop()
		pump.Wait()
		g.ip.Close()
		g.ip.Wait()
	})
	return g
}

// close closes the link and checks that nothing is left of it.
func (g *guest) close() {
	if err := g.link.Close(); err != nil {
		g.t.Error(err)
	}
	if n := g.link.conns.now.Load(); n != 0 {
		g.t.Errorf("%d connections are still counted", n)
	}
	if n := g.link.memory.now.Load(); n != 0 {
		g.t.Errorf("%d bytes of buffers are still counted", n)
	}
}

func full(a netip.AddrPort) (tcpip.FullAddress, tcpip.NetworkProtocolNumber) {
	proto := ipv4.ProtocolNumber
	if a.Addr().Is6() {
		proto = ipv6.ProtocolNumber
	}
	return tcpip.FullAddress{NIC: 1, Addr: tcpip.AddrFromSlice(a.Addr().AsSlice()), Port: a.Port()}, proto
}

// tcp connects the guest to an outside address.
func (g *guest) tcp(to netip.AddrPort) (*gonet.TCPConn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	a, proto := full(to)
	c, err := gonet.DialContextTCP(ctx, g.ip, a, proto)
	if ctx.Err() != nil {
		g.t.Errorf("connecting to %v hangs", to)
	}
	return c, err
}

// mustTCP is tcp and fails the test on an error; the connection has a deadline.
func (g *guest) mustTCP(to netip.AddrPort) *gonet.TCPConn {
	g.t.Helper()
	c, err := g.tcp(to)
	if err != nil {
		g.t.Fatalf("connecting to %v: %v", to, err)
	}
	c.SetDeadline(time.Now().Add(patience))
	g.t.Cleanup(func() { c.Close() })
	return c
}

// mustUDP returns a socket of the guest that is connected to an outside address.
func (g *guest) mustUDP(to netip.AddrPort) *gonet.UDPConn {
	g.t.Helper()
	a, proto := full(to)
	c, err := gonet.DialUDP(g.ip, nil, &a, proto)
	if err != nil {
		g.t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(patience))
	g.t.Cleanup(func() { c.Close() })
	return c
}

// world starts a server on the loopback. It calls serve for each connection and closes the
// connection afterwards.
func world(t testing.TB, at string, serve func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(patience))
				serve(c.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// until waits for a condition.
func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// isReset reports that a connection ended by a reset and not by a timeout.
func isReset(err error) bool {
	var n net.Error
	return err != nil && !(errors.As(err, &n) && n.Timeout())
}
