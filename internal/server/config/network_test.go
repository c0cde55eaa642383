package config

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar"
)

func TestNetwork(t *testing.T) {
	p, a := netip.MustParsePrefix, netip.MustParseAddrPort
	want := Network{
		AllowPrivate: []netip.Prefix{p("10.1.0.0/16"), p("10.2.3.4/32"), p("fd12::/32")},
		Deny:         []netip.Prefix{p("8.8.8.0/24")}, DNS: []netip.AddrPort{a("9.9.9.9:53"), a("[::1]:5353")},
		MaxConnections: 7, MaxBytes: 1 << 30, PortsDenied: []uint16{25, 465},
	}
	compare := cmp.Comparer(func(x, y Network) bool {
		return cmp.Equal(texts(x), texts(y)) && x.Outbound == y.Outbound && x.MaxConnections == y.MaxConnections && x.MaxBytes == y.MaxBytes
	})
	file := "network:\n  outbound: false\n  allow_private: [10.1.0.0/16, 10.2.3.4, \"fd12::/32\"]\n  deny: [8.8.8.0/24]\n" +
		"  dns: [9.9.9.9, \"[::1]:5353\"]\n  max_connections: 7\n  max_bytes: 1GiB\n  ports_denied: [25, \"465\"]\n"
	c, err := load(t, file, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, c.Network, compare); diff != "" {
		t.Error(diff)
	}
	c, err = load(t, "", []string{"SANDBAR_NETWORK_OUTBOUND=false", "SANDBAR_NETWORK_ALLOW_PRIVATE=10.1.0.0/16, 10.2.3.4,fd12::/32",
		"SANDBAR_NETWORK_DENY=8.8.8.0/24", "SANDBAR_NETWORK_DNS=9.9.9.9,[::1]:5353", "SANDBAR_NETWORK_MAX_CONNECTIONS=7", "SANDBAR_NETWORK_MAX_BYTES=1GiB", "SANDBAR_NETWORK_PORTS_DENIED=25,465"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, c.Network, compare); diff != "" {
		t.Error(diff)
	}
	if c, err = load(t, "network: {ports_denied: []}", nil); err != nil || len(c.Network.PortsDenied) != 0 {
		t.Errorf("no port denied: %v, %v", c, err)
	}
}

// texts are the lists of n, which has no unexported parts in this form.
func texts(n Network) (out [4][]string) {
	for _, p := range n.AllowPrivate {
		out[0] = append(out[0], p.String())
	}
	for _, p := range n.Deny {
		out[1] = append(out[1], p.String())
	}
	for _, a := range n.DNS {
		out[2] = append(out[2], a.String())
	}
	for _, p := range n.PortsDenied {
		out[3] = append(out[3], showPort(p))
	}
	return out
}

func TestNetworkFaults(t *testing.T) {
	for file, want := range map[string]string{
		"network: {allow_private: 10.0.0.0/8}":        "list",
		"network: {allow_private: [ten]}":             "ten",
		"network: {allow_private: [10.0.0.1/8]}":      "10.0.0.0/8",
		"network: {deny: [\"::ffff:1.2.3.4\"]}":       "::ffff:1.2.3.4",
		"network: {deny: [\"::ffff:1.2.3.0/120\"]}":   "as IPv4",
		"network: {deny: [\"fe80::1%eth0\"]}":         "fe80::1%eth0",
		"network: {dns: [one.one.one.one]}":           "one.one.one.one",
		"network: {dns: [\"1.1.1.1:0\"]}":             "1.1.1.1:0",
		"network: {ports_denied: [0]}":                "port",
		"network: {ports_denied: [65536]}":            "port",
		"network: {ports_denied: [025]}":              "port",
		"network: {ports_denied: [25.0]}":             "port",
		"network: {ports_denied: 25}":                 "list",
		"network: {max_connections: 0}":               "range",
		"network: {allow: true}":                      "network.allow",
		"network: {outbound: maybe}":                  "true or false",
		"network: {allow_private: [{a: b}]}":          "map",
		"network: {allow_private: [\"10.0.0.0/8 \"]}": "range",
	} {
		_, err := load(t, file, nil)
		if e := sandbar.AsError(err); err == nil || e.Code != sandbar.Invalid || !strings.Contains(e.Error(), want) {
			t.Errorf("%s: %v; want %q in it", file, err, want)
		}
	}
}
