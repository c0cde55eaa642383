package policy

import "testing"

// The rules for the process of the TCP/IP stacks compile on both architectures.
func TestNetworkRules(t *testing.T) {
	rules := NetworkRules(7)
	for _, arch := range []string{"amd64", "arm64"} {
		if p, err := Compile(arch, rules); err != nil || len(p) == 0 {
			t.Errorf("%s: %d bytes, %v", arch, len(p), err)
		}
	}
	for _, r := range rules {
		if r.Why == "" {
			t.Errorf("%v has no reason", r.Names)
		}
	}
	if l := NetworkLandlock(); len(l.Rules) > 0 {
		t.Errorf("files are left: %+v", l.Rules)
	}
}
