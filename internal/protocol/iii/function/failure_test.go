package function

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestCodes compares the table of codes with the one that clients have.
func TestCodes(t *testing.T) {
	want := map[Code]string{
		S001: "validation false", S002: "validation false", S003: "validation false", S004: "validation false",
		S100: "config false", S101: "internal false", S102: "transient true", S200: "execution false",
		S210: "filesystem false", S211: "filesystem false", S212: "filesystem false", S213: "filesystem false",
		S214: "filesystem false", S215: "filesystem false", S216: "filesystem false", S217: "filesystem false",
		S218: "transient true", S219: "filesystem false", S300: "platform false", S400: "config false",
	}
	if len(Codes) != len(want) {
		t.Errorf("there are %d codes", len(Codes))
	}
	for _, c := range Codes {
		m := c.properties()
		if got := fmt.Sprint(m.kind, " ", m.retryable); got != want[c] {
			t.Errorf("%s: %s, want %s", c, got, want[c])
		}
	}
}

// TestEveryCodeIsDocumented tests that docs/iii-errors.md has an anchor for every code, and no
// other.
func TestEveryCodeIsDocumented(t *testing.T) {
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(filepath.Join(root, "docs", "iii-errors.md"))
	if err != nil {
		t.Fatal(err)
	}
	file, _, ok := strings.Cut(strings.TrimPrefix(DocsURL, "https://github.com/sandbar-dev/sandbar/blob/main/"), "#")
	if !ok || file != "docs/iii-errors.md" {
		t.Errorf("DocsURL leads to %s", file)
	}
	for _, c := range Codes {
		if n := strings.Count(string(doc), `<a id="`+string(c)+`"></a>`+"\n### "+string(c)+" "); n != 1 {
			t.Errorf("%s has %d anchors with a heading", c, n)
		}
	}
	if n := strings.Count(string(doc), "<a id="); n != len(Codes) {
		t.Errorf("there are %d anchors for %d codes", n, len(Codes))
	}
}

func TestPayload(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{fail(S211, "path not found: %s", "/<x>"), `{"code":"S211","docs_url":"` + DocsURL + `S211","fix":null,"fix_note":null,"message":"file not found: path not found: /<x>","retryable":false,"type":"filesystem"}`},
		{fail(S002, "id"), `{"code":"S002","docs_url":"` + DocsURL + `S002","fix":null,"fix_note":"the sandbox is gone; call sandbox::create first","message":"sandbox not found: id","retryable":false,"type":"validation"}`},
		{fail(S218, "x").with(map[string]any{"a": 1}, "do"), `{"code":"S218","docs_url":"` + DocsURL + `S218","fix":{"a":1},"fix_note":"do","message":"fs channel aborted: x","retryable":true,"type":"transient"}`},
		{&failure{code: S200, message: "m", partial: &partial{Stdout: "o", Truncated: true}},
			`{"code":"S200","docs_url":"` + DocsURL + `S200","fix":null,"fix_note":"raise ` + "`timeout_ms`" + ` on the exec call or split the work into smaller steps","message":"m","partial":{"stderr":"","stdout":"o","truncated":true},"retryable":false,"type":"execution"}`},
		{withStep("exec", "id", fail(S300, "x")), `{"code":"S300","docs_url":"` + DocsURL + `S300","fix":{"context":"during sandbox::run step ` + "`exec`" + `","inner_code":"S300","sandbox_id":"id"},"fix_note":null,"message":"during sandbox::run step ` + "`exec`" + ` (sandbox_id=id): VM boot failed: x","retryable":false,"type":"platform"}`},
	} {
		if diff := cmp.Diff(c.want, c.err.Error()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// TestEveryPlatformCodeIsMapped tests that every code of the platform is mapped, for each source of
// the error.
func TestEveryPlatformCodeIsMapped(t *testing.T) {
	want := map[sandbar.Code][3]string{ // a file operation, a create, a start
		sandbar.Invalid:         {"S210", "S001", "S001"},
		sandbar.Unauthenticated: {"S215", "S001", "S001"},
		sandbar.Denied:          {"S215", "S001", "126"},
		sandbar.NotFound:        {"S211", "S101", "127"},
		sandbar.Exists:          {"S213", "S300", "S400"},
		sandbar.Conflict:        {"S216", "S300", "S400"},
		sandbar.TooLarge:        {"S210", "S001", "S001"},
		sandbar.Unsupported:     {"S219", "S300", "S300"},
		sandbar.Exhausted:       {"S216", "S400", "S400"},
		sandbar.NoSpace:         {"S216", "S400", "S400"},
		sandbar.Timeout:         {"S216", "S400", "S300"},
		sandbar.Canceled:        {"S216", "S300", "S300"},
		sandbar.Unavailable:     {"S216", "S300", "S300"},
		sandbar.Gone:            {"S300", "S300", "S004"},
		sandbar.Internal:        {"S216", "S300", "S300"},
	}
	code := func(err error) string {
		var e *failure
		if !errors.As(err, &e) {
			t.Fatalf("%v is no failure", err)
		}
		return string(e.code)
	}
	for _, c := range sandbar.Codes {
		err := sandbar.Errorf(c, "why")
		start, _, failed := startFailure(err, "id")
		said := fmt.Sprint(start)
		if failed != nil {
			said = code(failed)
		}
		if got := [3]string{code(fileFailure(err, "/x", "path")), code(createFailure(err)), said}; got != want[c] {
			t.Errorf("%s: %v, want %v", c, got, want[c])
		}
	}
	limits := &sandbar.Error{Code: sandbar.Invalid, Field: "limits.cpus", Message: "too many"}
	if got := code(createFailure(limits)); got != "S400" {
		t.Errorf("a limit out of range is %s", got)
	}
	for errno, want := range map[syscall.Errno]string{
		syscall.ENOENT: "S211", syscall.EEXIST: "S213", syscall.ENOTEMPTY: "S214", syscall.EACCES: "S215", syscall.EPERM: "S215",
		syscall.EROFS: "S216", syscall.ENOTDIR: "S216", syscall.EISDIR: "S216", syscall.ENOSPC: "S216", syscall.EXDEV: "S216", syscall.EINVAL: "S216",
	} {
		if got := code(fileFailure(sandbar.Errorf(sandbar.Internal, "open: %w", errno), "/x", "path")); got != want {
			t.Errorf("%v: %s, want %s", errno, got, want)
		}
	}
}

// The result of a program that the system-call filter killed says why, after the program's own
// output.
func TestForeignProgramIsExplained(t *testing.T) {
	f := &Functions{}
	for signal, want := range map[int]string{31: "half a line\nexec: " + sandbar.ForeignCall(31) + "\n", 11: "half a line\n"} {
		r, err := f.ended(sandbar.Result{Outcome: sandbar.Signaled, Signal: signal}, execRequest{}, time.Second, &capture{stderr: []byte("half a line\n")}, time.Now())
		if err != nil || r.Stderr != want || r.ExitCode != 128+signal {
			t.Errorf("signal %d: %+v, %v, want %q", signal, r, err, want)
		}
	}
}

// TestEveryOutcomeIsMapped tests that every outcome becomes a result or an error.
func TestEveryOutcomeIsMapped(t *testing.T) {
	want := map[sandbar.Outcome]string{
		sandbar.Exited: "3", sandbar.Signaled: "139", sandbar.OutOfMemory: "137 out of memory", sandbar.OutputLimit: "137 truncated",
		sandbar.TimedOut: "S200", sandbar.Cancelled: "S300", sandbar.Lost: "S300", 99: "S300",
	}
	f := &Functions{opt: Options{Engine: testEngine(t)}}
	for _, o := range append(slices.Clone(sandbar.Outcomes), 99) {
		r, err := f.ended(sandbar.Result{Outcome: o, ExitCode: 3, Signal: 11}, execRequest{}, time.Second, &capture{}, time.Now())
		got := ""
		var e *failure
		switch {
		case errors.As(err, &e):
			got = string(e.code)
		default:
			got = fmt.Sprint(r.ExitCode)
			if r.OutOfMemory {
				got += " out of memory"
			}
			if r.Truncated {
				got += " truncated"
			}
			if r.Success {
				t.Errorf("%v is a success", o)
			}
		}
		if got != want[o] {
			t.Errorf("%v: %s, want %s", o, got, want[o])
		}
	}
}

func TestFixes(t *testing.T) {
	raw := request{"a": json.RawMessage(`1`), "b": json.RawMessage(`"x"`), "_caller_worker_id": json.RawMessage(`"w"`)}
	got, _ := json.Marshal(raw.fixed(map[string]any{"a": 2, "c": true}, "b").payload)
	if string(got) != `{"a":2,"c":true}` {
		t.Errorf("%s", got)
	}
	large := json.RawMessage(`"` + strings.Repeat("x", maxFix) + `"`)
	big := request{"content": large, "path": json.RawMessage(`"/x/y"`)}
	// Large fields are left out, and the note names them.
	const left = "; `fix` is without `content`, too large to be sent back: take it from the original request"
	for what, err := range map[string]error{
		"parents": missingParent(writeRequest{raw: big, path: "/x/y"}),
		"a mode":  modeFailure(fail(S210, "x"), request{"content": large, "path": json.RawMessage(`"/x/y"`), "mode": json.RawMessage(`"0o644"`)}, "0o644"),
		"argv":    command{cmd: "a b", args: []string{strings.Repeat("x", maxFix)}}.ambiguous(request{"content": json.RawMessage(`1`)}),
	} {
		var e *failure
		if !errors.As(err, &e) {
			t.Fatal(err)
		}
		fix, _ := json.Marshal(e.fix)
		want := map[string]string{"parents": `{"parents":true,"path":"/x/y"}`, "a mode": `{"mode":"0644","path":"/x/y"}`, "argv": `{"content":1}`}[what]
		note := map[bool]string{true: left, false: strings.Replace(left, "content", "argv", 1)}[what != "argv"]
		if string(fix) != want || !strings.HasSuffix(e.note, note) {
			t.Errorf("%s: fix %s, note %q", what, fix, e.note)
		}
	}
}
