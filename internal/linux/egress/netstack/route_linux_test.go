package netstack

import (
	"errors"
	"net"
	"net/netip"
	"testing"
)

func TestRoutes(t *testing.T) {
	r, err := openRoutes()
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	own := map[netip.Addr]bool{}
	for _, s := range []string{"127.0.0.1", "127.0.0.53", "127.255.255.254"} {
		own[netip.MustParseAddr(s)] = true
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok && !ip.Unmap().IsLinkLocalUnicast() {
				own[ip.Unmap()] = true
			}
		}
	}
	for a := range own {
		if is, err := r.own(a); err != nil || !is {
			t.Errorf("%v: own %v, %v", a, is, err)
		}
	}
	// The address of another machine or, on a host without a route, of none.
	for _, s := range []string{"8.8.8.8", "2001:4860:4860::8888"} {
		if is, err := r.own(netip.MustParseAddr(s)); is || err != nil && !errors.Is(err, errNoRoute) {
			t.Errorf("%s: own %v, %v", s, is, err)
		}
	}
	if is, err := r.own(netip.MustParseAddr("255.255.255.255")); !is && err == nil {
		t.Error("broadcast is taken for one machine's address")
	}
}

// A malformed or truncated answer is an error and never another address.
func TestRouteAnswers(t *testing.T) {
	r, err := openRoutes()
	if err != nil {
		t.Fatal(err)
	}
	r.close()
	if _, err := r.own(netip.MustParseAddr("8.8.8.8")); err == nil {
		t.Error("a closed socket gives an answer")
	}
	for n := range 40 {
		if _, _, err := parseRoute(make([]byte, n)); err == nil {
			t.Errorf("%d zeros are an answer", n)
		}
	}
}
