package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// A network changes the resolver's files and nothing else.
func TestWithNameserver(t *testing.T) {
	host, err := HostRoot(HostRootOptions{Dirs: []HostDir{{Name: "/usr"}}, Disk: 1 << 20, Inodes: 100, UID: 1000, GID: 1000, Hostname: "h"})
	if err != nil {
		t.Fatal(err)
	}
	image, err := ImageRoot(ImageRootOptions{Dir: "/image", Disk: 1 << 20, Inodes: 100, Hostname: "h"})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		steps []wire.Mount
		want  []string
	}{
		"host":  {host, []string{"resolv.conf", "nsswitch.conf"}},
		"image": {image, []string{"resolv.conf"}},
	} {
		t.Run(name, func(t *testing.T) {
			before := append([]wire.Mount(nil), c.steps...)
			got := WithNameserver(c.steps, "192.0.0.1")
			if d := cmp.Diff(before, c.steps); d != "" {
				t.Errorf("the steps themselves have changed:\n%s", d)
			}
			changed := map[string]string{}
			for i := range got {
				if got[i] != c.steps[i] {
					changed[got[i].Target[strings.LastIndexByte(got[i].Target, '/')+1:]] = got[i].Source
				}
			}
			for _, f := range c.want {
				if changed[f] == "" {
					t.Errorf("%s is as before", f)
				}
			}
			if len(changed) != len(c.want) || changed["resolv.conf"] != "nameserver 192.0.0.1\n" {
				t.Errorf("changed: %q", changed)
			}
		})
	}
}
