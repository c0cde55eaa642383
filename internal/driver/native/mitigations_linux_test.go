package native

import (
	"bytes"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// TestMitigated: speculation features are permanently disabled for programs, cold and warm, unless
// the operator enables them. If the kernel has no control for a feature, programs have the host's
// state.
func TestMitigated(t *testing.T) {
	testenv.Need(t, testenv.Python)
	const ask = `
import ctypes
print(*[ctypes.CDLL(None).prctl(*map(ctypes.c_ulong, (52, what, 0, 0, 0))) for what in (0, 1)])
`
	want := func(mitigated bool) string {
		var states [2]int
		for what := range states {
			state, err := unix.PrctlRetInt(unix.PR_GET_SPECULATION_CTRL, uintptr(what), 0, 0, 0)
			if err != nil {
				state = -1
			}
			if mitigated && state > 0 && state&unix.PR_SPEC_PRCTL != 0 {
				state = unix.PR_SPEC_PRCTL | unix.PR_SPEC_FORCE_DISABLE
			}
			states[what] = state
		}
		return fmt.Sprintln(states[0], states[1])
	}
	for _, allowed := range []bool{false, true} {
		d, err := New(driver.Host{Speculation: allowed}, agentBinary(t))
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		for _, warm := range []bool{false, true} {
			var out bytes.Buffer
			var p driver.Process
			std := driver.Stdio{Stdout: &out, Stderr: &out}
			if warm {
				box := newFork(t, newTemplate(t, d, pythonTemplate(d)))
				e, _ := driver.As[driver.Evaluator](box)
				p, err = e.Eval(t.Context(), driver.Evaluation{Path: "main.py", Code: ask}, std)
			} else {
				box, cerr := d.Create(t.Context(), sandbar.NewID(), pythonTemplate(d).Spec)
				if cerr != nil {
					t.Fatal(cerr)
				}
				defer box.Destroy(t.Context())
				p, err = box.Start(t.Context(), sandbar.Cmd{Args: []string{"python3", "-c", ask}}, std)
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Wait(); err != nil || out.String() != want(!allowed) {
				t.Errorf("speculation %v, warm %v: %q, want %q (%v)", allowed, warm, out.String(), want(!allowed), err)
			}
		}
	}
}
