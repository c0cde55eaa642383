package outcome

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/cli"
)

var limits = sandbar.Limits{Memory: 64 << 20, Timeout: time.Second, Output: 1 << 20}

// Every outcome has an exit code and, if the output does not show it, a line; for a program here
// and for one of a daemon.
func TestOutcomes(t *testing.T) {
	want := map[sandbar.Outcome]struct {
		code int
		line string
	}{
		sandbar.Exited:      {7, ""},
		sandbar.Signaled:    {139, ""},
		sandbar.OutOfMemory: {137, "killed: out of memory (limit 64 MiB)"},
		sandbar.OutputLimit: {153, "killed: too much output (limit 1 MiB)"},
		sandbar.TimedOut:    {124, "killed: timeout (limit 1s)"},
		sandbar.Cancelled:   {130, ""},
		sandbar.Lost:        {125, "the sandbox died while the program ran; the program's result is unknown"},
	}
	for _, o := range sandbar.Outcomes {
		w, ok := want[o]
		if !ok {
			t.Errorf("%v has no row", o)
		}
		r := sandbar.Result{Outcome: o, ExitCode: 7, Signal: 11}
		var stderr strings.Builder
		p := Printer{Stderr: &stderr, Limits: limits, Signal: 2, MaxOutput: sandbar.Unlimited}
		if code := cli.ExitCode(p.Ended(r, nil, NewStreams(nil, nil, sandbar.Unlimited))); code != w.code {
			t.Errorf("%v: exit code %d, want %d", o, code, w.code)
		}
		if got := strings.TrimSuffix(strings.TrimPrefix(stderr.String(), "sandbar: "), "\n"); got != w.line {
			t.Errorf("%v: %q, want %q", o, got, w.line)
		}
		stderr.Reset()
		if code := cli.ExitCode(Remote(&stderr, wire.ResultOf(r), 2)); code != w.code {
			t.Errorf("%v of a daemon: exit code %d, want %d", o, code, w.code)
		}
	}
}

func TestPlatformCode(t *testing.T) {
	noInterpreter := &sandbar.Error{Code: sandbar.Unsupported, Field: "language", Err: sandbar.Errorf(sandbar.NotFound, "no python3")}
	for _, tt := range []struct {
		err    error
		signal int
		want   int
	}{
		{sandbar.Errorf(sandbar.NotFound, "no such program"), 0, cli.ExitNotFound},
		{noInterpreter, 0, cli.ExitNotFound},
		{sandbar.Errorf(sandbar.Denied, "not executable"), 0, cli.ExitNotExecutable},
		{&sandbar.Error{Code: sandbar.NotFound, Field: "image"}, 0, cli.ExitPlatform},
		{&sandbar.Error{Code: sandbar.NotFound, Field: "dir"}, 0, cli.ExitPlatform},
		{sandbar.Errorf(sandbar.Canceled, "cancelled"), 15, 143},
		{sandbar.Errorf(sandbar.Canceled, "cancelled"), 0, cli.ExitPlatform},
		{sandbar.Errorf(sandbar.Internal, "a fault"), 15, cli.ExitPlatform},
	} {
		if got := PlatformCode(tt.err, tt.signal); got != tt.want {
			t.Errorf("%v with the signal %d: %d, want %d", tt.err, tt.signal, got, tt.want)
		}
	}
}

// Each output is cut by itself, and the program goes on.
func TestStreams(t *testing.T) {
	var stdout, stderr strings.Builder
	s := NewStreams(&stdout, &stderr, 4)
	for _, c := range []sandbar.Chunk{{Stream: sandbar.Stdout, Data: []byte("abc")}, {Stream: sandbar.Stderr, Data: []byte("1234")}, {Stream: sandbar.Stdout, Data: []byte("def")}} {
		if err := s.Output(c); err != nil {
			t.Fatal(err)
		}
	}
	if stdout.String() != "abcd" || stderr.String() != "1234" || strings.Join(s.Cut(), ",") != "stdout" {
		t.Errorf("%q, %q, cut %q", &stdout, &stderr, s.Cut())
	}
	full := errors.New("full")
	s = NewStreams(failing{full}, failing{full}, sandbar.Unlimited)
	if err := s.Output(sandbar.Chunk{Stream: sandbar.Stdout, Data: []byte("x")}); err != full || s.Err != full {
		t.Errorf("%v, %v", err, s.Err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// Output that is no text is in base64; an error is in the object, and not on standard error.
func TestReport(t *testing.T) {
	var stdout, stderr strings.Builder
	p := Printer{Stdout: &stdout, Stderr: &stderr, JSON: true, MaxOutput: sandbar.Unlimited, Caps: driver.Caps{Name: "native", Boundary: driver.BoundaryNamespaces}}
	s := NewStreams(nil, nil, sandbar.Unlimited)
	s.Capture()
	s.Output(sandbar.Chunk{Stream: sandbar.Stdout, Data: []byte("a\xff")})
	s.Output(sandbar.Chunk{Stream: sandbar.Stderr, Data: []byte("ü")})
	if code := cli.ExitCode(p.Ended(sandbar.Result{Outcome: sandbar.Exited, ExitCode: 3, Duration: 1500 * time.Microsecond}, nil, s)); code != 3 {
		t.Errorf("exit code %d", code)
	}
	var r Report
	if err := json.Unmarshal([]byte(stdout.String()), &r); err != nil {
		t.Fatal(err)
	}
	if r.Outcome != "exited" || *r.ExitCode != 3 || r.Signal != nil || r.DurationMS != 1.5 || r.Stdout != "Yf8=" || r.StdoutEncoding != "base64" ||
		r.Stderr != "ü" || r.StderrEncoding != "utf-8" || r.Driver != "native" || r.Error != nil {
		t.Errorf("%+v", r)
	}
	stdout.Reset()
	if code := cli.ExitCode(p.Failed(sandbar.Errorf(sandbar.Unavailable, "no engine"))); code != cli.ExitPlatform {
		t.Errorf("exit code %d", code)
	}
	r = Report{}
	if err := json.Unmarshal([]byte(stdout.String()), &r); err != nil || r.Outcome != "error" || r.Error == nil || r.Error.Code != sandbar.Unavailable || r.Error.Message != "no engine" {
		t.Errorf("%+v, %v", r, err)
	}
	if stderr.String() != "" {
		t.Errorf("standard error has %q", &stderr)
	}
}
