package policy

import (
	"slices"
	"strings"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// WithNameserver returns the steps of a root for a sandbox that can ask a name
// server at the address: those that write the resolver's settings write others.
func WithNameserver(steps []wire.Mount, address string) []wire.Mount {
	steps = slices.Clone(steps)
	for i := range steps {
		s := &steps[i]
		if s.Kind != wire.MountFile {
			continue
		}
		for _, f := range resolverFiles(address) {
			if strings.HasSuffix(s.Target, f.path) {
				s.Source = f.text
			}
		}
	}
	return steps
}

// resolverFiles are those of etcFiles that tell where names come from. In an
// image nsswitch.conf is the image's own, and mostly asks DNS as well.
func resolverFiles(address string) []textFile {
	return []textFile{
		{"/etc/resolv.conf", "nameserver " + address + "\n", "the gateway of the sandbox's own link, which asks the operator's name servers"},
		{"/etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n",
			"hosts of /etc/hosts first, then DNS"},
	}
}
