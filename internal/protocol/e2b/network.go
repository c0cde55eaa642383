package e2b

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/text/strictjson"
)

// network is what a client asks of a sandbox's network.
type network struct {
	// Internet is nil if the client does not ask.
	Internet *bool
	// Allow and Deny are ranges; Allow has precedence.
	Allow, Deny []netip.Prefix
	// Private: ports can be opened with a token only.
	Private bool
}

// everything is what 0.0.0.0/0 denies.
func everything() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix(allTraffic), netip.MustParsePrefix("::/0")}
}

// networkBody are the members of a request about the network.
type networkBody struct {
	allow, deny         []string
	rules, proxy, ports json.RawMessage
	mask                string
	public              bool
}

func (b *networkBody) fields() []strictjson.Field {
	b.public = true
	return []strictjson.Field{strictjson.List("allowOut", &b.allow), strictjson.List("denyOut", &b.deny),
		strictjson.Value("rules", "an object", &b.rules), strictjson.Value("egressProxy", "an object", &b.proxy),
		strictjson.Truth("allowPublicTraffic", &b.public), strictjson.Text("maskRequestHost", &b.mask), strictjson.Value("httpsPorts", "a list", &b.ports)}
}

// decode checks the members.
func (b *networkBody) decode(n *network) (err error) {
	if !empty(b.rules) || !empty(b.proxy) || b.mask != "" || !empty(b.ports) {
		return unsupported("network", "rules, egressProxy, maskRequestHost and httpsPorts are not supported: the daemon does not look into the connections of programs")
	}
	if n.Allow, err = decodeRanges("allowOut", b.allow); err != nil {
		return err
	}
	n.Deny, err = decodeRanges("denyOut", b.deny)
	n.Private = !b.public
	return err
}

// decodeRanges decodes addresses and ranges.
func decodeRanges(field string, list []string) (all []netip.Prefix, err error) {
	for _, text := range list {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			var a netip.Addr
			if a, err = netip.ParseAddr(text); err == nil && a.Zone() == "" {
				p = netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen())
			}
		}
		switch {
		case err != nil && !strings.ContainsAny(text, "/:") && strings.ContainsFunc(text, func(c rune) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '*' }):
			return nil, unsupported(field, field+": "+sandbar.Quote(text, 80)+" is a host name, and the daemon enforces addresses alone")
		case err != nil || p.Addr().Is4In6():
			return nil, invalid(field, field+": "+sandbar.Quote(text, 80)+" is neither an address nor a range", "write 203.0.113.7 or 203.0.113.0/24")
		}
		if p = p.Masked(); !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return all, nil
}

// egress returns what the sandbox may reach, nil for everything that the operator allows. none:
// nothing.
func (n network) egress() (to *sandbar.Egress, none bool) {
	e := sandbar.Egress{Allow: n.Allow, Deny: slices.Clone(n.Deny)}
	if n.Internet != nil && !*n.Internet || slices.Contains(n.Deny, everything()[0]) {
		for _, p := range everything() {
			if !slices.Contains(e.Deny, p) {
				e.Deny = append(e.Deny, p)
			}
		}
		none = len(n.Allow) == 0
	}
	if len(e.Deny) == 0 {
		return nil, false // nothing to except from
	}
	return &e, none
}

// updateNetwork replaces what the sandbox may reach.
func (e *entry) updateNetwork(w http.ResponseWriter, r *http.Request) error {
	raw, err := readBody(w, r, maxBody)
	if err != nil {
		return err
	}
	var n network
	var b networkBody
	if err := strictjson.Object("the body", raw, append(b.fields(), strictjson.Value("allow_internet_access", "true or false", &n.Internet))...); err != nil {
		return err
	}
	if err := b.decode(&n); err != nil {
		return err
	}
	if n.Private {
		return unsupported("allowPublicTraffic", "allowPublicTraffic is set when a sandbox is created")
	}
	l, err := e.current()
	if err != nil {
		return err
	}
	to, none := n.egress()
	if none && l.sandbox.Info().Spec.Network != sandbar.NetworkOutbound {
		w.WriteHeader(http.StatusNoContent) // it reaches nothing
		return nil
	}
	if to == nil {
		to = &sandbar.Egress{}
	}
	if err := l.sandbox.Restrict(r.Context(), *to); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// networkInfo is the network of a sandbox for clients.
type networkInfo struct {
	Allow  []string `json:"allowOut,omitempty"`
	Deny   []string `json:"denyOut,omitempty"`
	Public bool     `json:"allowPublicTraffic"`
}

// networkOf describes the network of a sandbox. internet: it reaches more than exceptions.
func (e *entry) networkOf(spec sandbar.Spec) (n networkInfo, internet bool) {
	n.Public = e.Traffic == ""
	if spec.Network != sandbar.NetworkOutbound {
		return n, false
	}
	if spec.Egress == nil {
		return n, true
	}
	for _, p := range spec.Egress.Allow {
		n.Allow = append(n.Allow, p.String())
	}
	all := slices.Contains(spec.Egress.Deny, everything()[0])
	for _, p := range spec.Egress.Deny {
		if !all || p != everything()[1] {
			n.Deny = append(n.Deny, p.String())
		}
	}
	return n, !all
}
