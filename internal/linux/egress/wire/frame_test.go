package wire

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func examples() []Frame {
	var long Frame
	long.Kind = Rules
	for i := range MaxList {
		long.Allow = append(long.Allow, netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, byte(i)}), 16))
		long.Ports = append(long.Ports, uint16(i))
	}
	long.Deny = long.Allow
	return []Frame{
		{Kind: Rules}, long,
		{Kind: Rules, Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Deny: []netip.Prefix{netip.MustParsePrefix("::/0")}, Ports: []uint16{25}},
		{Kind: Start, MaxConnections: 1024, MaxBytes: 1 << 40},
		{Kind: Names}, {Kind: Names, Servers: []netip.AddrPort{netip.MustParseAddrPort("9.9.9.9:53"), netip.MustParseAddrPort("[fe80::1%7]:53")}},
		{Kind: Attach, Link: 7}, {Kind: Restrict, Link: 7, Allow: long.Allow, Deny: long.Deny}, {Kind: Restricted, Link: 7}, {Kind: Detach, Link: 1 << 31}, {Kind: Ready}, {Kind: Detached, Link: 3}, {Kind: Note, Link: 9, Event: UsedUp},
	}
}

func TestFrames(t *testing.T) {
	for _, f := range examples() {
		b := f.Append(nil)
		got, err := Decode(b)
		same := cmp.Equal(got, f, cmp.Comparer(func(x, y netip.Prefix) bool { return x == y }), cmp.Comparer(func(x, y netip.AddrPort) bool { return x == y }))
		if err != nil || !same || len(b) > MaxFrame {
			t.Errorf("%d bytes: %+v, %v, want %+v", len(b), got, err, f)
		}
		for n := range b {
			if _, err := Decode(b[:n]); err == nil {
				t.Errorf("%+v cut to %d bytes decodes", f, n)
			}
		}
		if _, err := Decode(append(b, 0)); err == nil {
			t.Errorf("%+v with a byte more decodes", f)
		}
	}
}

func TestFramesRefused(t *testing.T) {
	for name, b := range map[string][]byte{
		"no kind":                   {0},
		"an unknown kind":           {byte(Note) + 1},
		"no connections":            (&Frame{Kind: Start}).Append(nil),
		"too many connections":      (&Frame{Kind: Start, MaxConnections: MaxConnections + 1}).Append(nil),
		"bytes beyond an int64":     (&Frame{Kind: Start, MaxConnections: 1, MaxBytes: 1 << 63}).Append(nil),
		"bits after a prefix":       {byte(Rules), 1, 4, 10, 0, 0, 1, 8, 0, 0},
		"a prefix too long":         {byte(Rules), 1, 4, 10, 0, 0, 1, 33, 0, 0},
		"an address of five bytes":  {byte(Rules), 1, 5, 10, 0, 0, 1, 1, 8, 0, 0},
		"IPv4 in the form of IPv6":  (&Frame{Kind: Rules, Deny: []netip.Prefix{netip.MustParsePrefix("::ffff:1.2.3.4/128")}}).Append(nil),
		"a scope of IPv4":           {byte(Names), 1, 4, 9, 9, 9, 9, 53, 0, 1, 0, 0, 0},
		"an unknown event":          (&Frame{Kind: Note, Event: lastEvent + 1}).Append(nil),
		"four name servers":         (&Frame{Kind: Names, Servers: make4()}).Append(nil),
		"more than the longest one": append((&Frame{Kind: Ready}).Append(nil), make([]byte, MaxFrame)...),
	} {
		if f, err := Decode(b); err == nil {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func make4() (out []netip.AddrPort) {
	for range MaxServers + 1 {
		out = append(out, netip.MustParseAddrPort("9.9.9.9:53"))
	}
	return out
}

// A decoded frame is encoded to the same bytes.
func FuzzDecode(f *testing.F) {
	for _, x := range examples() {
		f.Add(x.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := Decode(b)
		if err != nil {
			return
		}
		if again := x.Append(nil); !bytes.Equal(again, b) {
			t.Errorf("%x is written as %x", b, again)
		}
	})
}
