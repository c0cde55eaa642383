package policy

import (
	"encoding/binary"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/bpf"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

var update = flag.Bool("update", false, "write the golden files anew")

var goarches = []string{"amd64", "arm64"}

// ruleSets are the two sets of rules for sandboxes.
func ruleSets() map[string][]Rule {
	return map[string][]Rule{"counted": Rules(), "uncounted": UncountedRules()}
}

// call is one system call in the form that the filter gets.
type call struct {
	arch uint32
	nr   uint32
	args [6]uint64
}

// decide interprets the rules without compiling them. The compiled program is compared with it.
func decide(a arch, rules []Rule, c call) Action {
	switch {
	case c.arch != a.audit:
		return Kill
	case a.x32 && c.nr != 0xffffffff && c.nr >= 0x40000000:
		return Kill
	}
	for _, n := range numbers() {
		if a.nr(n) == none || uint32(a.nr(n)) != c.nr {
			continue
		}
		for _, r := range rules {
			if slices.Contains(r.Names, n.name) && holds(r.Args, c.args) {
				return r.Action
			}
		}
	}
	return Errno(38)
}

func holds(conds []Cond, args [6]uint64) bool {
	for _, c := range conds {
		v := uint32(args[c.Arg])
		if c.High {
			v = uint32(args[c.Arg] >> 32)
		}
		if c.Mask != 0 {
			v &= c.Mask
		}
		if !slices.Contains(c.In, v) {
			return false
		}
	}
	return true
}

// machine runs a compiled program like the kernel.
type machine struct{ vm *bpf.VM }

func load(t testing.TB, prog []byte) machine {
	t.Helper()
	if len(prog)%8 != 0 {
		t.Fatalf("program has %d bytes, which is no number of instructions", len(prog))
	}
	var ins []bpf.Instruction
	for i := 0; i < len(prog); i += 8 {
		raw := bpf.RawInstruction{Op: binary.LittleEndian.Uint16(prog[i:]), Jt: prog[i+2], Jf: prog[i+3], K: binary.LittleEndian.Uint32(prog[i+4:])}
		in := raw.Disassemble()
		if _, ok := in.(bpf.RawInstruction); ok {
			t.Fatalf("instruction %d is not understood: %+v", i/8, raw)
		}
		ins = append(ins, in)
	}
	vm, err := bpf.NewVM(ins)
	if err != nil {
		t.Fatal(err)
	}
	return machine{vm}
}

// run returns the filter's answer to a call. The packet machine reads words as big-endian, but the
// kernel reads its own struct, so each word of the struct is written as big-endian.
func (m machine) run(t testing.TB, c call) Action {
	t.Helper()
	b := make([]byte, 0, 64)
	b = binary.BigEndian.AppendUint32(b, c.nr)
	b = binary.BigEndian.AppendUint32(b, c.arch)
	b = append(b, 0xde, 0xad, 0xbe, 0xef, 0xde, 0xad, 0xbe, 0xef) // instruction pointer
	for _, a := range c.args {
		b = binary.BigEndian.AppendUint32(b, uint32(a))
		b = binary.BigEndian.AppendUint32(b, uint32(a>>32))
	}
	got, err := m.vm.Run(b)
	if err != nil {
		t.Fatal(err)
	}
	return Action(uint32(got))
}

// argsFor returns arguments that distinguish all conditions on a call: for each argument the
// compared values and their neighbours, with and without bits outside the mask, in all
// combinations.
func argsFor(rules []Rule, name string) [][6]uint64 {
	values := map[int][]uint64{}
	for _, r := range rules {
		if !slices.Contains(r.Names, name) {
			continue
		}
		for _, c := range r.Args {
			vs := []uint64{0, 1, 1 << 31, 0xffffffff}
			for _, v := range c.In {
				vs = append(vs, uint64(v), uint64(v)+1, uint64(v)-1)
			}
			if c.Mask != 0 {
				for bit := range 32 {
					if c.Mask&(1<<bit) != 0 {
						vs = append(vs, 1<<bit)
					}
				}
				vs = append(vs, uint64(c.In[0])|uint64(^c.Mask))
			}
			for _, v := range vs {
				values[c.Arg] = append(values[c.Arg], v&0xffffffff, v&0xffffffff|0xabcd_0000_0000)
			}
		}
	}
	out := [][6]uint64{{}}
	for arg := range 6 {
		vs := values[arg]
		if len(vs) == 0 {
			continue
		}
		slices.Sort(vs)
		vs = slices.Compact(vs)
		var next [][6]uint64
		for _, base := range out {
			for _, v := range vs {
				base[arg] = v
				next = append(next, base)
			}
		}
		out = next
	}
	return out
}

// TestCompileDecidesAsTheTable runs the compiled programs for every number and every combination of
// arguments that a rule can distinguish.
func TestCompileDecidesAsTheTable(t *testing.T) {
	for set, rules := range ruleSets() {
		for _, goarch := range goarches {
			t.Run(set+"/"+goarch, func(t *testing.T) {
				a, err := findArch(goarch)
				if err != nil {
					t.Fatal(err)
				}
				prog, err := Compile(goarch, rules)
				if err != nil {
					t.Fatal(err)
				}
				m := load(t, prog)
				check := func(c call) {
					t.Helper()
					if got, want := m.run(t, c), decide(a, rules, c); got != want {
						t.Fatalf("call %+v: program says %v, table says %v", c, got, want)
					}
				}
				for nr := range uint32(1024) {
					check(call{arch: a.audit, nr: nr})
				}
				for _, nr := range []uint32{1 << 29, 1<<30 - 1, 1 << 30, 1<<30 + 1, 1<<30 + 59, 1<<30 + 512, 1<<31 - 1, 1 << 31, 1<<31 + 1, 0xfffffffe, 0xffffffff} {
					check(call{arch: a.audit, nr: nr})
				}
				for _, other := range []uint32{0, 0x40000003, 0x40000028, 0xc000003e, 0xc00000b7, 0xffffffff} {
					for nr := range uint32(512) {
						check(call{arch: other, nr: nr})
					}
				}
				for _, n := range numbers() {
					if a.nr(n) == none {
						continue
					}
					for _, args := range argsFor(rules, n.name) {
						check(call{arch: a.audit, nr: uint32(a.nr(n)), args: args})
					}
				}
			})
		}
	}
}

// TestRefusals lists calls that must be refused, independently of the table.
func TestRefusals(t *testing.T) {
	const (
		eperm, einval, enosys                = Skip | 1, Skip | 22, Skip | 38
		eprotonosupport, eafnosupport        = Skip | 93, Skip | 97
		eopnotsupp                           = Skip | 95
		newNS, newUser, sigchld       uint64 = 0x20000, 0x10000000, 17
	)
	tests := []struct {
		name string
		args [6]uint64
		want Action
	}{
		{"clone", [6]uint64{sigchld}, Allow},
		{"clone", [6]uint64{0x3d0f00}, Allow}, // the flags of pthread_create
		{"clone", [6]uint64{newUser | sigchld}, eperm},
		{"clone", [6]uint64{newNS | sigchld}, eperm},
		{"clone", [6]uint64{0x02000000}, eperm},
		{"clone", [6]uint64{0x04000000}, eperm},
		{"clone", [6]uint64{0x08000000}, eperm},
		{"clone", [6]uint64{0x20000000}, eperm},
		{"clone", [6]uint64{0x40000000}, eperm},
		{"clone", [6]uint64{newUser | 1<<40}, eperm}, // the kernel ignores the high half
		{"clone3", [6]uint64{}, enosys},
		{"unshare", [6]uint64{newUser}, eperm},
		{"setns", [6]uint64{3}, eperm},
		{"mount", [6]uint64{}, eperm},
		{"umount2", [6]uint64{}, eperm},
		{"pivot_root", [6]uint64{}, eperm},
		{"chroot", [6]uint64{}, eperm},
		{"fsopen", [6]uint64{}, eperm},
		{"fsmount", [6]uint64{}, eperm},
		{"fsconfig", [6]uint64{}, eperm},
		{"fspick", [6]uint64{}, eperm},
		{"move_mount", [6]uint64{}, eperm},
		{"open_tree", [6]uint64{}, eperm},
		{"open_tree_attr", [6]uint64{}, eperm},
		{"mount_setattr", [6]uint64{}, eperm},
		{"io_uring_setup", [6]uint64{}, enosys},
		{"io_uring_enter", [6]uint64{}, enosys},
		{"io_uring_register", [6]uint64{}, enosys},
		{"userfaultfd", [6]uint64{}, eperm},
		{"bpf", [6]uint64{}, eperm},
		{"perf_event_open", [6]uint64{}, eperm},
		{"add_key", [6]uint64{}, eperm},
		{"request_key", [6]uint64{}, eperm},
		{"keyctl", [6]uint64{}, eperm},
		{"kexec_load", [6]uint64{}, eperm},
		{"kexec_file_load", [6]uint64{}, eperm},
		{"init_module", [6]uint64{}, eperm},
		{"finit_module", [6]uint64{}, eperm},
		{"delete_module", [6]uint64{}, eperm},
		{"open_by_handle_at", [6]uint64{}, eperm},
		{"process_vm_readv", [6]uint64{}, eperm},
		{"process_vm_writev", [6]uint64{}, eperm},
		{"pidfd_getfd", [6]uint64{}, eperm},
		{"syslog", [6]uint64{}, eperm},
		{"personality", [6]uint64{0xffffffff}, Allow},
		{"personality", [6]uint64{0xffffffffffffffff}, Allow},
		{"personality", [6]uint64{0}, Allow},
		{"personality", [6]uint64{0x40000}, eperm},  // ADDR_NO_RANDOMIZE
		{"personality", [6]uint64{0x400000}, eperm}, // READ_IMPLIES_EXEC
		{"socket", [6]uint64{1, 1, 0}, Allow},
		{"socket", [6]uint64{2, 1 | 0x80000, 6}, Allow},
		{"socket", [6]uint64{10, 2 | 0x800, 17}, Allow},
		{"socket", [6]uint64{2, 3, 1}, eperm},
		{"socket", [6]uint64{2, 3 | 0x80000, 255}, eperm},
		{"socket", [6]uint64{2, 10, 3}, eperm},            // AF_PACKET by its old name
		{"socket", [6]uint64{2, 1, 262}, eprotonosupport}, // MPTCP
		{"socket", [6]uint64{2, 1, 132}, eprotonosupport}, // SCTP
		{"socket", [6]uint64{10, 5, 132}, eprotonosupport},
		{"socket", [6]uint64{2, 2, 1}, eprotonosupport},   // ICMP
		{"socket", [6]uint64{2, 2, 136}, eprotonosupport}, // UDP-Lite
		{"socket", [6]uint64{2, 6, 33}, eprotonosupport},  // DCCP
		{"socket", [6]uint64{16, 3, 0}, Allow},            // routing
		{"socket", [6]uint64{16, 3, 12}, eprotonosupport}, // netfilter
		{"socket", [6]uint64{16, 3, 9}, eprotonosupport},  // audit
		{"socket", [6]uint64{17, 3, 0}, eafnosupport},     // PACKET
		{"socket", [6]uint64{38, 5, 0}, eafnosupport},     // ALG
		{"socket", [6]uint64{40, 1, 0}, eafnosupport},     // VSOCK
		{"socket", [6]uint64{15, 3, 2}, eafnosupport},     // KEY
		{"socket", [6]uint64{40 | 1<<32, 1, 0}, eafnosupport},
		{"socketpair", [6]uint64{1, 1, 0}, Allow},
		{"socketpair", [6]uint64{30, 1, 0}, eafnosupport}, // TIPC
		{"setsockopt", [6]uint64{3, 6, 31}, Skip | 92},
		{"setsockopt", [6]uint64{3, 6, 1}, Allow},
		{"setsockopt", [6]uint64{3, 1, 31}, Allow},
		{"ioctl", [6]uint64{0, 0x5412}, eperm},
		{"ioctl", [6]uint64{0, 0x5412 | 1<<32}, eperm}, // CVE-2019-10063: the kernel truncates
		{"ioctl", [6]uint64{0, 0x541c}, eperm},
		{"ioctl", [6]uint64{0, 0x541c | 1<<63}, eperm},
		{"ioctl", [6]uint64{0, 0x5423}, eperm},
		{"ioctl", [6]uint64{0, 0x5401}, Allow},
		{"mknodat", [6]uint64{0, 0, 0x1000 | 0o644}, Allow},
		{"mknodat", [6]uint64{0, 0, 0x6000 | 0o644}, eperm},
		{"mknodat", [6]uint64{0, 0, 0x2000 | 0o644}, eperm},
		{"mknodat", [6]uint64{0, 0, 0x6000 | 1<<16}, eperm},
		{"prctl", [6]uint64{62, 1}, einval},
		{"prctl", [6]uint64{62, 0}, einval},
		{"prctl", [6]uint64{53, 0, 8}, eperm}, // PR_SET_SPECULATION_CTRL
		{"prctl", [6]uint64{53 | 1<<32, 1, 2}, eperm},
		{"prctl", [6]uint64{52, 0}, Allow}, // PR_GET_SPECULATION_CTRL
		{"prctl", [6]uint64{15, 1}, Allow},
		{"sendto", [6]uint64{3, 0, 1, 0}, Allow},
		{"sendto", [6]uint64{3, 0, 1, 0x4040}, Allow}, // MSG_NOSIGNAL | MSG_DONTWAIT
		{"sendto", [6]uint64{3, 0, 1, 1}, eopnotsupp}, // MSG_OOB
		{"sendto", [6]uint64{3, 0, 1, 0x4041}, eopnotsupp},
		{"sendto", [6]uint64{3, 0, 1, 1 | 1<<32}, eopnotsupp},
		{"sendmsg", [6]uint64{3, 0, 0x4040}, Allow},
		{"sendmsg", [6]uint64{3, 1, 1}, eopnotsupp},
		{"sendmsg", [6]uint64{3, 0, 0x4001}, eopnotsupp},
		{"sendmmsg", [6]uint64{3, 0, 1, 0x40}, Allow},
		{"sendmmsg", [6]uint64{3, 0, 1, 0x41}, eopnotsupp},
		{"recvmsg", [6]uint64{3, 0, 0x40}, Allow},
		{"sync", [6]uint64{}, Skip},
		{"prlimit64", [6]uint64{0, 7, 0x7f0000001000, 0}, Allow},
		{"prlimit64", [6]uint64{0, 4, 0, 0x7f0000001000}, Allow},
		{"prlimit64", [6]uint64{0, 4, 0x7f0000001000, 0}, Skip},
		{"prlimit64", [6]uint64{0, 4, 0x7f0000000000, 0}, Skip}, // a pointer whose low half is 0
		{"prlimit64", [6]uint64{0, 4, 0x7f0000000000, 0x7f0000001000}, eperm},
		{"prlimit64", [6]uint64{0, 4, 0x7f0000000000, 0x7f0000000000}, eperm},
		{"setrlimit", [6]uint64{4, 0x7f0000001000}, Skip},
		{"ptrace", [6]uint64{}, Allow},
		{"rseq", [6]uint64{}, Allow},
		{"mknod", [6]uint64{0, 0x6000}, eperm},
		{"modify_ldt", [6]uint64{}, enosys},
		{"iopl", [6]uint64{3}, eperm},
	}
	for _, goarch := range goarches {
		a, err := findArch(goarch)
		if err != nil {
			t.Fatal(err)
		}
		prog, err := CompileSeccomp(goarch)
		if err != nil {
			t.Fatal(err)
		}
		m := load(t, prog)
		nr := map[string]int32{}
		for _, n := range numbers() {
			nr[n.name] = a.nr(n)
		}
		for _, tt := range tests {
			n, ok := nr[tt.name]
			if !ok {
				t.Errorf("%s is in no table", tt.name)
				continue
			}
			if n == none {
				continue
			}
			if got := m.run(t, call{arch: a.audit, nr: uint32(n), args: tt.args}); got != tt.want {
				t.Errorf("%s: %s(%#x) = %v, want %v", goarch, tt.name, tt.args, got, tt.want)
			}
		}
	}
}

// TestForeignCalls: another architecture's entry and the x32 bit end the process, except for -1,
// which tracers set.
func TestForeignCalls(t *testing.T) {
	amd64, err := CompileSeccomp("amd64")
	if err != nil {
		t.Fatal(err)
	}
	arm64, err := CompileSeccomp("arm64")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		prog []byte
		c    call
		want Action
	}{
		{amd64, call{arch: 0x40000003, nr: 20}, Kill},         // int 0x80
		{amd64, call{arch: 0xc000003e, nr: 1<<30 + 39}, Kill}, // x32
		{amd64, call{arch: 0xc000003e, nr: 0x80000000}, Kill},
		{amd64, call{arch: 0xc000003e, nr: 0xffffffff}, Skip | 38},
		{amd64, call{arch: 0xc000003e, nr: 39}, Allow},
		{arm64, call{arch: 0x40000028, nr: 20}, Kill}, // 32-bit ARM
		{arm64, call{arch: 0xc000003e, nr: 39}, Kill},
		{arm64, call{arch: 0xc00000b7, nr: 172}, Allow},
	} {
		if got := load(t, tt.prog).run(t, tt.c); got != tt.want {
			t.Errorf("%+v: %v, want %v", tt.c, got, tt.want)
		}
	}
}

// TestEveryCallIsDecided: the tables have a rule for every call.
func TestEveryCallIsDecided(t *testing.T) {
	for set, rules := range ruleSets() {
		decided := map[string]bool{}
		for _, r := range rules {
			for _, n := range r.Names {
				decided[n] = true
			}
		}
		for _, n := range numbers() {
			if !decided[n.name] {
				t.Errorf("%s: no rule for %s", set, n.name)
			}
		}
	}
}

// TestRulesAreWellFormed: each row has a reason, and values are within their mask.
func TestRulesAreWellFormed(t *testing.T) {
	for set, rules := range ruleSets() {
		for _, r := range rules {
			if len(strings.Fields(r.Why)) < 3 {
				t.Errorf("%s: the row of %v does not say why", set, r.Names)
			}
			if len(r.Names) == 0 {
				t.Errorf("%s: a row without calls (%s)", set, r.Why)
			}
			for _, c := range r.Args {
				for _, v := range c.In {
					if c.Mask != 0 && v&^c.Mask != 0 {
						t.Errorf("%s: %v: %#x can never be seen through the mask %#x", set, r.Names, v, c.Mask)
					}
				}
			}
		}
	}
}

// TestNoRedundancy: removing any row, condition or value changes a decision. Exception: a row with
// ENOSYS may be the only one for its call, because it records a decision.
func TestNoRedundancy(t *testing.T) {
	for set, rules := range ruleSets() {
		for i, r := range rules {
			for _, name := range r.Names {
				mine := forCall(rules, name)
				if len(mine) == 1 && r.Action == Errno(38) {
					continue
				}
				args := argsFor(rules, name)
				at := 0
				for _, earlier := range rules[:i] {
					if slices.Contains(earlier.Names, name) {
						at++
					}
				}
				without := slices.Delete(slices.Clone(mine), at, at+1)
				if !differs(mine, without, args) {
					t.Errorf("%s: the row of %s that says %v (%s) changes nothing", set, name, r.Action, r.Why)
				}
				for _, weaker := range weakened(r) {
					changed := slices.Clone(mine)
					changed[at] = weaker
					if !differs(mine, changed, args) {
						t.Errorf("%s: %s: %+v could as well be %+v", set, name, r.Args, weaker.Args)
					}
				}
			}
		}
	}
}

func forCall(rules []Rule, name string) []Rule {
	return slices.DeleteFunc(slices.Clone(rules), func(r Rule) bool { return !slices.Contains(r.Names, name) })
}

// weakened returns copies of r without one condition, or with one value less.
func weakened(r Rule) []Rule {
	var out []Rule
	for i, c := range r.Args {
		w := r
		w.Args = slices.Delete(slices.Clone(r.Args), i, i+1)
		out = append(out, w)
		for j := range c.In {
			if len(c.In) == 1 {
				break
			}
			less := c
			less.In = slices.Delete(slices.Clone(c.In), j, j+1)
			w := r
			w.Args = slices.Clone(r.Args)
			w.Args[i] = less
			out = append(out, w)
		}
	}
	return out
}

func differs(x, y []Rule, args [][6]uint64) bool {
	first := func(rules []Rule, a [6]uint64) Action {
		for _, r := range rules {
			if holds(r.Args, a) {
				return r.Action
			}
		}
		return Errno(38)
	}
	return slices.ContainsFunc(args, func(a [6]uint64) bool { return first(x, a) != first(y, a) })
}

// TestGoldenDecisions compares the decisions, per architecture, with files for reviewers.
func TestGoldenDecisions(t *testing.T) {
	for set, rules := range ruleSets() {
		for _, goarch := range goarches {
			a, err := findArch(goarch)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			for _, n := range numbers() {
				if a.nr(n) == none {
					continue
				}
				var words []string
				for _, r := range forCall(rules, n.name) {
					word := r.Action.String()
					if len(r.Args) > 0 {
						word += " if " + condText(r.Args)
					}
					words = append(words, word)
				}
				fmt.Fprintf(&b, "%-24s %s\n", n.name, strings.Join(words, "; "))
			}
			golden(t, "seccomp_"+set+"_"+goarch+".txt", b.String())
		}
	}
}

func condText(conds []Cond) string {
	var out []string
	for _, c := range conds {
		s := "arg" + strconv.Itoa(c.Arg)
		if c.High {
			s += "/high"
		}
		if c.Mask != 0 {
			s += fmt.Sprintf("&%#x", c.Mask)
		}
		var vs []string
		for _, v := range c.In {
			vs = append(vs, fmt.Sprintf("%#x", v))
		}
		out = append(out, s+"="+strings.Join(vs, "|"))
	}
	return strings.Join(out, ",")
}

// golden compares got with a file of testdata, or writes it with -update.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.ReplaceAll(string(want), "\r\n", "\n"), got); d != "" {
		t.Errorf("%s (write it anew with -update, then review it) -want +got:\n%s", path, d)
	}
}

// TestProgramSize: the program is far smaller than the kernel's maximum, and a call takes few
// steps.
func TestProgramSize(t *testing.T) {
	for set, rules := range ruleSets() {
		for _, goarch := range goarches {
			prog, err := Compile(goarch, rules)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(prog) / 8; n > 1024 {
				t.Errorf("%s/%s: %d instructions; the kernel takes 4096 and a quarter of that should do", set, goarch, n)
			}
			a, err := findArch(goarch)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range numbers() {
				if a.nr(n) == none {
					continue
				}
				if got := steps(prog, uint32(a.nr(n)), a.audit); got > 64 {
					t.Errorf("%s/%s: %s takes %d instructions", set, goarch, n.name, got)
				}
			}
		}
	}
}

// steps returns the number of executed instructions for a call whose arguments are all 0.
func steps(prog []byte, nr, arch uint32) int {
	var acc uint32
	for pc, n := 0, 1; ; pc, n = pc+1, n+1 {
		in := prog[8*pc:]
		k := binary.LittleEndian.Uint32(in[4:])
		switch binary.LittleEndian.Uint16(in) {
		case opLoad:
			acc = map[uint32]uint32{offsetNumber: nr, offsetArch: arch}[k]
		case opAnd:
			acc &= k
		case opJump:
			pc += int(k)
		case opJumpEqual, opJumpAtLeast:
			taken := acc == k
			if binary.LittleEndian.Uint16(in) == opJumpAtLeast {
				taken = acc >= k
			}
			if taken {
				pc += int(in[2])
			} else {
				pc += int(in[3])
			}
		case opReturn:
			return n
		}
	}
}

// TestNumbersAreTheKernels compares both columns with golang.org/x/sys.
func TestNumbersAreTheKernels(t *testing.T) {
	testenv.Need(t, testenv.GoTool)
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}", "golang.org/x/sys/unix").Output()
	if err != nil {
		t.Fatalf("finding golang.org/x/sys: %v", err)
	}
	dir := strings.TrimSpace(string(out))
	for _, goarch := range goarches {
		want := kernelNumbers(t, filepath.Join(dir, "zsysnum_linux_"+goarch+".go"))
		// The first number of an architecture's own calls, not a call.
		delete(want, "arch_specific_syscall")
		a, err := findArch(goarch)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int32{}
		for _, n := range numbers() {
			if a.nr(n) != none {
				got[n.name] = a.nr(n)
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: -x/sys +table:\n%s", goarch, d)
		}
	}
}

// kernelNumbers reads the constants SYS_* from a file of x/sys.
func kernelNumbers(t *testing.T, path string) map[string]int32 {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]int32{}
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "SYS_") {
			return true
		}
		v, err := strconv.ParseInt(spec.Values[0].(*ast.BasicLit).Value, 0, 32)
		if err != nil {
			t.Fatal(err)
		}
		m[strings.ToLower(strings.TrimPrefix(spec.Names[0].Name, "SYS_"))] = int32(v)
		return true
	})
	if len(m) < 300 {
		t.Fatalf("%s has %d system calls; it was not understood", path, len(m))
	}
	return m
}

// TestCompiledSets: the two short functions compile the two sets of rules.
func TestCompiledSets(t *testing.T) {
	compile := map[string]func(string) ([]byte, error){"counted": CompileSeccomp, "uncounted": CompileSeccompUncounted}
	for set, rules := range ruleSets() {
		for _, goarch := range goarches {
			want, err := Compile(goarch, rules)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := compile[set](goarch); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s/%s: %d bytes, %v; want %d bytes", set, goarch, len(got), err, len(want))
			}
		}
	}
}

// TestCompileRefuses: rules that cannot be compiled are an error and never a weaker filter.
func TestCompileRefuses(t *testing.T) {
	why := "a row of this test"
	for _, tt := range []struct {
		name  string
		arch  string
		rules []Rule
		code  sandbar.Code
	}{
		{"unknown architecture", "mips64", Rules(), sandbar.Unsupported},
		{"unknown call", "amd64", []Rule{{Names: []string{"no_such_call"}, Action: Allow, Why: why}}, sandbar.Internal},
		{"last row conditional", "amd64", []Rule{{Names: []string{"read"}, Args: []Cond{{Arg: 0, In: []uint32{0}}}, Action: Allow, Why: why}}, sandbar.Internal},
		{"row after the last", "amd64", []Rule{{Names: []string{"read"}, Action: Allow, Why: why}, {Names: []string{"read"}, Action: Allow, Why: why}}, sandbar.Internal},
		{"argument beyond six", "amd64", []Rule{{Names: []string{"read"}, Args: []Cond{{Arg: 6, In: []uint32{0}}}, Action: Allow, Why: why}, {Names: []string{"read"}, Action: Kill, Why: why}}, sandbar.Internal},
		{"condition without values", "arm64", []Rule{{Names: []string{"read"}, Args: []Cond{{Arg: 0}}, Action: Allow, Why: why}, {Names: []string{"read"}, Action: Kill, Why: why}}, sandbar.Internal},
		{"too many values", "arm64", []Rule{{Names: []string{"read"}, Args: []Cond{{Arg: 0, In: make([]uint32, 300)}}, Action: Allow, Why: why}, {Names: []string{"read"}, Action: Kill, Why: why}}, sandbar.Internal},
	} {
		t.Run(tt.name, func(t *testing.T) {
			prog, err := Compile(tt.arch, tt.rules)
			if sandbar.CodeOf(err) != tt.code || prog != nil {
				t.Errorf("Compile = %d bytes, %v; want an error %s", len(prog), err, tt.code)
			}
		})
	}
}

func TestActionString(t *testing.T) {
	for a, want := range map[Action]string{
		Allow: "allow", Kill: "kill", Skip: "skip", Errno(1): "EPERM", Errno(22): "EINVAL", Errno(38): "ENOSYS",
		Errno(92): "ENOPROTOOPT", Errno(93): "EPROTONOSUPPORT", Errno(97): "EAFNOSUPPORT", Errno(5): "0x50005", Allow | 1: "0x7fff0001",
	} {
		if got := a.String(); got != want {
			t.Errorf("%#x: %q, want %q", uint32(a), got, want)
		}
	}
}
