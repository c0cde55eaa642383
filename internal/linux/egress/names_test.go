package egress

import (
	"net/netip"
	"testing"
)

func TestParseResolvConf(t *testing.T) {
	for text, want := range map[string][]string{
		"":                         {"127.0.0.1:53"},
		"search x\nnameserver\n":   {"127.0.0.1:53"},
		"nameserver 9.9.9.9":       {"9.9.9.9:53"},
		"#nameserver 9.9.9.9\n;\n": {"127.0.0.1:53"},
		"nameserver 127.0.0.53\noptions edns0\nnameserver fe80::1%eth0\nnameserver x\nnameserver ::1 # c\nnameserver 8.8.8.8\n": {"127.0.0.53:53", "[fe80::1%eth0]:53", "[::1]:53"},
	} {
		got := parseResolvConf(text)
		if len(got) != len(want) {
			t.Errorf("%q: %v", text, got)
			continue
		}
		for i, a := range got {
			if a.String() != want[i] {
				t.Errorf("%q: %v", text, got)
			}
		}
	}
}

// The zone of an address is the number of an interface, not its name.
func TestNumbered(t *testing.T) {
	for a, want := range map[string]string{
		"9.9.9.9": "9.9.9.9", "::1": "::1", "::ffff:9.9.9.9": "9.9.9.9",
		"fe80::1%7": "fe80::1%7", "fe80::1%no-such-interface": "fe80::1",
	} {
		if got := numericZone(netip.MustParseAddr(a)); got.String() != want {
			t.Errorf("%s: %v, want %s", a, got, want)
		}
	}
}
