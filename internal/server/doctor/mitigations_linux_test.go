package doctor

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMitigations(t *testing.T) {
	for _, tt := range []struct {
		store, indirect int
		err             error
		state, says     string
	}{
		{1 | 2, 1 | 2, nil, yes, "store bypass: can be switched off for programs; indirect branches: can be"},
		{0, 4, nil, yes, "store bypass: the processor is not affected; indirect branches: off for the whole host"},
		{2, 1 | 2, nil, limited, "store bypass: cannot be switched off"},
		{2, 2, nil, limited, "indirect branches: cannot be switched off"},
		{0, 0, unix.EINVAL, yes, "store bypass: unknown"},
	} {
		f := speculation(func(what int) (int, error) {
			if what == unix.PR_SPEC_STORE_BYPASS {
				return tt.store, tt.err
			}
			return tt.indirect, tt.err
		})
		if f.State != tt.state || !strings.Contains(f.Detail, tt.says) || (f.State == limited) != (f.Fix != "") {
			t.Errorf("%+v: %+v", tt, f)
		}
	}
	for answer, want := range map[error]string{unix.EFAULT: yes, unix.ENODEV: yes, unix.EINVAL: no} {
		if f := coreScheduling(answer); f.State != want || (f.State == no) != (f.Fix != "") {
			t.Errorf("%v: %+v", answer, f)
		}
	}
	for pattern, want := range map[string]string{"core": yes, "|/usr/share/apport/apport %p": yes, "@/run/coredump.socket": limited, "@@/run/coredump.socket": limited} {
		if f := coreDumps(pattern); f.State != want || (f.State == limited) != (f.Fix != "") {
			t.Errorf("%s: %+v", pattern, f)
		}
	}
}
