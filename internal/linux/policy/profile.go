package policy

import (
	"slices"
	"strconv"

	"github.com/sandbar-dev/sandbar"
)

// Profile is a seccomp filter as JSON, in the format of container runtimes (linux.seccomp of the
// runtime specification) and of Docker.
type Profile struct {
	DefaultAction   string        `json:"defaultAction"`
	DefaultErrnoRet uint          `json:"defaultErrnoRet"`
	Architectures   []string      `json:"architectures"`
	Syscalls        []ProfileCall `json:"syscalls"`
}

// ProfileCall is the action for system calls whose arguments meet all conditions of Args.
type ProfileCall struct {
	Names    []string     `json:"names"`
	Action   string       `json:"action"`
	ErrnoRet *uint        `json:"errnoRet,omitempty"`
	Args     []ProfileArg `json:"args,omitempty"`
}

// ProfileArg is a condition on one argument. Op "SCMP_CMP_MASKED_EQ" means: argument & Value ==
// ValueTwo.
type ProfileArg struct {
	Index    uint   `json:"index"`
	Value    uint64 `json:"value"`
	ValueTwo uint64 `json:"valueTwo"`
	Op       string `json:"op"`
}

// The actions and the operator of a Profile.
const (
	profileAllow    = "SCMP_ACT_ALLOW"
	profileErrno    = "SCMP_ACT_ERRNO"
	profileMaskedEq = "SCMP_CMP_MASKED_EQ"
)

// CompileProfile returns Rules as a Profile for a GOARCH. The Profile is the coarser of two
// filters: the agent installs the exact one (CompileSeccomp) before any program runs. In a Profile
// all rules of one call must have the same action. So it allows a call that Rules denies for some
// arguments only, and never denies what Rules allow.
//
// As in the exact filter, a call through another architecture's entry point kills the process.
func CompileProfile(goarch string) (*Profile, error) {
	a, err := findArch(goarch)
	if err != nil {
		return nil, err
	}
	rules, err := byName(Rules())
	if err != nil {
		return nil, err
	}
	p := &Profile{DefaultAction: profileErrno, DefaultErrnoRet: errNoSys, Architectures: []string{map[string]string{"amd64": "SCMP_ARCH_X86_64", "arm64": "SCMP_ARCH_AARCH64"}[goarch]}}
	for _, n := range numbers() {
		if a.nr(n) == none {
			continue
		}
		calls, err := profileCalls(rules[n.name])
		if err != nil {
			return nil, sandbar.Errorf(sandbar.Internal, "rules of %s: %w", n.name, err)
		}
		for _, c := range calls {
			p.add(n.name, c)
		}
	}
	return p, nil
}

// add adds a call to the entry with the same action and conditions, or creates one.
func (p *Profile) add(name string, c ProfileCall) {
	i := slices.IndexFunc(p.Syscalls, func(x ProfileCall) bool {
		return x.Action == c.Action && slices.Equal(x.Args, c.Args) && (x.ErrnoRet == nil) == (c.ErrnoRet == nil) && (x.ErrnoRet == nil || *x.ErrnoRet == *c.ErrnoRet)
	})
	if i < 0 {
		p.Syscalls = append(p.Syscalls, c)
		i = len(p.Syscalls) - 1
	}
	p.Syscalls[i].Names = append(p.Syscalls[i].Names, name)
}

// profileCalls converts the rules of one call, the last of which has no conditions, to entries
// without a name.
func profileCalls(rules []Rule) ([]ProfileCall, error) {
	if len(rules) == 0 {
		return nil, nil
	}
	last := rules[len(rules)-1].Action
	if last == Allow {
		return []ProfileCall{{Action: profileAllow}}, nil
	}
	var out []ProfileCall
	for _, r := range rules {
		if r.Action != Allow {
			continue
		}
		args, err := profileArgs(r.Args)
		if err != nil {
			return nil, err
		}
		for _, a := range args {
			out = append(out, ProfileCall{Action: profileAllow, Args: a})
		}
	}
	// A call without an entry gets the default action. Old runtimes return EPERM for it, but
	// libraries fall back only on ENOSYS.
	if len(out) == 0 {
		out = append(out, ProfileCall{Action: profileErrno, ErrnoRet: new(uint(last & errnoMask))})
	}
	return out, nil
}

// profileArgs expands conditions with several values to alternatives with one value each.
func profileArgs(conds []Cond) ([][]ProfileArg, error) {
	out := [][]ProfileArg{nil}
	for i, c := range conds {
		if c.High || slices.ContainsFunc(conds[:i], func(o Cond) bool { return o.Arg == c.Arg }) {
			return nil, sandbar.Errorf(sandbar.Internal, "a profile cannot have a second condition on argument %s", strconv.Itoa(c.Arg))
		}
		var more [][]ProfileArg
		for _, before := range out {
			for _, v := range c.In {
				more = append(more, append(slices.Clone(before), ProfileArg{Index: uint(c.Arg), Value: uint64(c.mask()), ValueTwo: uint64(v), Op: profileMaskedEq}))
			}
		}
		out = more
	}
	return out, nil
}
