package netstack

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sandbar-dev/sandbar/internal/linux/egress/wire"
)

// The owner of a sandbox denies addresses: their connections and flows are cut, new ones are
// refused, and so are DNS queries if the gateway is denied. What the operator denies stays denied.
func TestRestrict(t *testing.T) {
	g := newGuest(t, rules())
	echo := world(t, "127.0.0.1:0", func(c *net.TCPConn) { io.Copy(c, c) })
	other := world(t, "127.0.0.2:0", func(c *net.TCPConn) { io.Copy(c, c) })
	var seen atomic.Int64
	udp := datagrams(t, "127.0.0.1:0", &seen)
	works := func(c net.Conn) bool {
		b := make([]byte, 1)
		_, err := c.Write([]byte("x"))
		if err == nil {
			_, err = c.Read(b)
		}
		return err == nil
	}
	cut, stays := g.mustTCP(echo), g.mustTCP(other)
	flow := g.mustUDP(udp)
	for _, c := range []net.Conn{cut, stays, flow} {
		if !works(c) {
			t.Fatal("a connection does not work")
		}
	}
	g.link.restrict(restriction{deny: prefixes("127.0.0.0/8", "10.0.0.0/8"), allow: prefixes("127.0.0.2/32", "192.168.0.0/16")})
	if _, err := cut.Read(make([]byte, 1)); !isReset(err) {
		t.Errorf("a connection to a denied address: %v", err)
	}
	if !works(stays) {
		t.Error("a connection to an allowed address is cut")
	}
	until(t, "the flow has ended", func() bool { return g.link.conns.now.Load() == 1 })
	before := seen.Load()
	again := g.mustUDP(udp)
	if _, err := again.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	refused(t, again)
	if seen.Load() != before {
		t.Error("a datagram reaches a denied address")
	}
	for _, to := range []netip.AddrPort{echo, netip.MustParseAddrPort("192.168.0.1:80")} { // the second is the operator's
		if c, err := g.tcp(to); err == nil {
			c.Close()
			t.Errorf("connected to %v", to)
		}
	}
	g.link.restrict(restriction{})
	if !works(g.mustTCP(echo)) {
		t.Error("without a restriction nothing works")
	}
}

// Without the gateway there are no names.
func TestRestrictNames(t *testing.T) {
	var asked atomic.Int64
	g := newGuest(t, withNames(names(t, func(q dnsmessage.Message, _ string) []byte {
		asked.Add(1)
		return pack(t, reply(q, "192.0.2.7"))
	})))
	q := question(t, 7, "name.example.", dnsmessage.TypeA)
	overTCP := func() dnsmessage.Message {
		c := g.mustTCP(netip.AddrPortFrom(wire.Gateway, wire.DNSPort))
		defer c.Close()
		c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(q))), q...))
		b, err := readMessage(c, 1<<16)
		var m dnsmessage.Message
		if err == nil {
			err = m.Unpack(b)
		}
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	g.link.restrict(restriction{deny: prefixes("0.0.0.0/0", "::/0")})
	if a, b := g.ask(q).RCode, overTCP().RCode; a != dnsmessage.RCodeRefused || b != a || asked.Load() != 0 {
		t.Errorf("the answers are %v and %v, and %d queries came to the server", a, b, asked.Load())
	}
	g.link.restrict(restriction{deny: prefixes("0.0.0.0/0"), allow: prefixes("192.0.0.1/32")})
	if a, b := g.ask(q).RCode, overTCP().RCode; a != 0 || b != 0 || asked.Load() != 2 {
		t.Errorf("with the gateway allowed the answers are %v and %v, and %d queries came to the server", a, b, asked.Load())
	}
}
