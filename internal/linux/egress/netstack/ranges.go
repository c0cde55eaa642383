package netstack

import "net/netip"

// kind says which settings can allow a range.
type kind uint8

const (
	open kind = iota
	// special: an entry of AllowPrivate that contains the address.
	special
	// loopback: an entry that lies within the range itself, so that an entry for all addresses does
	// not allow it.
	loopback
	// metadata: an entry for the single address.
	metadata
	// never: none.
	never
)

// Special ranges, from the registries of RFC 6890 and of cloud providers. The first row that
// contains an address applies.
type rangeRow struct {
	prefix string
	kind   kind
	why    string
}

func rangeRows4() []rangeRow {
	return []rangeRow{
		{"169.254.169.254/32", metadata, "the metadata service of most clouds"},
		{"169.254.170.2/32", metadata, "credentials of containers on AWS"},
		{"169.254.170.23/32", metadata, "credentials of pods on AWS"},
		{"169.254.0.23/32", metadata, "the metadata service of Tencent"},
		{"100.100.100.200/32", metadata, "the metadata service of Alibaba"},
		{"192.0.0.192/32", metadata, "the metadata service of Oracle's older machines"},
		{"168.63.129.16/32", metadata, "the host agent of Azure, on a public address"},
		{"0.0.0.0/8", never, "this host on this network; Linux takes 0.0.0.0 for the loopback"},
		{"127.0.0.0/8", loopback, "this machine's loopback"},
		{"224.0.0.0/4", never, "multicast"},
		{"255.255.255.255/32", never, "broadcast"},
		{"10.0.0.0/8", special, "a private network"},
		{"100.64.0.0/10", special, "behind a carrier's address translation, and networks of clouds and overlays"},
		{"169.254.0.0/16", special, "link-local"},
		{"172.16.0.0/12", special, "a private network"},
		{"192.0.0.0/24", special, "protocol assignments"},
		{"192.0.2.0/24", special, "documentation"},
		{"192.88.99.0/24", special, "relays of 6to4, withdrawn"},
		{"192.168.0.0/16", special, "a private network"},
		{"198.18.0.0/15", special, "benchmarks, and private networks of some clouds"},
		{"198.51.100.0/24", special, "documentation"},
		{"203.0.113.0/24", special, "documentation"},
		{"240.0.0.0/4", special, "reserved, and private networks of some clouds"},
	}
}

func rangeRows6() []rangeRow {
	return []rangeRow{
		{"fd00:ec2::254/128", metadata, "the metadata service of AWS"},
		{"fd00:ec2::23/128", metadata, "credentials of pods on AWS"},
		{"fd20:ce::254/128", metadata, "the metadata service of Google"},
		{"fd00:42::42/128", metadata, "the metadata service of Scaleway"},
		{"::/128", never, "unspecified; Linux takes it for the loopback"},
		{"::1/128", loopback, "this machine's loopback"},
		{"::ffff:0:0/96", never, "IPv4 in another form, which has no business on a wire"},
		{"::ffff:0:0:0/96", never, "IPv4 in another form (RFC 2765)"},
		{"::/96", never, "IPv4 in another form, withdrawn"},
		{"ff00::/8", never, "multicast"},
		{"64:ff9b:1::/48", special, "a translator to IPv4 of this network's own"},
		{"100::/64", special, "a black hole"},
		{"fc00::/7", special, "a private network"},
		{"fe80::/10", special, "link-local"},
		{"fec0::/10", special, "site-local, withdrawn"},
		{"2001::/23", special, "protocol assignments, among them Teredo, which has IPv4 in it"},
		{"2001:db8::/32", special, "documentation"},
		{"2002::/16", special, "6to4, which has IPv4 in it; withdrawn"},
		{"3fff::/20", special, "documentation"},
		{"64:ff9b::/96", open, "a translator to IPv4; the address within is looked at as well"},
		{"2000::/3", open, "the public addresses there are"},
		{"::/0", special, "not given to anybody"},
	}
}

// entry is a parsed row.
type entry struct {
	prefix netip.Prefix
	kind   kind
	why    string
}

func parseRows(rows []rangeRow) []entry {
	out := make([]entry, len(rows))
	for i, r := range rows {
		out[i] = entry{netip.MustParsePrefix(r.prefix), r.kind, r.why}
	}
	return out
}

// classify returns the row of an address. IPv4 addresses without a row are allowed.
func (p *Policy) classify(a netip.Addr) entry {
	rows := p.rows6
	if a.Is4() {
		rows = p.rows4
	}
	for _, e := range rows {
		if e.prefix.Contains(a) {
			return e
		}
	}
	return entry{kind: open, prefix: netip.PrefixFrom(a, a.BitLen())}
}
