package policy

import "testing"

// TestProgramRules runs the programs' own filter: a program can read its tag and not change it, and
// cannot change limits of other processes. All other calls are left to the main filter.
func TestProgramRules(t *testing.T) {
	const (
		eperm   = Skip | 1
		pointer = 0x7f0000000000 // a pointer whose low half is 0
		nofile  = 7
	)
	tests := []struct {
		name string
		args [6]uint64
		want Action
	}{
		{"setrlimit", [6]uint64{rlimitLocks, pointer}, eperm},
		{"setrlimit", [6]uint64{rlimitLocks | 1<<40, pointer}, eperm}, // the kernel ignores the high half
		{"setrlimit", [6]uint64{nofile, pointer}, Allow},
		{"prlimit64", [6]uint64{0, rlimitLocks, 0, pointer}, Allow},
		{"prlimit64", [6]uint64{1, rlimitLocks, 0, pointer}, Allow},
		{"prlimit64", [6]uint64{0, rlimitLocks, pointer, 0}, eperm},
		{"prlimit64", [6]uint64{0, rlimitLocks, pointer | 8, 0}, eperm},
		{"prlimit64", [6]uint64{0, rlimitLocks, 8, 0}, eperm},
		{"prlimit64", [6]uint64{0, rlimitLocks | 1<<32, pointer, 0}, eperm},
		{"prlimit64", [6]uint64{7, rlimitLocks, pointer, 0}, eperm},
		{"prlimit64", [6]uint64{0, nofile, pointer, 0}, Allow},
		{"prlimit64", [6]uint64{1 << 32, nofile, pointer, 0}, Allow}, // a pid has 32 bits: 0
		{"prlimit64", [6]uint64{1, nofile, pointer, 0}, eperm},
		{"prlimit64", [6]uint64{1, nofile, 0, pointer}, Allow},
		{"getrlimit", [6]uint64{rlimitLocks}, Allow},
		{"execve", [6]uint64{}, Allow},
		{"mount", [6]uint64{}, Allow}, // refused by the main filter
	}
	for _, goarch := range goarches {
		a, err := findArch(goarch)
		if err != nil {
			t.Fatal(err)
		}
		otherTag(t, goarch, a)
		prog, err := CompilePrograms(goarch, TagLocks)
		if err != nil {
			t.Fatal(err)
		}
		m := load(t, prog)
		for _, tt := range tests {
			for _, n := range numbers() {
				if n.name != tt.name || a.nr(n) == none {
					continue
				}
				if got := m.run(t, call{arch: a.audit, nr: uint32(a.nr(n)), args: tt.args}); got != tt.want {
					t.Errorf("%s: %s%x: %v, want %v", goarch, tt.name, tt.args, got, tt.want)
				}
			}
		}
		for nr := range uint32(1024) {
			if got := m.run(t, call{arch: a.audit, nr: nr}); got != Allow {
				t.Errorf("%s: call %d without arguments: %v", goarch, nr, got)
			}
		}
	}
}

// otherTag uses the filter of another tag, which protects the other limit.
func otherTag(t *testing.T, goarch string, a arch) {
	t.Helper()
	prog, err := CompilePrograms(goarch, TagRSS)
	if err != nil {
		t.Fatal(err)
	}
	m := load(t, prog)
	for _, n := range numbers() {
		if n.name != "prlimit64" {
			continue
		}
		for resource, want := range map[uint64]Action{rlimitRSS: Skip | 1, rlimitLocks: Allow} {
			if got := m.run(t, call{arch: a.audit, nr: uint32(a.nr(n)), args: [6]uint64{0, resource, 8}}); got != want {
				t.Errorf("%s: prlimit of %d: %v, want %v", goarch, resource, got, want)
			}
		}
	}
	priorities(t, goarch, a, m)
}

// Priorities: with that tag, programs can only lower theirs.
func priorities(t *testing.T, goarch string, a arch, m machine) {
	t.Helper()
	for _, n := range numbers() {
		if n.name != "setpriority" {
			continue
		}
		for nice, want := range map[int32]Action{-20: Errno(errAcces), -1: Errno(errAcces), 0: Allow, 19: Allow} {
			if got := m.run(t, call{arch: a.audit, nr: uint32(a.nr(n)), args: [6]uint64{0, 0, uint64(uint32(nice))}}); got != want {
				t.Errorf("%s: setpriority to %d: %v, want %v", goarch, nice, got, want)
			}
		}
	}
}
