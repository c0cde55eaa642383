package policy

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/sandbar-dev/sandbar"
)

// Action is what the filter does with a system call, as the kernel's return value of a filter
// (SECCOMP_RET_*, seccomp(2)).
type Action uint32

// The actions. Errno returns all others.
const (
	// Allow lets the call through.
	Allow Action = 0x7fff0000
	// Kill kills the process with SIGSYS.
	Kill Action = 0x80000000
	// Skip returns 0 without executing the call. It is for calls that need no effect in a sandbox.
	Skip Action = 0x00050000
)

// Errno returns an error number without executing the call.
func Errno(number uint16) Action { return Skip | Action(number) }

// Error numbers that rules use. They are the same on both architectures.
const (
	errPerm           = 1
	errAcces          = 13
	errInval          = 22
	errNoSys          = 38
	errNoProtoOpt     = 92
	errProtoNoSupport = 93
	errNotSupp        = 95
	errAFNoSupport    = 97
	errnoMask         = 0xffff
	// answer to a call without a rule; libraries then use an older call
	defaultAnswer      = Skip | errNoSys
	auditArchAMD64     = 0xc000003e
	auditArchARM64     = 0xc00000b7
	x32Bit             = 0x40000000
	maxInstructions    = 4096 // the kernel's BPF_MAXINSNS
	maxConditionalJump = 255  // a conditional jump has 8 bits
)

// String returns "allow", "kill", "skip" or the name of the error.
func (a Action) String() string {
	switch a {
	case Allow:
		return "allow"
	case Kill:
		return "kill"
	case Skip:
		return "skip"
	}
	names := map[Action]string{
		errPerm: "EPERM", errAcces: "EACCES", errInval: "EINVAL", errNoSys: "ENOSYS", errNoProtoOpt: "ENOPROTOOPT",
		errProtoNoSupport: "EPROTONOSUPPORT", errNotSupp: "EOPNOTSUPP", errAFNoSupport: "EAFNOSUPPORT",
	}
	if n, ok := names[a&errnoMask]; ok && a&^errnoMask == Skip {
		return n
	}
	return "0x" + strconv.FormatUint(uint64(a), 16)
}

// Cond is a condition on one argument of a system call: the selected half of the argument, masked
// with Mask, is one of In.
//
// The low half suffices wherever the kernel takes an int: it ignores the high half. A comparison of
// a pointer with NULL needs a second Cond for the high half.
type Cond struct {
	Arg  int    // 0 to 5
	High bool   // the high 32 bits instead of the low
	Mask uint32 // 0 means all bits
	In   []uint32
}

func (c Cond) mask() uint32 {
	if c.Mask == 0 {
		return ^uint32(0)
	}
	return c.Mask
}

// offset is the offset of the half in struct seccomp_data, after number, architecture and
// instruction pointer, low half first.
func (c Cond) offset() uint32 {
	off := uint32(16 + 8*c.Arg)
	if c.High {
		off += 4
	}
	return off
}

// Rule is the action for some system calls. The rules of one call are tried in order; the first
// whose conditions all hold applies. The last rule of a call has no conditions.
type Rule struct {
	Names  []string // as in the kernel's tables, on every architecture that has them
	Args   []Cond   // all must hold; none means always
	Action Action
	Why    string
}

// CompileSeccomp returns the filter of Rules for a GOARCH, "amd64" or "arm64": a classic BPF
// program of 8-byte instructions, little-endian as both architectures are. Any other architecture
// is an Unsupported error.
func CompileSeccomp(goarch string) ([]byte, error) { return Compile(goarch, Rules()) }

// CompileSeccompUncounted is CompileSeccomp for UncountedRules.
func CompileSeccompUncounted(goarch string) ([]byte, error) {
	return Compile(goarch, UncountedRules())
}

// CompilePrograms returns the filter of ProgramRules, which allows every other call. The thread
// that starts programs installs it in addition to that of Rules.
func CompilePrograms(goarch string, tag TagResource) ([]byte, error) {
	return compile(goarch, ProgramRules(tag), Allow)
}

// CompileTemplate is CompileSeccomp for TemplateRules.
func CompileTemplate(goarch string) ([]byte, error) { return Compile(goarch, TemplateRules()) }

// Compile is CompileSeccomp for other rules.
//
// A call through another architecture's entry point (int 0x80, a 32-bit program) or with the x32
// bit kills the process, because its numbers mean other calls. A number without a rule is ENOSYS.
//
// The program is a balanced binary tree over ranges of numbers with equal treatment, about seven
// comparisons deep. Frequent calls need no short cut: since Linux 5.11 the kernel determines which
// numbers a filter always allows, and does not run the filter for them.
func Compile(goarch string, rules []Rule) ([]byte, error) {
	return compile(goarch, rules, defaultAnswer)
}

// compile is Compile with another answer to a call without a rule.
func compile(goarch string, rules []Rule, other Action) ([]byte, error) {
	a, err := findArch(goarch)
	if err != nil {
		return nil, err
	}
	leaves, err := leavesOf(a, rules, other)
	if err != nil {
		return nil, err
	}
	prog := append(prologue(a), tree(leaves)...)
	if len(prog) > maxInstructions {
		return nil, sandbar.Errorf(sandbar.Internal, "seccomp filter for %s has %d instructions; the kernel takes %d", goarch, len(prog), maxInstructions)
	}
	return encode(prog), nil
}

// arch describes an architecture to the compiler.
type arch struct {
	audit uint32
	x32   bool
	nr    func(number) int32
}

func findArch(goarch string) (arch, error) {
	switch goarch {
	case "amd64":
		return arch{audit: auditArchAMD64, x32: true, nr: func(n number) int32 { return n.amd64 }}, nil
	case "arm64":
		return arch{audit: auditArchARM64, nr: func(n number) int32 { return n.arm64 }}, nil
	}
	return arch{}, &sandbar.Error{Code: sandbar.Unsupported,
		Message: "no system call table for the architecture " + sandbar.Quote(goarch, 20) + "; there are tables for amd64 and arm64",
		Fix:     "run on one of them, or add a column to internal/linux/policy/numbers.go"}
}

// leaf is the treatment of the numbers from first up to the first of the next leaf.
type leaf struct {
	first uint32
	code  []insn
}

// leavesOf divides all numbers into ranges with equal treatment. other is the answer to a number
// without a rule.
func leavesOf(a arch, rules []Rule, other Action) ([]leaf, error) {
	byName, err := byName(rules)
	if err != nil {
		return nil, err
	}
	table := numbers()
	table = slices.DeleteFunc(table, func(n number) bool { return a.nr(n) == none })
	slices.SortFunc(table, func(x, y number) int { return int(a.nr(x) - a.nr(y)) })

	leaves := []leaf{{0, answer(other)}}
	add := func(first uint32, code []insn) {
		last := &leaves[len(leaves)-1]
		switch {
		case slices.Equal(last.code, code):
		case last.first == first:
			last.code = code
		default:
			leaves = append(leaves, leaf{first, code})
		}
	}
	for _, n := range table {
		code, err := callCode(byName[n.name], other)
		if err != nil {
			return nil, sandbar.Errorf(sandbar.Internal, "rules of %s: %w", n.name, err)
		}
		add(uint32(a.nr(n)), code)
		add(uint32(a.nr(n))+1, answer(other))
	}
	return merge(leaves), nil
}

// merge joins adjacent ranges with equal treatment.
func merge(leaves []leaf) []leaf {
	return slices.CompactFunc(leaves, func(x, y leaf) bool { return slices.Equal(x.code, y.code) })
}

// byName groups rules by system call and checks their form.
func byName(rules []Rule) (map[string][]Rule, error) {
	known := map[string]bool{}
	for _, n := range numbers() {
		known[n.name] = true
	}
	m := map[string][]Rule{}
	for _, r := range rules {
		for _, name := range r.Names {
			if !known[name] {
				return nil, sandbar.Errorf(sandbar.Internal, "rule for %s: no architecture has such a system call", sandbar.Quote(name, 40))
			}
			m[name] = append(m[name], r)
		}
	}
	for name, rs := range m {
		for i, r := range rs {
			if last := i == len(rs)-1; last != (len(r.Args) == 0) {
				return nil, sandbar.Errorf(sandbar.Internal, "rules of %s: the last rule, and only that, must have no conditions", name)
			}
		}
	}
	return m, nil
}

// insn is a classic BPF instruction, as struct sock_filter.
type insn struct {
	code   uint16
	jt, jf uint8 // number of instructions to skip if true, if false
	k      uint32
}

// The opcodes in use: only those that the kernel can evaluate in advance (see Compile).
const (
	opLoad        = 0x20 // A = the word at offset k
	opAnd         = 0x54 // A &= k
	opJump        = 0x05 // skip k instructions
	opJumpEqual   = 0x15 // if A == k
	opJumpAtLeast = 0x35 // if A >= k
	opReturn      = 0x06 // return k

	offsetNumber = 0
	offsetArch   = 4
)

func answer(a Action) []insn { return []insn{{code: opReturn, k: uint32(a)}} }

// prologue kills a process that makes a call of another architecture, and loads the call's number
// into the accumulator.
func prologue(a arch) []insn {
	p := []insn{
		{code: opLoad, k: offsetArch},
		{code: opJumpEqual, jt: 1, k: a.audit},
		{code: opReturn, k: uint32(Kill)},
		{code: opLoad, k: offsetNumber},
	}
	if a.x32 {
		// -1 has the x32 bit too, but is no x32 call: a tracer writes it to suppress a call
		// (ptrace(2)).
		p = append(p,
			insn{code: opJumpAtLeast, jf: 3, k: x32Bit},
			insn{code: opJumpEqual, jt: 1, k: ^uint32(0)},
			insn{code: opReturn, k: uint32(Kill)},
			insn{code: opReturn, k: uint32(defaultAnswer)})
	}
	return p
}

// tree finds the range of the number in the accumulator by binary search.
func tree(leaves []leaf) []insn {
	if len(leaves) == 1 {
		return leaves[0].code
	}
	half := len(leaves) / 2
	low, high := tree(leaves[:half]), tree(leaves[half:])
	out := make([]insn, 0, len(low)+len(high)+2)
	if len(low) <= maxConditionalJump {
		out = append(out, insn{code: opJumpAtLeast, jt: uint8(len(low)), k: leaves[half].first})
	} else {
		out = append(out,
			insn{code: opJumpAtLeast, jf: 1, k: leaves[half].first},
			insn{code: opJump, k: uint32(len(low))})
	}
	return append(append(out, low...), high...)
}

// callCode evaluates the rules of one call. Without rules the answer is other.
func callCode(rules []Rule, other Action) ([]insn, error) {
	if len(rules) == 0 {
		return answer(other), nil
	}
	var out []insn
	for _, r := range rules {
		code, err := ruleCode(r)
		if err != nil {
			return nil, err
		}
		out = append(out, code...)
	}
	return out, nil
}

// ruleCode returns the action if all conditions hold, and otherwise falls through to the next rule.
func ruleCode(r Rule) ([]insn, error) {
	out := answer(r.Action)
	for _, c := range slices.Backward(r.Args) {
		test, err := condCode(c, len(out))
		if err != nil {
			return nil, err
		}
		out = append(test, out...)
	}
	return out, nil
}

// condCode continues if c holds, and otherwise skips the rest instructions that follow.
func condCode(c Cond, rest int) ([]insn, error) {
	if c.Arg < 0 || c.Arg > 5 || len(c.In) == 0 || rest+1 > maxConditionalJump || len(c.In) > maxConditionalJump {
		return nil, fmt.Errorf("condition %+v cannot be compiled", c)
	}
	out := []insn{{code: opLoad, k: c.offset()}}
	if c.mask() != ^uint32(0) {
		out = append(out, insn{code: opAnd, k: c.mask()})
	}
	for i, v := range c.In {
		test := insn{code: opJumpEqual, jt: uint8(len(c.In) - 1 - i), k: v}
		if i == len(c.In)-1 {
			test.jf = uint8(rest)
		}
		out = append(out, test)
	}
	return out, nil
}

// encode writes a program in the kernel's format on a little-endian machine.
func encode(prog []insn) []byte {
	out := make([]byte, 0, 8*len(prog))
	for _, i := range prog {
		out = append(out, byte(i.code), byte(i.code>>8), i.jt, i.jf,
			byte(i.k), byte(i.k>>8), byte(i.k>>16), byte(i.k>>24))
	}
	return out
}
