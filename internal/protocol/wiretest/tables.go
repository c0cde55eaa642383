package wiretest

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar"
)

// Tables compares a protocol's mapping of every outcome and every error code of the platform with a
// golden file, so that a new one has a row and an old row does not change by accident. The file is
// written by hand from the protocol's specification. Its lines are
//
//	outcome NAME EXITCODE: result of outcome
//	code NAME: result of code
//	code NAME (FIELD): result of code for an error with a Field
//
// in the order of sandbar.Outcomes and sandbar.Codes. The outcome "exited" has a line for each of
// the exit codes 0, 1 and 255; "unsupported" has a second line with the Field "language".
func Tables(t *testing.T, golden string, outcome func(sandbar.Result) string, code func(*sandbar.Error) string) {
	t.Helper()
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), tables(outcome, code)); d != "" {
		t.Errorf("%s (-want +got)\n%s", golden, d)
	}
}

func tables(outcome func(sandbar.Result) string, code func(*sandbar.Error) string) string {
	var b strings.Builder
	for _, o := range sandbar.Outcomes {
		exits := []int{0}
		if o == sandbar.Exited {
			exits = []int{0, 1, 255}
		}
		for _, n := range exits {
			fmt.Fprintf(&b, "outcome %s %d: %s\n", o, n, outcome(sandbar.Result{Outcome: o, ExitCode: n}))
		}
	}
	for _, c := range sandbar.Codes {
		fmt.Fprintf(&b, "code %s: %s\n", c, code(&sandbar.Error{Code: c}))
		if c == sandbar.Unsupported {
			fmt.Fprintf(&b, "code %s (language): %s\n", c, code(&sandbar.Error{Code: c, Field: "language"}))
		}
	}
	return b.String()
}
