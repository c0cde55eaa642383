package image

import (
	"net/netip"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/sandbar-dev/sandbar"
)

// Reference names an image: a registry, a repository, and a tag or a digest.
type Reference struct {
	// Text is the complete reference, with the default registry and tag:
	// "index.docker.io/library/debian:latest".
	Text string

	ref name.Reference
}

// ParseReference parses a reference as users write it: "debian", "ghcr.io/owner/name:1.2",
// "host:5000/name@sha256:…". Invalid: anything else, such as paths, URLs, names with "..", and more
// than 512 bytes.
func ParseReference(s string) (Reference, error) {
	bad := func(what string) (Reference, error) {
		return Reference{}, &sandbar.Error{Code: sandbar.Invalid, Field: "image",
			Message: "image " + sandbar.Quote(s, 100) + " is not a reference: " + what,
			Fix:     "write [REGISTRY/]NAME[:TAG] or [REGISTRY/]NAME@sha256:DIGEST; for a file or a directory use `sandbar images import`"}
	}
	switch {
	case s == "":
		return bad("it is empty")
	case len(s) > maxReference:
		return bad("it is longer than " + number(maxReference) + " bytes")
	case strings.Contains(s, "://"):
		return bad("it is a URL")
	case s[0] == '/' || s[0] == '.':
		return bad("it is a path")
	}
	for _, part := range strings.Split(s, "/") {
		if part == "" || part == "." || part == ".." {
			return bad("it has an empty part, \".\" or \"..\"")
		}
	}
	ref, err := name.ParseReference(s)
	if err != nil {
		return bad("it has characters or parts that a reference cannot have")
	}
	return Reference{Text: ref.Name(), ref: ref}, nil
}

// Registry returns the registry's host, with a port if there is one.
func (r Reference) Registry() string { return r.ref.Context().RegistryStr() }

// Digest returns the digest of the manifest, "" for a reference with a tag.
func (r Reference) Digest() string {
	if d, ok := r.ref.(name.Digest); ok {
		return d.DigestStr()
	}
	return ""
}

// with returns the reference with the scheme that the operator configured for its registry.
func (r Reference) with(insecure bool) (name.Reference, error) {
	if !insecure {
		return r.ref, nil
	}
	return name.ParseReference(r.Text, name.Insecure)
}

// publicAddress reports whether an address is public: not this host's, not of a local network, and
// not the metadata service of a cloud.
func publicAddress(a netip.Addr) bool {
	a = a.Unmap()
	if !a.IsValid() || a.IsUnspecified() || a.IsLoopback() || a.IsPrivate() || a.IsMulticast() ||
		a.IsLinkLocalUnicast() || a.IsInterfaceLocalMulticast() {
		return false
	}
	for _, p := range specialPrefixes() {
		if p.Contains(a) {
			return false
		}
	}
	return true
}

// specialPrefixes are non-public networks for which package netip has no method.
func specialPrefixes() []netip.Prefix {
	var prefixes []netip.Prefix
	for _, s := range []string{
		"0.0.0.0/8",       // this network
		"100.64.0.0/10",   // carrier-grade NAT; some clouds have metadata there too
		"192.0.0.0/24",    // protocol assignments
		"192.0.2.0/24",    // documentation
		"192.88.99.0/24",  // 6to4 relays
		"198.18.0.0/15",   // benchmarks
		"198.51.100.0/24", // documentation
		"203.0.113.0/24",  // documentation
		"240.0.0.0/4",     // reserved, and broadcast
		"::/96",           // IPv4-compatible
		"64:ff9b::/96",    // NAT64: IPv4 addresses, private ones included
		"64:ff9b:1::/48",  // NAT64, local
		"100::/64",        // discard
		"2001::/23",       // protocol assignments, Teredo
		"2001:db8::/32",   // documentation
		"2002::/16",       // 6to4: IPv4 addresses, private ones included
		"fec0::/10",       // site-local
	} {
		prefixes = append(prefixes, netip.MustParsePrefix(s))
	}
	return prefixes
}
