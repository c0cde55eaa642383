package executor

import (
	"fmt"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/protocol/wiretest"
)

// TestTables compares the protocol's words for every outcome and every error of the platform with a
// golden file: for a command its code and error, for a process its state; for an error the status
// of a program that was not started, the status of /files, and whether file operations respond 200
// with an error.
func TestTables(t *testing.T) {
	wiretest.Tables(t, "testdata/tables.golden",
		func(r sandbar.Result) string {
			e := endingOf(r, 1500*time.Millisecond)
			return fmt.Sprintf("code=%d state=%s error=%q", e.code, e.state, e.reason)
		},
		func(e *sandbar.Error) string {
			return fmt.Sprintf("start=%d files=%d in200=%v", startStatusOf(e.Code), statusOf(e.Code), ofFile(e))
		})
}

// TestTablesAreTotal tests that an unknown outcome or code is never reported as success.
func TestTablesAreTotal(t *testing.T) {
	for _, o := range []sandbar.Outcome{0, -1, 99} {
		if e := endingOf(sandbar.Result{Outcome: o}, 0); e.code == 0 || e.state == completed || e.state == running {
			t.Errorf("outcome %d: %+v", o, e)
		}
	}
	if s := statusOf("something new"); s != 500 {
		t.Errorf("unknown code: %d", s)
	}
}
