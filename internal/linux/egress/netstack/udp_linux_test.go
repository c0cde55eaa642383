package netstack

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/linux/egress/wire"
)

// rulesOfNobody returns the rules of an operator without settings.
func rulesOfNobody() driver.Outbound { return driver.Outbound{DeniedPorts: []uint16{25}} }

// datagrams starts a server that returns each datagram.
func datagrams(t testing.TB, at string, seen *atomic.Int64) netip.AddrPort {
	t.Helper()
	c, err := net.ListenPacket("udp", at)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 64<<10)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			seen.Add(1)
			c.WriteTo(b[:n], from)
		}
	}()
	t.Cleanup(func() {
		c.Close()
		<-done
	})
	return c.LocalAddr().(*net.UDPAddr).AddrPort()
}

func TestUDPEcho(t *testing.T) {
	g := newGuest(t, rules())
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		var seen atomic.Int64
		c := g.mustUDP(datagrams(t, at, &seen))
		for _, n := range []int{1, 0, 512, 1400, 9000, 65000} {
			sent := bytes.Repeat([]byte{byte(n)}, n)
			if _, err := c.Write(sent); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, 65535)
			k, err := c.Read(got)
			if err != nil || !bytes.Equal(got[:k], sent) {
				t.Fatalf("%s: %d bytes: got %d, %v", at, n, k, err)
			}
		}
	}
	if n := g.link.conns.now.Load(); n != 2 {
		t.Errorf("%d flows are counted, there are 2", n)
	}
}

// refused waits until a socket of the guest reports "port unreachable". In this stack the report
// does not wake a blocked Read, so refused polls.
func refused(t *testing.T, u net.Conn) {
	t.Helper()
	until(t, "the program is told", func() bool {
		u.SetReadDeadline(time.Now().Add(time.Millisecond))
		n, err := u.Read(make([]byte, 10))
		if err == nil {
			t.Fatalf("the program got %d bytes", n)
		}
		return isReset(err)
	})
}

// If no process listens, or the address is denied, the program gets an error.
func TestUDPRefused(t *testing.T) {
	closed, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := closed.LocalAddr().(*net.UDPAddr).AddrPort()
	closed.Close()
	var seen atomic.Int64
	to := datagrams(t, "127.0.0.1:0", &seen)
	six := datagrams(t, "[::1]:0", &seen)
	open, shut := newGuest(t, rules()), newGuest(t, rulesOfNobody())
	for _, c := range []struct {
		name string
		g    *guest
		to   netip.AddrPort
	}{
		{"nobody listens", open, nobody},
		{"the loopback", shut, to},
		{"the loopback of IPv6", shut, six},
		{"metadata", open, netip.MustParseAddrPort("169.254.169.254:80")},
		{"a private range", open, netip.MustParseAddrPort("10.0.0.1:53")},
		{"a private range of IPv6", open, netip.MustParseAddrPort("[fd12::1]:53")},
		{"the gateway, another port", open, netip.AddrPortFrom(wire.Gateway, 5353)},
		{"mail", open, netip.MustParseAddrPort("127.0.0.1:25")},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := c.g.mustUDP(c.to)
			if _, err := u.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			refused(t, u)
		})
	}
	if seen.Load() != 0 {
		t.Error("a datagram came to a server")
	}
	if n := shut.link.conns.now.Load(); n != 0 {
		t.Errorf("%d refused flows are counted", n)
	}
}

func TestUDPBound(t *testing.T) {
	o := rules()
	o.MaxConnections = 2
	g := newGuest(t, o)
	var seen atomic.Int64
	to := datagrams(t, "127.0.0.1:0", &seen)
	for i := range 3 {
		c := g.mustUDP(to)
		c.Write([]byte("x"))
		if i == 2 {
			refused(t, c)
		} else if _, err := c.Read(make([]byte, 10)); err != nil {
			t.Errorf("flow %d: %v", i, err)
		}
	}
}

// A flow ends flowIdle after its last datagram, and not before.
func TestFlowIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flow{}
		f.touch()
		time.Sleep(flowIdle - time.Second)
		if f.over(t.Context()) {
			t.Error("it is over too early")
		}
		f.touch()
		time.Sleep(flowIdle - time.Nanosecond)
		if f.over(t.Context()) {
			t.Error("a datagram does not count")
		}
		time.Sleep(time.Nanosecond)
		if !f.over(t.Context()) {
			t.Error("it is never over")
		}
	})
}

// An expired flow releases its slot.
func TestFlowEnds(t *testing.T) {
	g := newGuest(t, rules())
	var seen atomic.Int64
	c := g.mustUDP(datagrams(t, "127.0.0.1:0", &seen))
	c.Write([]byte("x"))
	if _, err := c.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	g.close()
	if errors.Is(g.link.ctx.Err(), nil) {
		t.Error("the link goes on")
	}
}
