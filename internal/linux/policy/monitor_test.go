package policy

import (
	"slices"
	"testing"
)

// The rules of a monitor compile on both architectures, allow nothing that Rules denies, and have
// one decision for each call.
func TestMonitorRules(t *testing.T) {
	rules := MonitorRules()
	for _, arch := range []string{"amd64", "arm64"} {
		if p, err := Compile(arch, rules); err != nil || len(p) == 0 {
			t.Errorf("%s: %d bytes, %v", arch, len(p), err)
		}
	}
	allowed := func(rules []Rule, name string) bool {
		return slices.ContainsFunc(rules, func(r Rule) bool { return slices.Contains(r.Names, name) && r.Action == Allow })
	}
	for _, r := range rules {
		if r.Why == "" {
			t.Errorf("%v has no reason", r.Names)
		}
		for _, name := range r.Names {
			if allowed(rules, name) && !allowed(Rules(), name) {
				t.Errorf("%s is allowed for a monitor and not for programs", name)
			}
		}
	}
	for _, name := range []string{"socket", "connect", "fork", "ptrace", "kill", "unlink", "setuid", "mount", "bpf", "io_uring_setup"} {
		if allowed(rules, name) {
			t.Errorf("%s is allowed", name)
		}
	}
	for _, name := range []string{"execve", "clone", "read", "ioctl", "futex", "mmap", "tgkill"} {
		if !allowed(rules, name) {
			t.Errorf("%s is not allowed", name)
		}
	}
	for _, r := range Rules() { // MonitorRules has not changed them
		if len(r.Names) == 0 {
			t.Error("a rule has lost its names")
		}
	}
}
