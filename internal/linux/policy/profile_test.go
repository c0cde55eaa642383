package policy

import (
	"slices"
	"testing"

	"github.com/sandbar-dev/sandbar"
)

// verdict returns the answer to a call of the filter that a runtime makes of a profile.
func (p *Profile) verdict(name string, args [6]uint64) Action {
	for _, c := range p.Syscalls {
		if !slices.Contains(c.Names, name) {
			continue
		}
		holds := !slices.ContainsFunc(c.Args, func(a ProfileArg) bool { return args[a.Index]&a.Value != a.ValueTwo })
		switch {
		case !holds:
		case c.Action == profileAllow:
			return Allow
		default:
			return Errno(uint16(*c.ErrnoRet))
		}
	}
	return Errno(uint16(p.DefaultErrnoRet))
}

// A profile never refuses a call that the exact filter allows. It refuses every call that the exact
// filter refuses for all arguments.
func TestProfileIsCoarserThanTheFilter(t *testing.T) {
	for _, goarch := range goarches {
		a, err := findArch(goarch)
		if err != nil {
			t.Fatal(err)
		}
		p, err := CompileProfile(goarch)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range numbers() {
			if a.nr(n) == none {
				continue
			}
			ever := false // allowed with some arguments
			for _, args := range argsFor(Rules(), n.name) {
				exact := decide(a, Rules(), call{arch: a.audit, nr: uint32(a.nr(n)), args: args})
				ever = ever || exact == Allow
				if got := p.verdict(n.name, args); exact == Allow && got != Allow {
					t.Errorf("%s: %s%x: the filter allows it, the profile answers %v", goarch, n.name, args, got)
				}
			}
			if got := p.verdict(n.name, [6]uint64{}); !ever && got == Allow {
				t.Errorf("%s: %s: the filter never allows it, the profile does", goarch, n.name)
			}
		}
	}
}

// The profile alone refuses the most dangerous calls.
func TestProfileRefuses(t *testing.T) {
	p, err := CompileProfile("amd64")
	if err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][6]uint64{
		"mount": {}, "unshare": {0x10000000}, "setns": {}, "bpf": {}, "keyctl": {}, "init_module": {}, "kexec_load": {}, "open_by_handle_at": {},
		"io_uring_setup": {}, "perf_event_open": {}, "userfaultfd": {}, "clone3": {},
		"clone":      {0x10000000 | 17},
		"socket":     {38, 5, 0}, // AF_ALG
		"socketpair": {40, 1, 0}, // AF_VSOCK
	} {
		if got := p.verdict(name, args); got == Allow || got&^errnoMask != Skip {
			t.Errorf("%s%x: %v; want an error", name, args, got)
		}
	}
	for name, args := range map[string][6]uint64{"clone": {17}, "socket": {1, 1, 0}, "seccomp": {}, "landlock_create_ruleset": {}, "execve": {}, "prlimit64": {}} {
		if got := p.verdict(name, args); got != Allow {
			t.Errorf("%s%x: %v; the agent needs it", name, args, got)
		}
	}
	if _, err := CompileProfile("riscv64"); sandbar.CodeOf(err) != sandbar.Unsupported {
		t.Errorf("a processor without a table: %v", err)
	}
}

// Runtimes have a name for every limited resource.
func TestRlimitNames(t *testing.T) {
	limits, err := Rlimits(sandbar.Limits{Files: 64}, RlimitOptions{Enforced: sandbar.Enforcements{Memory: sandbar.EnforcedWatchdog, PIDs: sandbar.EnforcedRlimit}})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, l := range limits {
		name, ok := RlimitName(l.Resource)
		if !ok || seen[name] {
			t.Errorf("the resource %d is called %q", l.Resource, name)
		}
		seen[name] = true
	}
	if name, ok := RlimitName(1 << 20); ok {
		t.Errorf("a resource that does not exist is called %q", name)
	}
}
