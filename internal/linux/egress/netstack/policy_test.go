package netstack

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar/driver"
)

// ownIn returns a Policy.own for a machine with these addresses.
func ownIn(addrs ...string) func(netip.Addr) (bool, error) {
	return func(a netip.Addr) (bool, error) {
		for _, s := range addrs {
			if a == netip.MustParseAddr(s) {
				return true, nil
			}
		}
		return false, nil
	}
}

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func mustPolicy(t *testing.T, o driver.Outbound, own func(netip.Addr) (bool, error)) *Policy {
	t.Helper()
	p := newPolicy(o, own)
	p.nat64.Store(&[]netip.Prefix{}) // a name server has announced no NAT64 prefix
	return p
}

// Every denied range, by its first address, its last one and one between.
func TestPolicyShuts(t *testing.T) {
	p := mustPolicy(t, driver.Outbound{}, ownIn("93.184.216.34", "2a00:1450:4001::1"))
	for _, a := range []string{
		// IPv4: this host, private, shared, link-local, special.
		"0.0.0.0", "0.0.0.1", "0.255.255.255", "127.0.0.0", "127.0.0.1", "127.0.0.53", "127.255.255.255",
		"10.0.0.0", "10.1.2.3", "10.255.255.255", "172.16.0.0", "172.20.1.1", "172.31.255.255", "192.168.0.0", "192.168.1.1", "192.168.255.255",
		"100.64.0.0", "100.100.1.1", "100.127.255.255", "169.254.0.0", "169.254.1.1", "169.254.255.255",
		"192.0.0.0", "192.0.0.1", "192.0.0.2", "192.0.0.8", "192.0.0.255", "192.0.2.0", "192.0.2.255", "192.88.99.1",
		"198.18.0.0", "198.19.255.255", "198.51.100.0", "198.51.100.255", "203.0.113.0", "203.0.113.255",
		"224.0.0.0", "224.0.0.251", "239.255.255.255", "240.0.0.0", "250.1.1.1", "255.255.255.254", "255.255.255.255",
		// Metadata services and agents of clouds.
		"169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.0.23", "100.100.100.200", "192.0.0.192", "168.63.129.16",
		"fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42",
		// IPv6: this host, private, link-local, special, unassigned.
		"::", "::1", "fc00::", "fd12:3456::1", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fe80::1", "febf::1", "fec0::1", "ff02::1", "ff0e::1",
		"100::1", "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:10::1", "2001:db8::1", "2002::1", "2002:7f00:1::1", "3fff::1", "3fff:fff::1",
		"4000::1", "5f00::1", "8000::1", "::2", "64:ff9b:1::1", "fd5b:a4d1:7c32::1", "fd5b:a4d1:7c32::2",
		// IPv4 within IPv6.
		"::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "::8.8.8.8", "::ffff:0:127.0.0.1",
		"64:ff9b::127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b::93.184.216.34",
		"2a00:1450::5efe:127.0.0.1", "2a00:1450::200:5efe:10.0.0.1",
		// This machine, by its public addresses.
		"93.184.216.34", "2a00:1450:4001::1",
	} {
		err := p.Check(netip.AddrPortFrom(netip.MustParseAddr(a), 443))
		var d *Denied
		if !errors.As(err, &d) || d.Why == "" {
			t.Errorf("%s: %v", a, err)
		}
	}
	if err := p.Check(netip.AddrPort{}); err == nil {
		t.Error("no address at all may be reached")
	}
	if err := p.Check(netip.AddrPortFrom(netip.MustParseAddr("2a00::1%eth0"), 443)); err == nil {
		t.Error("an address with a zone may be reached")
	}
}

func TestPolicyOpens(t *testing.T) {
	p := mustPolicy(t, driver.Outbound{}, ownIn())
	for _, a := range []string{"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0",
		"169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255", "192.169.0.0", "198.17.255.255",
		"198.20.0.0", "223.255.255.255", "168.63.129.15", "2001:200::1", "2606:4700:4700::1111", "2a00:1450::1", "3ffe::1", "64:ff9b::8.8.8.8"} {
		if err := p.Check(netip.AddrPortFrom(netip.MustParseAddr(a), 443)); err != nil {
			t.Errorf("%s: %v", a, err)
		}
	}
}

// Addresses that the operator allows, denies, and cannot allow.
func TestPolicyRules(t *testing.T) {
	for _, c := range []struct {
		name        string
		allow, deny []string
		own         []string
		addr        string
		open        bool
	}{
		{"a private range", []string{"10.1.0.0/16"}, nil, nil, "10.1.2.3", true},
		{"beside it", []string{"10.1.0.0/16"}, nil, nil, "10.2.0.1", false},
		{"a private range of IPv6", []string{"fd12::/16"}, nil, nil, "fd12::1", true},
		{"denied within it", []string{"10.0.0.0/8"}, []string{"10.1.0.0/16"}, nil, "10.1.2.3", false},
		{"a public range that is denied", nil, []string{"8.8.8.0/24"}, nil, "8.8.8.8", false},
		{"behind a translator, allowed", []string{"10.0.0.0/8"}, nil, nil, "64:ff9b::10.0.0.1", true},
		{"behind a translator, denied", nil, []string{"8.8.8.0/24"}, nil, "64:ff9b::8.8.8.8", false},
		{"loopback by itself", []string{"127.0.0.0/8"}, nil, []string{"127.0.0.1"}, "127.0.0.1", true},
		{"one loopback address", []string{"127.0.0.9/32"}, nil, []string{"127.0.0.9"}, "127.0.0.9", true},
		{"beside the one", []string{"127.0.0.9/32"}, nil, nil, "127.0.0.1", false},
		{"loopback by everything", []string{"0.0.0.0/0"}, nil, nil, "127.0.0.1", false},
		{"loopback of IPv6 by itself", []string{"::1/128"}, nil, []string{"::1"}, "::1", true},
		{"loopback of IPv6 by everything", []string{"::/0"}, nil, nil, "::1", false},
		{"metadata by its range", []string{"169.254.0.0/16"}, nil, nil, "169.254.169.254", false},
		{"the rest of that range", []string{"169.254.0.0/16"}, nil, nil, "169.254.1.1", true},
		{"metadata by the address", []string{"169.254.169.254/32"}, nil, nil, "169.254.169.254", true},
		{"metadata of IPv6 by its range", []string{"fd00::/8"}, nil, nil, "fd00:ec2::254", false},
		{"metadata of IPv6 by the address", []string{"fd00:ec2::254/128"}, nil, nil, "fd00:ec2::254", true},
		{"this machine within an open range", []string{"10.0.0.0/8"}, nil, []string{"10.0.0.5"}, "10.0.0.5", false},
		{"this machine by the address", []string{"10.0.0.5/32"}, nil, []string{"10.0.0.5"}, "10.0.0.5", true},
		{"multicast", []string{"224.0.0.0/4", "224.0.0.251/32"}, nil, nil, "224.0.0.251", false},
		{"broadcast", []string{"255.255.255.255/32"}, nil, nil, "255.255.255.255", false},
		{"nowhere", []string{"0.0.0.0/32"}, nil, nil, "0.0.0.0", false},
		{"IPv4 in another form", []string{"::ffff:8.8.8.8/128"}, nil, nil, "::ffff:8.8.8.8", false},
		{"the link itself", []string{"192.0.0.0/24", "192.0.0.2/32"}, nil, nil, "192.0.0.2", false},
		{"the gateway", []string{"192.0.0.1/32"}, nil, nil, "192.0.0.1", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := driver.Outbound{Deny: prefixes(c.deny...)}
			for _, x := range prefixes(c.allow...) {
				if !x.Addr().Is4In6() { // refused by an earlier check
					o.AllowPrivate = append(o.AllowPrivate, x)
				}
			}
			err := mustPolicy(t, o, ownIn(c.own...)).Check(netip.AddrPortFrom(netip.MustParseAddr(c.addr), 80))
			if (err == nil) != c.open {
				t.Errorf("%s: %v", c.addr, err)
			}
		})
	}
}

func TestPolicyPorts(t *testing.T) {
	p := mustPolicy(t, driver.Outbound{DeniedPorts: []uint16{25, 465}}, ownIn())
	for port, open := range map[uint16]bool{0: false, 1: true, 25: false, 465: false, 443: true, 65535: true} {
		if err := p.Check(netip.AddrPortFrom(netip.MustParseAddr("8.8.8.8"), port)); (err == nil) != open {
			t.Errorf("port %d: %v", port, err)
		}
	}
}

// If the kernel cannot be asked about an address, it is denied. If no route leads to it, the
// socket's connect returns the more precise error.
func TestPolicyOwnFails(t *testing.T) {
	dst := netip.MustParseAddrPort("8.8.8.8:53")
	fails := func(err error) func(netip.Addr) (bool, error) {
		return func(netip.Addr) (bool, error) { return false, err }
	}
	if err := mustPolicy(t, driver.Outbound{}, fails(errors.New("netlink"))).Check(dst); err == nil {
		t.Error("an address of which nothing is known may be reached")
	}
	if err := mustPolicy(t, driver.Outbound{}, fails(errNoRoute)).Check(dst); err != nil {
		t.Error(err)
	}
}

// Each row has a reason, and no row is hidden by an earlier one of the same firmness.
func TestRows(t *testing.T) {
	for _, rows := range [][]rangeRow{rangeRows4(), rangeRows6()} {
		parsed := parseRows(rows)
		for i, e := range parsed {
			if e.why == "" || e.prefix != e.prefix.Masked() {
				t.Errorf("%v: no reason, or bits after the prefix", e.prefix)
			}
			for _, before := range parsed[:i] {
				if before.prefix.Bits() <= e.prefix.Bits() && before.prefix.Contains(e.prefix.Addr()) {
					t.Errorf("%v is hidden by %v", e.prefix, before.prefix)
				}
			}
		}
	}
	if !strings.Contains((&Denied{netip.MustParseAddrPort("10.0.0.1:80"), "why"}).Error(), "10.0.0.1:80") {
		t.Error("the error does not name the address")
	}
}
