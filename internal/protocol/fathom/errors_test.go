package fathom

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/fathom/wire"
	"github.com/sandbar-dev/sandbar/internal/protocol/wiretest"
)

// TestTables compares the messages of every outcome and every error of the platform with a golden
// file.
func TestTables(t *testing.T) {
	wiretest.Tables(t, "testdata/tables.golden",
		func(r sandbar.Result) string { return describe(endingOf(r), r.ExitCode) },
		func(e *sandbar.Error) string { return describe(ending{code: codeOf(e)}, 0) })
}

func describe(e ending, exitCode int) string {
	var s string
	if e.status != "" {
		s += " status=" + string(e.status)
	}
	if e.code != "" {
		s += fmt.Sprintf(" error=%s retryable=%v", e.code, e.code.Retryable())
	}
	switch {
	case e.result && e.exitCode:
		s += fmt.Sprintf(" result=%d", exitCode)
	case e.result:
		s += " result=null"
	}
	return strings.TrimSpace(s)
}

// TestTablesAreTotal tests that an unknown outcome or code is reported as unknown.
func TestTablesAreTotal(t *testing.T) {
	for _, o := range []sandbar.Outcome{0, -1, 99} {
		if e := endingOf(sandbar.Result{Outcome: o}); e.status != "" || e.result || e.code != wire.CodeInternalError {
			t.Errorf("outcome %d: %+v", o, e)
		}
	}
	if c := codeOf(&sandbar.Error{Code: "something new"}); c != wire.CodeInternalError {
		t.Errorf("unknown code: %s", c)
	}
	if r := refuse("x", errors.New("plain")); r.code != wire.CodeInternalError || r.id != "x" || r.message != "plain" {
		t.Errorf("plain error: %+v", r)
	}
}

// TestRetryable compares Retryable with the specification's table of error codes, and with that of
// docs/fathom.md.
func TestRetryable(t *testing.T) {
	page, err := os.ReadFile("../../../docs/fathom.md")
	if err != nil {
		t.Fatal(err)
	}
	for code, want := range map[Code]bool{
		wire.CodeTimeout: false, wire.CodeOOM: false, wire.CodeOutputLimit: false,
		wire.CodeLanguageNotSupported: false, wire.CodeInvalidRequest: false, wire.CodeUnknownExecution: false,
		wire.CodeSandboxOverloaded: true, wire.CodeInternalError: true, wire.CodeNetworkError: true,
	} {
		if got := code.Retryable(); got != want {
			t.Errorf("%s: retryable is %v", code, got)
		}
		if row := fmt.Sprintf("\n| `%s` | %s | ", code, map[bool]string{true: "yes", false: "no"}[want]); !strings.Contains(string(page), row) {
			t.Errorf("docs/fathom.md has no row %q", row)
		}
	}
	for _, status := range []Status{wire.Running, wire.Completed, wire.Failed, wire.Cancelled, wire.TimedOut, wire.OOM} {
		if !strings.Contains(string(page), "`"+string(status)+"`") {
			t.Errorf("docs/fathom.md has no status %s", status)
		}
	}
}

// TestEndingBeforeStart tests the codes TIMEOUT and OOM: the limit was reached before the program
// ran, so there is no result.
func TestEndingBeforeStart(t *testing.T) {
	for _, tt := range []struct {
		outcome   sandbar.Outcome
		started   bool
		cancelled bool
		want      string
	}{
		{sandbar.TimedOut, false, false, "error=TIMEOUT retryable=false"},
		{sandbar.OutOfMemory, false, false, "error=OOM retryable=false"},
		{sandbar.TimedOut, true, false, "status=timeout result=null"},
		{sandbar.OutOfMemory, true, false, "status=oom result=null"},
		{sandbar.Cancelled, true, true, "status=cancelled result=null"},
		{sandbar.Cancelled, false, true, "status=cancelled result=null"},
		{sandbar.Cancelled, true, false, "error=NETWORK_ERROR retryable=true"},
	} {
		r := &run{started: tt.started}
		r.cancelled.Store(tt.cancelled)
		if got := describe(r.ending(sandbar.Result{Outcome: tt.outcome}, nil), 0); got != tt.want {
			t.Errorf("%v started=%v cancelled=%v: %s, want %s", tt.outcome, tt.started, tt.cancelled, got, tt.want)
		}
	}
}

// TestEndingOfCancel tests that only a cancel by the client is reported as "cancelled".
func TestEndingOfCancel(t *testing.T) {
	r := &run{}
	err := sandbar.Errorf(sandbar.Canceled, "cancelled")
	if got := describe(r.ending(sandbar.Result{}, err), 0); got != "error=NETWORK_ERROR retryable=true" {
		t.Errorf("by the server: %s", got)
	}
	r.cancelled.Store(true)
	if got := describe(r.ending(sandbar.Result{}, err), 0); got != "status=cancelled result=null" {
		t.Errorf("by the client: %s", got)
	}
	if got := describe(r.ending(sandbar.Result{}, sandbar.Errorf(sandbar.Timeout, "late")), 0); got != "error=TIMEOUT retryable=false" {
		t.Errorf("a cancel that came too late: %s", got)
	}
}
