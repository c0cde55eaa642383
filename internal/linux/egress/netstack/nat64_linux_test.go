package netstack

import (
	"context"
	"encoding/binary"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sandbar-dev/sandbar/driver"
)

// embed returns the IPv6 address of an IPv4 address within a translator's prefix.
func embed(p netip.Prefix, v4 string) netip.Addr {
	b, x := p.Addr().As16(), netip.MustParseAddr(v4).As4()
	for _, l := range layouts() {
		if l.bits == p.Bits() {
			for i, at := range l.at {
				b[at] = x[i]
			}
		}
	}
	return netip.AddrFrom16(b)
}

// dns64 is the name server of a network with NAT64. It announces the current prefixes; with nil it
// does not respond.
func dns64(t *testing.T, prefixes *atomic.Pointer[[]netip.Prefix], code dnsmessage.RCode) netip.AddrPort {
	return names(t, func(q dnsmessage.Message, _ string) []byte {
		if q.Questions[0].Name.String() != "ipv4only.arpa." || q.Questions[0].Type != dnsmessage.TypeAAAA {
			t.Errorf("the server is asked %v", q.Questions[0])
		}
		list := prefixes.Load()
		if list == nil {
			q.Response, q.RCode = true, dnsmessage.RCodeServerFailure
			return pack(t, q)
		}
		m := reply(q)
		m.RCode = code
		for _, p := range *list {
			for _, a := range []string{"192.0.0.170", "192.0.0.171"} {
				m.Answers = append(m.Answers, dnsmessage.Resource{
					Header: dnsmessage.ResourceHeader{Name: q.Questions[0].Name, Class: dnsmessage.ClassINET, TTL: 60},
					Body:   &dnsmessage.AAAAResource{AAAA: embed(p, a).As16()}})
			}
		}
		return pack(t, m)
	})
}

// discovering returns a Host that queries a name server for NAT64 prefixes.
func discovering(t *testing.T, o driver.Outbound, servers ...netip.AddrPort) *Host {
	o.DNS = servers
	h := newHostFor(t, o)
	h.policy.own = ownIn("198.18.7.7")
	h.discovers = true
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.discover(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return h
}

func stored(list ...netip.Prefix) *atomic.Pointer[[]netip.Prefix] {
	var p atomic.Pointer[[]netip.Prefix]
	p.Store(&list)
	return &p
}

// An IPv4 address within an announced prefix is checked as IPv4, for every length of a prefix.
func TestTranslators(t *testing.T) {
	for _, s := range []string{"2a00:1::/32", "2a00:1:200::/40", "2a00:1:2::/48", "2a00:1:2:300::/56", "2a00:1:2:3::/64", "2a00:1:2:3:4:5::/96"} {
		prefix := netip.MustParsePrefix(s)
		t.Run(s, func(t *testing.T) {
			h := discovering(t, driver.Outbound{Deny: prefixes("9.9.9.0/24")}, dns64(t, stored(prefix), 0))
			<-h.asked
			if list := h.policy.nat64.Load(); list == nil || !slices.Contains(*list, prefix) {
				t.Fatalf("found %v", list)
			}
			for v4, open := range map[string]bool{"8.8.8.8": true, "127.0.0.1": false, "10.0.0.1": false, "169.254.169.254": false,
				"192.168.1.1": false, "0.0.0.0": false, "224.0.0.1": false, "9.9.9.9": false, "198.18.7.7": false} {
				a := embed(prefix, v4)
				if err := h.policy.Check(netip.AddrPortFrom(a, 443)); (err == nil) != open {
					t.Errorf("%s as %v: %v", v4, a, err)
				}
			}
			if err := h.policy.Check(netip.MustParseAddrPort("[2a00:2::a00:1]:443")); err != nil {
				t.Errorf("beside the prefix: %v", err)
			}
		})
	}
}

// The prefixes of RFC 6052 and RFC 8215 are always NAT64 prefixes.
func TestTranslatorsAlways(t *testing.T) {
	p := mustPolicy(t, driver.Outbound{AllowPrivate: prefixes("64:ff9b:1::/48")}, ownIn())
	for a, open := range map[string]bool{
		"64:ff9b::8.8.8.8": true, "64:ff9b::10.0.0.1": false,
		// The length of the prefix is unknown, so the address must be allowed for every length.
		"64:ff9b:1:808:8:808:808:808": true, "64:ff9b:1:a00:0:100::": false, "64:ff9b:1:808:8:808:a00:1": false, "64:ff9b:1::a9fe:a9fe": false,
	} {
		if err := p.Check(netip.AddrPortFrom(netip.MustParseAddr(a), 443)); (err == nil) != open {
			t.Errorf("%s: %v", a, err)
		}
	}
	known := netip.MustParsePrefix("64:ff9b:1:fffe::/96")
	p.nat64.Store(&[]netip.Prefix{known})
	for v4, open := range map[string]bool{"8.8.8.8": true, "10.0.0.1": false} {
		if err := p.Check(netip.AddrPortFrom(embed(known, v4), 443)); (err == nil) != open {
			t.Errorf("%s behind a known prefix: %v", v4, err)
		}
	}
}

// Until a name server responds, public IPv6 is denied unless the operator allows it. "No prefixes"
// is a response, and a later failure keeps the last result.
func TestTranslatorsUnknown(t *testing.T) {
	public := netip.MustParseAddrPort("[2a00:9::8]:443")
	var told atomic.Pointer[[]netip.Prefix]
	server := dns64(t, &told, dnsmessage.RCodeNameError)
	h := discovering(t, driver.Outbound{AllowPrivate: prefixes("2a00:10::/32", "fd12::/16")}, server)
	<-h.asked
	if err := h.policy.Check(public); err == nil {
		t.Error("an address that could be a translator's may be reached")
	}
	for _, a := range []string{"[2a00:10::8]:443", "[fd12::1]:443", "8.8.8.8:443", "[64:ff9b::8.8.8.8]:443"} {
		if err := h.policy.Check(netip.MustParseAddrPort(a)); err != nil {
			t.Errorf("%s: %v", a, err)
		}
	}
	told.Store(&[]netip.Prefix{})
	h.names.set([]netip.AddrPort{server}) // so the query is repeated
	until(t, "there are none", func() bool { return h.policy.Check(public) == nil })
	prefix := netip.MustParsePrefix("2a00:9::/96")
	told.Store(&[]netip.Prefix{prefix})
	h.names.set([]netip.AddrPort{server})
	until(t, "there is one", func() bool { return h.policy.Check(public) != nil })
	told.Store(nil)
	if _, _, err := h.names.translators(t.Context()); err == nil {
		t.Fatal("a failure is an answer")
	}
	h.names.set([]netip.AddrPort{server})
	if err := h.policy.Check(public); err == nil {
		t.Error("what was known is forgotten")
	}
}

// A connection that begins before the first response waits for it.
func TestTranslatorsAwaited(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	var first sync.Once // a query without a response is repeated
	server := names(t, func(q dnsmessage.Message, _ string) []byte {
		first.Do(func() { close(asked) })
		<-release
		return pack(t, reply(q))
	})
	h := discovering(t, driver.Outbound{}, server)
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var open atomic.Bool
	h.policy.own = func(netip.Addr) (bool, error) { open.Store(true); return true, nil } // queried only if all other rules allow the address
	done := make(chan error, 1)
	go func() {
		_, err := h.dial(ctx, "tcp", netip.MustParseAddrPort("[2a00:9::8]:443"), h.policy.Check)
		done <- err
	}()
	if _, err := h.dial(ctx, "udp", netip.MustParseAddrPort("[2a00:9::8]:443"), h.policy.Check); err == nil || open.Load() {
		t.Error("a datagram is sent before name servers have answered")
	}
	close(release)
	if err := <-done; err == nil || !open.Load() {
		t.Errorf("the connection is judged before name servers have answered: %v", err)
	}
}

func TestParseTranslators(t *testing.T) {
	q := dnsmessage.Message{Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("ipv4only.arpa."), Type: dnsmessage.TypeAAAA, Class: dnsmessage.ClassINET}}}
	refused := reply(q)
	refused.RCode = dnsmessage.RCodeRefused
	if _, _, ok := parseTranslators(pack(t, refused)); ok {
		t.Error("a refusal is an answer")
	}
	if _, _, ok := parseTranslators(nil); ok {
		t.Error("nothing is an answer")
	}
	m := reply(q, "192.0.0.170") // the response has an A record too
	m.Answers = append(m.Answers, dnsmessage.Resource{
		Header: dnsmessage.ResourceHeader{Name: q.Questions[0].Name, Class: dnsmessage.ClassINET, TTL: 7},
		Body:   &dnsmessage.AAAAResource{AAAA: netip.MustParseAddr("2a00::1").As16()}})
	if list, ttl, ok := parseTranslators(pack(t, m)); !ok || len(list) != 0 || ttl != 7*time.Second {
		t.Errorf("%v, %v, %v", list, ttl, ok)
	}
	cut := pack(t, m)
	if _, _, ok := parseTranslators(cut[:len(cut)-4]); ok {
		t.Error("half an answer is an answer")
	}
}

func FuzzTranslators(f *testing.F) {
	b := make([]byte, 12)
	binary.BigEndian.PutUint16(b[2:], 0x8180)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		list, _, _ := parseTranslators(b)
		for _, p := range list {
			if p != p.Masked() || p.Bits() < 32 {
				t.Errorf("%v of %x", p, b)
			}
		}
	})
}
