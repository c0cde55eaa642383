package config

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sandbar-dev/sandbar"
)

// Network has the rules for sandboxes with a network.
type Network struct {
	Outbound       bool
	AllowPrivate   []netip.Prefix
	Deny           []netip.Prefix
	DNS            []netip.AddrPort // empty: the host's
	MaxConnections int64
	MaxBytes       int64 // sandbar.Unlimited for no bound
	PortsDenied    []uint16
}

func (c *Config) networkFields() []field {
	ranges := "a list of ranges such as 10.1.0.0/16 or fd12:3456::/32, or of addresses"
	return []field{
		{path: "network.outbound", value: boolean(&c.Network.Outbound), initial: "true", allowed: "true or false",
			doc: "Whether a request may ask for a sandbox with an outbound network (network: outbound). No sandbox has it by default, and none accepts inbound connections."},
		{path: "network.allow_private", value: items[netip.Prefix]{&c.Network.AllowPrivate, readRange, netip.Prefix.String, textTags},
			allowed: ranges,
			doc: "Private and special ranges that such sandboxes may reach; otherwise none. This machine's own addresses and those of " +
				"cloud metadata are opened only by the one address, and its loopback by a range within it."},
		{path: "network.deny", value: items[netip.Prefix]{&c.Network.Deny, readRange, netip.Prefix.String, textTags},
			allowed: ranges,
			doc:     "Ranges that such sandboxes may not reach; deny overrides all other rules."},
		{path: "network.dns", value: items[netip.AddrPort]{&c.Network.DNS, readServer, netip.AddrPort.String, textTags},
			instead: "those of /etc/resolv.conf",
			allowed: "a list of addresses, with or without port; at most three are asked",
			doc: "The name servers for such sandboxes. They may have any address, and sandboxes can query all their " +
				"names: if the host's name servers know internal machines, name public servers here."},
		measure("network.max_connections", &c.Network.MaxConnections, count, bounds[int64]{lo: 1, hi: 65536}, "1024",
			"The maximum number of TCP connections and UDP flows of one sandbox. All sandboxes together may have half as many as the daemon's limit of descriptors."),
		measure("network.max_bytes", &c.Network.MaxBytes, size, bounds[int64]{lo: 1 << 20, hi: maxSize,
			words: []word[int64]{{unlimitedWord, sandbar.Unlimited}}}, unlimitedWord,
			"The maximum of bytes that one sandbox may send and receive in its life. Beyond it, its connections are closed and new ones refused."),
		{path: "network.ports_denied", value: items[uint16]{&c.Network.PortsDenied, readPort, showPort, numberTags}, initial: "25",
			allowed: "a list of ports from 1 to 65535",
			doc:     "TCP and UDP ports that such sandboxes may not reach on any address. 25 prevents sending spam."},
	}
}

// readRange parses an address range, or one address as a range of one.
func readRange(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" && !a.Is4In6() {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return p, errors.New("is not an address range")
	case p.Addr().Is4In6():
		return p, errors.New("is IPv4 written as IPv6; write it as IPv4")
	case p != p.Masked():
		return p, errors.New("has more than zeros after its prefix: " + p.Masked().String() + " is the range it lies in")
	}
	return p, nil
}

// dnsPort is the port of name servers.
const dnsPort = 53

func readServer(s string) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.AddrPortFrom(a.Unmap(), dnsPort), nil
	}
	a, err := netip.ParseAddrPort(s)
	if err != nil || a.Port() == 0 {
		return a, errors.New("is not the address of a name server")
	}
	return a, nil
}

func readPort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != s {
		return 0, errors.New("is not a port")
	}
	return uint16(n), nil
}

func showPort(n uint16) string { return strconv.FormatUint(uint64(n), 10) }

// items is a setting that is a list of scalars. In a variable, commas separate them.
type items[T any] struct {
	at   *[]T
	read func(string) (T, error)
	show func(T) string
	tags []string
}

func (l items[T]) set(s string) error {
	if strings.TrimSpace(s) == "" {
		*l.at = nil
		return nil
	}
	var texts []string
	for item := range strings.SplitSeq(s, ",") {
		texts = append(texts, strings.TrimSpace(item))
	}
	return l.store(texts, func(int) int { return 0 })
}

func (l items[T]) load(n *yaml.Node) error {
	if n.Kind != yaml.SequenceNode {
		return &fault{line: n.Line, why: "is " + kindName(n) + " where a list is needed"}
	}
	var texts []string
	for _, c := range n.Content {
		if err := checkScalar(c, l.tags); err != nil {
			return &fault{line: c.Line, got: sandbar.Quote(c.Value, 60), why: err.Error()}
		}
		texts = append(texts, c.Value)
	}
	return l.store(texts, func(i int) int { return n.Content[i].Line })
}

func (l items[T]) store(texts []string, line func(int) int) error {
	var out []T
	for i, s := range texts {
		v, err := l.read(s)
		if err != nil {
			return &fault{line: line(i), got: sandbar.Quote(s, 60), why: err.Error()}
		}
		out = append(out, v)
	}
	*l.at = out
	return nil
}

func (l items[T]) texts() []string {
	out := make([]string, len(*l.at))
	for i, v := range *l.at {
		out[i] = l.show(v)
	}
	return out
}

func (l items[T]) String() string { return strings.Join(l.texts(), ",") }

func (l items[T]) yaml(string) string {
	texts := l.texts()
	for i, s := range texts {
		if _, err := strconv.ParseUint(s, 10, 64); err != nil {
			texts[i] = strconv.Quote(s)
		}
	}
	return "[" + strings.Join(texts, ", ") + "]"
}
