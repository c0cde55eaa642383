package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/sandbar-dev/sandbar"
)

func TestExitCode(t *testing.T) {
	invalid := sandbar.Errorf(sandbar.Invalid, "bad")
	for _, tt := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{Exit(137), 137},
		{fmt.Errorf("more: %w", Exit(3)), 3},
		{Usagef("sandbar eval", "no code"), ExitUsage},
		{invalid, ExitUsage},
		{Fail(ExitPlatform, invalid), ExitPlatform},
		{errors.New("other"), ExitFailure},
		{OutputError(fmt.Errorf("write: %w", syscall.EPIPE)), ExitSignal + SignalPipe},
		{OutputError(syscall.ENOSPC), ExitPlatform},
	} {
		if got := ExitCode(tt.err); got != tt.want {
			t.Errorf("%v: %d, want %d", tt.err, got, tt.want)
		}
	}
}

func TestReport(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{Exit(1), ""},
		{Usagef("sandbar eval", "no %s", "code"), "sandbar: no code\nTry \"sandbar eval --help\".\n"},
		{Fail(2, errors.Join(errors.New("a"), errors.Join(errors.New("b"), errors.New("c")))), "sandbar: a\nsandbar: b\nsandbar: c\n"},
	} {
		var b strings.Builder
		if Report(&b, tt.err); b.String() != tt.want {
			t.Errorf("%v: %q, want %q", tt.err, &b, tt.want)
		}
	}
}

func TestText(t *testing.T) {
	for s, want := range map[string]string{"plain ü": "plain ü", "\x1b[31m": `"\x1b[31m"`, "a\xff": `"a\xff"`} {
		if got := Printable(s); got != want {
			t.Errorf("%q is printed as %s", s, got)
		}
	}
	if got := Printable(strings.Repeat("x", 600)); len(got) > 550 {
		t.Errorf("a long text is printed in %d bytes", len(got))
	}
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1500: "1.5 kB", 2_000_000: "2.0 MB", 3_500_000_000: "3.5 GB"} {
		if got := FormatBytes(n); got != want {
			t.Errorf("%d is %s", n, got)
		}
	}
	if _, err := OpenFile(t.TempDir()); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("a directory: %v", err)
	}
	if OnTerminal(&strings.Builder{}) {
		t.Error("a buffer is a terminal")
	}
	if err := Cause(&os.PathError{Op: "open", Path: "x", Err: syscall.ENOENT}); err != syscall.ENOENT {
		t.Errorf("%v", err)
	}
}
