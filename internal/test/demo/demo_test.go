package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// The whole demonstration, as "make demo" runs it.
func TestDemo(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS)
	binary := testenv.Build(t, "cmd/sandbar")
	var out bytes.Buffer
	if err := show(t.Context(), binary, &screen{w: &out}); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("colour, though nobody looks")
	}
}

func TestDemoOfSomethingElse(t *testing.T) {
	testenv.Need(t, testenv.Linux)
	var out bytes.Buffer
	err := show(t.Context(), "/bin/true", &screen{w: &out})
	if err == nil || !strings.Contains(err.Error(), "did not start") {
		t.Errorf("show = %v, want it to say that the server did not start", err)
	}
}

func TestOutcome(t *testing.T) {
	exit := 3
	tests := []struct {
		name     string
		messages []message // the last of them must be taken for the last
		want     outcome
	}{
		{"completed", []message{
			{Type: "ack"}, {Type: "status", Status: "running"}, {Type: "stdout", Data: "a"}, {Type: "stderr", Data: "b"},
			{Type: "stdout", Data: "c"}, {Type: "status", Status: "failed"}, {Type: "result", ExitCode: &exit},
		}, outcome{Status: "failed", Stdout: "ac", Stderr: "b", Exit: &exit}},
		{"output limit", []message{
			{Type: "ack"}, {Type: "status", Status: "failed"}, {Type: "error", Code: "OUTPUT_LIMIT", Message: "m"}, {Type: "result"},
		}, outcome{Status: "failed", Error: "OUTPUT_LIMIT", Reason: "m"}},
		{"refused", []message{{Type: "error", Code: "INVALID_REQUEST", Message: "m"}}, outcome{Error: "INVALID_REQUEST", Reason: "m"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got outcome
			for i, m := range tt.messages {
				if last := got.apply(m); last != (i == len(tt.messages)-1) {
					t.Errorf("message %d: last = %v", i, last)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A demonstration that cannot fail would show nothing: a program that did
// nothing at all is not what any scene expects.
func TestScenesExpectSomething(t *testing.T) {
	exit := 0
	nothing := outcome{Status: "completed", Exit: &exit}
	for _, sc := range append(programs(), attacks("127.0.0.1:1")...) {
		if err := sc.check(nothing); err == nil {
			t.Errorf("%s: satisfied by a program that did nothing", sc.title)
		}
		if sc.check(outcome{Error: "INTERNAL_ERROR"}) == nil {
			t.Errorf("%s: satisfied by an internal error", sc.title)
		}
	}
}

func TestKeepsSecrets(t *testing.T) {
	if err := keepsSecrets("root:*:19000:0:99999:7:::\n"); err == nil {
		t.Error("satisfied with a line of a password file")
	}
	if err := keepsSecrets("/etc/shadow: No such file\n"); err != nil {
		t.Error(err)
	}
}

func TestPrintable(t *testing.T) {
	if got, want := printable("a\x1b[31m\tb\u009bc\x7f é"), "a\uFFFD[31m\tb\uFFFDc\uFFFD é"; got != want {
		t.Errorf("printable = %q, want %q", got, want)
	}
}

func TestLinesAreShownWhole(t *testing.T) {
	var out bytes.Buffer
	l := lines{s: &screen{w: &out}, partial: map[string]string{}}
	l.add(message{Type: "stdout", Data: "one\ntw"}, 0)
	l.add(message{Type: "stderr", Data: "err\n"}, 0)
	l.add(message{Type: "stdout", Data: "o\nthree"}, 0)
	l.add(message{Type: "status", Status: "completed"}, 0)
	l.end()
	want := "    0.00s stdout  one\n    0.00s stderr  err\n    0.00s stdout  two\n          stdout  three\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
