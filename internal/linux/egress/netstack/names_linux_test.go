package netstack

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/linux/egress/wire"
)

// names starts a name server on the loopback, over UDP and TCP at one port. answer gets each query
// and returns the response, nil for none.
func names(t testing.TB, answer func(q dnsmessage.Message, network string) []byte) netip.AddrPort {
	t.Helper()
	var u net.PacketConn
	var l net.Listener
	until(t, "a port that is free for both", func() bool {
		var err error
		if u, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		if l, err = net.Listen("tcp", u.LocalAddr().String()); err != nil {
			u.Close()
		}
		return err == nil
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 64<<10)
		for {
			n, from, err := u.ReadFrom(b)
			if err != nil {
				return
			}
			var q dnsmessage.Message
			if err := q.Unpack(b[:n]); err != nil {
				t.Errorf("the server got %x: %v", b[:n], err)
				continue
			}
			if a := answer(q, "udp"); a != nil {
				u.WriteTo(a, from)
			}
		}
	}()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.SetDeadline(time.Now().Add(patience))
			var q dnsmessage.Message
			b, err := readMessage(c, 1<<16)
			if err == nil {
				err = q.Unpack(b)
			}
			if a := answer(q, "tcp"); err == nil && a != nil {
				c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(a))), a...))
			}
			c.Close()
		}
	}()
	t.Cleanup(func() {
		u.Close()
		l.Close()
		<-done
		<-ended
	})
	return u.LocalAddr().(*net.UDPAddr).AddrPort()
}

// reply returns the response to q with these addresses.
func reply(q dnsmessage.Message, addrs ...string) dnsmessage.Message {
	q.Response, q.RecursionAvailable = true, true
	for _, a := range addrs {
		q.Answers = append(q.Answers, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: q.Questions[0].Name, Class: dnsmessage.ClassINET, TTL: 1},
			Body:   &dnsmessage.AResource{A: netip.MustParseAddr(a).As4()}})
	}
	return q
}

func pack(t testing.TB, m dnsmessage.Message) []byte {
	t.Helper()
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func question(t testing.TB, id uint16, name string, kind dnsmessage.Type) []byte {
	return pack(t, dnsmessage.Message{Header: dnsmessage.Header{ID: id, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}}})
}

// ask sends the gateway a query over UDP and returns the response.
func (g *guest) ask(q []byte) dnsmessage.Message {
	g.t.Helper()
	c := g.mustUDP(netip.AddrPortFrom(wire.Gateway, wire.DNSPort))
	defer c.Close()
	if _, err := c.Write(q); err != nil {
		g.t.Fatal(err)
	}
	b := make([]byte, 64<<10)
	n, err := c.Read(b)
	if err != nil {
		g.t.Fatalf("no answer: %v", err)
	}
	var m dnsmessage.Message
	if err := m.Unpack(b[:n]); err != nil {
		g.t.Fatal(err)
	}
	if !bytes.Equal(b[:2], q[:2]) {
		g.t.Error("the answer has another number than the question")
	}
	return m
}

func withNames(servers ...netip.AddrPort) driver.Outbound {
	o := rules()
	o.DNS = servers
	return o
}

func TestDNS(t *testing.T) {
	var ids atomic.Int64
	server := names(t, func(q dnsmessage.Message, network string) []byte {
		if q.ID == 0x1234 {
			ids.Add(1)
		}
		m := reply(q, "192.0.2.7")
		if network == "udp" && q.Questions[0].Name.String() == "long.example." {
			m = reply(q)
			m.Truncated = true
		}
		return pack(t, m)
	})
	g := newGuest(t, withNames(server))
	m := g.ask(question(t, 0x1234, "name.example.", dnsmessage.TypeA))
	if len(m.Answers) != 1 || m.Answers[0].Body.(*dnsmessage.AResource).A != [4]byte{192, 0, 2, 7} || m.RCode != 0 {
		t.Errorf("the answer is %+v", m)
	}
	for range 8 {
		g.ask(question(t, 0x1234, "name.example.", dnsmessage.TypeA))
	}
	if n := ids.Load(); n > 3 {
		t.Errorf("the number of %d of 9 questions went out as the program chose it", n)
	}
	if m := g.ask(question(t, 1, "long.example.", dnsmessage.TypeA)); !m.Truncated {
		t.Error("the program is not told to ask over TCP")
	}
	c := g.mustTCP(netip.AddrPortFrom(wire.Gateway, wire.DNSPort))
	for range 3 {
		q := question(t, 77, "long.example.", dnsmessage.TypeA)
		c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(q))), q...))
		b, err := readMessage(c, 1<<16)
		var m dnsmessage.Message
		if err == nil {
			err = m.Unpack(b)
		}
		if err != nil || m.ID != 77 || len(m.Answers) != 1 {
			t.Errorf("over TCP: %+v, %v", m, err)
		}
	}
}

// Malformed queries, and queries that are not forwarded.
func TestDNSRefused(t *testing.T) {
	var asked atomic.Int64
	server := names(t, func(q dnsmessage.Message, _ string) []byte {
		asked.Add(1)
		return pack(t, reply(q, "192.0.2.7"))
	})
	g := newGuest(t, withNames(server))
	zone := question(t, 1, "example.", typeAXFR)
	update := question(t, 2, "example.", dnsmessage.TypeSOA)
	update[2] |= 5 << 3
	none := pack(t, dnsmessage.Message{Header: dnsmessage.Header{ID: 3}})
	two := pack(t, dnsmessage.Message{Header: dnsmessage.Header{ID: 4}, Questions: []dnsmessage.Question{
		{Name: dnsmessage.MustNewName("a."), Type: 1, Class: 1}, {Name: dnsmessage.MustNewName("b."), Type: 1, Class: 1}}})
	cut := question(t, 5, "name.example.", dnsmessage.TypeA)
	long := append(question(t, 6, "name.example.", dnsmessage.TypeA), make([]byte, longestQuestion)...)
	for name, c := range map[string]struct {
		q    []byte
		code dnsmessage.RCode
	}{
		"a zone":        {zone, dnsmessage.RCodeRefused},
		"an update":     {update, dnsmessage.RCodeNotImplemented},
		"no question":   {none, dnsmessage.RCodeFormatError},
		"two questions": {two, dnsmessage.RCodeFormatError},
		"cut short":     {cut[:len(cut)-3], dnsmessage.RCodeFormatError},
		"too long":      {long, dnsmessage.RCodeFormatError},
	} {
		t.Run(name, func(t *testing.T) {
			if m := g.ask(c.q); m.RCode != c.code || !m.Response {
				t.Errorf("the answer is %+v", m)
			}
		})
	}
	// A message with the response bit gets no response. The next query does.
	c := g.mustUDP(netip.AddrPortFrom(wire.Gateway, wire.DNSPort))
	c.Write(pack(t, reply(dnsmessage.Message{Header: dnsmessage.Header{ID: 9},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("a."), Type: 1, Class: 1}}}, "192.0.2.1")))
	c.Write([]byte{1, 2, 3})
	c.Write(question(t, 10, "name.example.", dnsmessage.TypeA))
	b := make([]byte, 512)
	if n, err := c.Read(b); err != nil || n < 2 || binary.BigEndian.Uint16(b) != 10 {
		t.Errorf("got %x, %v", b[:max(n, 0)], err)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the server was asked %d times", n)
	}
}

// The gateway skips a server that does not respond, sends something else, or repeats another query.
func TestDNSServers(t *testing.T) {
	dead, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := dead.LocalAddr().(*net.UDPAddr).AddrPort()
	dead.Close()
	good := names(t, func(q dnsmessage.Message, _ string) []byte { return pack(t, reply(q, "192.0.2.7")) })
	g := newGuest(t, withNames(nobody, good))
	if m := g.ask(question(t, 1, "name.example.", dnsmessage.TypeA)); len(m.Answers) != 1 {
		t.Errorf("with the first server dead: %+v", m)
	}
	liar := names(t, func(q dnsmessage.Message, _ string) []byte {
		// Responses to other queries, as of an attacker who guesses ids, arrive before the right
		// one.
		other := reply(q, "198.51.100.1")
		other.ID++
		return pack(t, other)
	})
	g = newGuest(t, withNames(liar, good))
	if m := g.ask(question(t, 2, "name.example.", dnsmessage.TypeA)); len(m.Answers) != 1 || m.Answers[0].Body.(*dnsmessage.AResource).A != [4]byte{192, 0, 2, 7} {
		t.Errorf("with a first server that lies: %+v", m)
	}
	g = newGuest(t, withNames(nobody))
	if m := g.ask(question(t, 3, "name.example.", dnsmessage.TypeA)); m.RCode != dnsmessage.RCodeServerFailure {
		t.Errorf("with no server: %+v", m)
	}
}

func TestAnswers(t *testing.T) {
	q := question(t, 7, "Name.Example.", dnsmessage.TypeA)
	var m dnsmessage.Message
	if err := m.Unpack(q); err != nil {
		t.Fatal(err)
	}
	change := func(f func(*dnsmessage.Message)) []byte {
		x := reply(m, "192.0.2.1")
		x.Questions = append([]dnsmessage.Question(nil), m.Questions...)
		f(&x)
		return pack(t, x)
	}
	for name, c := range map[string]struct {
		a    []byte
		want bool
	}{
		"the answer":         {change(func(*dnsmessage.Message) {}), true},
		"in another case":    {change(func(m *dnsmessage.Message) { m.Questions[0].Name = dnsmessage.MustNewName("nAME.eXAMPLE.") }), true},
		"another number":     {change(func(m *dnsmessage.Message) { m.ID = 8 }), false},
		"another name":       {change(func(m *dnsmessage.Message) { m.Questions[0].Name = dnsmessage.MustNewName("other.") }), false},
		"another type":       {change(func(m *dnsmessage.Message) { m.Questions[0].Type = dnsmessage.TypeMX }), false},
		"a question":         {q, false},
		"nothing":            {nil, false},
		"without a question": {change(func(m *dnsmessage.Message) { m.Questions, m.Answers = nil, nil }), false},
		"a bare refusal":     {change(func(m *dnsmessage.Message) { m.Questions, m.Answers, m.RCode = nil, nil, 5 }), true},
	} {
		if got := answers(c.a, q); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A query beyond the rate is refused at once.
func TestDNSRate(t *testing.T) {
	server := names(t, func(q dnsmessage.Message, _ string) []byte { return pack(t, reply(q, "192.0.2.7")) })
	g := newGuest(t, withNames(server))
	g.link.asked.SetLimit(0)
	g.link.asked.SetBurst(2)
	var refused int
	for i := range 10 {
		if m := g.ask(question(t, uint16(i), "name.example.", dnsmessage.TypeA)); m.RCode == dnsmessage.RCodeRefused {
			refused++
		}
	}
	if refused < 8 {
		t.Errorf("%d of 10 questions were refused, 2 are within the rate", refused)
	}
}

// The address of a name changes after the lookup: the policy checks the address of the connection.
func TestRebinding(t *testing.T) {
	var turn atomic.Int64
	server := names(t, func(q dnsmessage.Message, _ string) []byte {
		if turn.Add(1) == 1 {
			return pack(t, reply(q, "127.0.0.1"))
		}
		return pack(t, reply(q, "169.254.169.254"))
	})
	g := newGuest(t, withNames(server))
	to := world(t, "127.0.0.1:0", echo)
	connect := func() error {
		m := g.ask(question(t, 1, "flips.example.", dnsmessage.TypeA))
		a := netip.AddrFrom4(m.Answers[0].Body.(*dnsmessage.AResource).A)
		c, err := g.tcp(netip.AddrPortFrom(a, to.Port()))
		if err == nil {
			c.Close()
		}
		return err
	}
	if err := connect(); err != nil {
		t.Errorf("the first time: %v", err)
	}
	if err := connect(); err == nil {
		t.Error("the second time it connects to metadata")
	}
}

// Closing a link does not wait for pending queries.
func TestCloseDuringQuestions(t *testing.T) {
	server := names(t, func(dnsmessage.Message, string) []byte { return nil })
	g := newGuest(t, withNames(server))
	var conns []*gonet.UDPConn
	for i := range 5 {
		c := g.mustUDP(netip.AddrPortFrom(wire.Gateway, wire.DNSPort))
		c.Write(question(t, uint16(i), "name.example.", dnsmessage.TypeA))
		conns = append(conns, c)
	}
	c := g.mustTCP(netip.AddrPortFrom(wire.Gateway, wire.DNSPort))
	c.Write([]byte{0, 50, 1, 2})
	until(t, "questions are under way", func() bool { return g.link.asking.now.Load() == int64(len(conns)) })
	g.close() // close checks that nothing is left
}

// An arbitrary query gets a response with its own id, or none.
func FuzzQuestion(f *testing.F) {
	f.Add(question(f, 1, "name.example.", dnsmessage.TypeA))
	f.Add([]byte{0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 0x0c, 0, 1, 0, 1})
	f.Fuzz(func(t *testing.T, q []byte) {
		code, ok := inspect(q)
		if !ok {
			return
		}
		a := refusal(q, code)
		if a == nil || !bytes.Equal(a[:2], q[:2]) || a[2]&0x80 == 0 {
			t.Errorf("%x is answered %x", q, a)
		}
		answers(q, q)
	})
}
