package policy

import (
	"slices"
	"strings"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// WithNameserver returns the steps of a root whose resolver asks a name server at address. It
// replaces the contents of the resolver's files.
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

// resolverFiles are the files of etcFiles that configure the resolver. An image keeps its own
// nsswitch.conf, which normally asks DNS.
func resolverFiles(address string) []textFile {
	return []textFile{
		{"/etc/resolv.conf", "nameserver " + address + "\n", "the gateway of the sandbox's own link, which asks the operator's name servers"},
		{"/etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n",
			"hosts of /etc/hosts first, then DNS"},
	}
}
