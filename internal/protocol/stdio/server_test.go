package stdio

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// ask sends lines and returns the responses, one per line that is not blank.
func ask(t *testing.T, s *Server, lines ...string) []map[string]any {
	t.Helper()
	var out bytes.Buffer
	if err := s.Serve(t.Context(), strings.NewReader(strings.Join(lines, "\n")), &out); err != nil {
		t.Fatal(err)
	}
	var answers []map[string]any
	for line := range strings.Lines(out.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil || !strings.HasSuffix(line, "\n") {
			t.Fatalf("an answer is no line of JSON (%v): %q", err, line)
		}
		answers = append(answers, m)
	}
	return answers
}

func shellLine(id, command string) string {
	b, err := json.Marshal(map[string]any{"type": "shell", "id": id, "command": command, "time_limit_ms": 400})
	if err != nil {
		panic(err)
	}
	return string(b)
}

// TestOutcomes tests the response to every outcome.
func TestOutcomes(t *testing.T) {
	commands := map[sandbar.Outcome]struct {
		command string
		code    any
		err     string
	}{
		sandbar.Exited:      {"exit 7", 7.0, ""},
		sandbar.Signaled:    {"signal 11", 139.0, ""},
		sandbar.OutOfMemory: {"oom", nil, "Command execution failed: out of memory (the limit is 67108864 bytes)"},
		sandbar.OutputLimit: {"flood stdout 5000", nil, "Command execution failed: more than 1000 bytes of output"},
		sandbar.TimedOut:    {"sleep 1h", nil, "Command execution failed: timeout exceeded"},
		sandbar.Lost:        {"lost", nil, "Command execution failed: the sandbox has died; its files are lost, and the next request gets a new one"},
	}
	for _, o := range sandbar.Outcomes {
		if o == sandbar.Cancelled {
			continue // see TestCancelled
		}
		t.Run(o.String(), func(t *testing.T) {
			tc, ok := commands[o]
			if !ok {
				t.Fatalf("the outcome %s has no command", o)
			}
			s := newServer(t, faulty.New(), Options{}, func(c *engine.Config) { c.Default.Output = 1000 })
			answers := ask(t, s, shellLine("a", tc.command), shellLine("b", "exit 0"))
			want := map[string]any{"type": "shell", "id": "a", "exit_code": tc.code, "timed_out": o == sandbar.TimedOut,
				"stderr": "", "stdout": answers[0]["stdout"]}
			if tc.err != "" {
				want["error"] = tc.err
			}
			if diff := cmp.Diff(want, answers[0]); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if o == sandbar.OutputLimit && len(answers[0]["stdout"].(string)) != 1000 {
				t.Errorf("%d bytes of output, want exactly the limit", len(answers[0]["stdout"].(string)))
			}
			if answers[1]["exit_code"] != 0.0 {
				t.Errorf("the next request is answered with %v", answers[1])
			}
		})
	}
}

// TestCancelled tests that the end of the context ends a command, which still gets a response.
func TestCancelled(t *testing.T) {
	s := newServer(t, faulty.New(), Options{}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	in, feed := io.Pipe()
	defer in.Close()
	out, answers := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, in, answers) }()
	if _, err := io.WriteString(feed, `{"type":"shell","id":"c","command":"print stdout hi","time_limit_ms":60000}`+"\n"); err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(out)
	var first, second map[string]any
	if err := d.Decode(&first); err != nil || first["stdout"] != "hi\n" {
		t.Fatalf("%v, %v", first, err)
	}
	go io.WriteString(feed, `{"type":"shell","id":"d","command":"sleep 1h","time_limit_ms":60000}`+"\n")
	time.AfterFunc(20*time.Millisecond, cancel)
	if err := d.Decode(&second); err != nil || second["id"] != "d" || second["exit_code"] != nil || !strings.Contains(fmt.Sprint(second["error"]), "cancelled") {
		t.Fatalf("%v, %v", second, err)
	}
	feed.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// TestDriverWithoutAbilities tests that a sandbox is replaced if the driver cannot reset it, and
// that status omits memory if the driver cannot measure it.
func TestDriverWithoutAbilities(t *testing.T) {
	d := faulty.New()
	s := newServer(t, d, Options{}, nil)
	answers := ask(t, s,
		`{"type":"write_file","path":"f","content":"x","id":"1"}`,
		`{"type":"status","id":"2"}`,
		`{"type":"reset","id":"3"}`,
		`{"type":"read_file","path":"f","id":"4"}`)
	if answers[0]["success"] != true || answers[2]["success"] != true || answers[3]["success"] != false {
		t.Errorf("answers are %v", answers)
	}
	delete(answers[1], "uptime_ms")
	want := map[string]any{"type": "status", "id": "2", "memory_used_bytes": 0.0, "memory_limit_bytes": float64(64 << 20), "ready": true}
	if diff := cmp.Diff(want, answers[1]); diff != "" {
		t.Errorf("status: -want +got:\n%s", diff)
	}
}

// TestNoSandbox tests that without a sandbox every request gets the reason, and status is not
// ready.
func TestNoSandbox(t *testing.T) {
	d := faulty.New()
	s := newServer(t, d, Options{}, nil)
	d.OnCreate = faulty.FailFirst(-1, &sandbar.Error{Code: sandbar.Exhausted, Message: "no more"})
	answers := ask(t, s, shellLine("0", "lost"), shellLine("1", "exit 0"),
		`{"type":"status","id":"2"}`, `{"type":"reset","id":"3"}`, `{"type":"read_file","path":"f","id":"4"}`, `{"type":"write_file","path":"f","content":"","id":"5"}`)
	for i, a := range answers[1:] {
		if !strings.Contains(fmt.Sprint(a["error"]), "no more") {
			t.Errorf("request %d is answered with %v", i+1, a)
		}
	}
	if answers[2]["ready"] != false {
		t.Errorf("status is ready without a sandbox: %v", answers[2])
	}
	if _, err := New(t.Context(), s.e, Options{}); sandbar.CodeOf(err) != sandbar.Exhausted {
		t.Errorf("New without a sandbox: %v", err)
	}
}

// endless returns n bytes and then a rest.
type endless struct {
	n    int64
	rest io.Reader
}

func (e *endless) Read(p []byte) (int, error) {
	if e.n <= 0 {
		return e.rest.Read(p)
	}
	n := min(int64(len(p)), e.n)
	for i := range p[:n] {
		p[i] = 'a'
	}
	e.n -= n
	return int(n), nil
}

// TestLongLine tests that a line of 1 GiB is one error and is not held in memory.
func TestLongLine(t *testing.T) {
	s := newServer(t, faulty.New(), Options{MaxLine: 1 << 20}, nil)
	var out bytes.Buffer
	in := &endless{1 << 30, strings.NewReader("\r\n" + shellLine("next", "exit 4") + "\r\n")}
	if err := s.Serve(t.Context(), in, &out); err != nil {
		t.Fatal(err)
	}
	want := `{"type":"error","id":null,"error":"the line is longer than 1048576 bytes"}` + "\n" +
		`{"type":"shell","id":"next","stdout":"","stderr":"","exit_code":4,"timed_out":false}` + "\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestLineLengths(t *testing.T) {
	for _, n := range []int{0, 1, 15, 16, 17, 18, 19, 1000, 1 << 20} {
		for _, end := range []string{"\n", "\r\n", ""} {
			l := lineReader{r: newBufio(strings.NewReader(strings.Repeat("x", n) + end + "\nnext")), max: 16}
			line, err := l.next()
			switch {
			case n == 0 && end == "":
			case n > 16 && !errors.Is(err, errLong):
				t.Errorf("%d bytes and %q: %q, %v", n, end, line, err)
			case n <= 16 && (err != nil || len(line) != n):
				t.Errorf("%d bytes and %q: %q, %v", n, end, line, err)
			}
		}
	}
}

// TestOutputGone tests that a broken output ends the server.
func TestOutputGone(t *testing.T) {
	s := newServer(t, faulty.New(), Options{}, nil)
	r, w := io.Pipe()
	r.Close()
	if err := s.Serve(t.Context(), strings.NewReader(shellLine("a", "exit 0")), w); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("Serve returned %v", err)
	}
}

// TestInputFails tests that an error of the input is returned, without an additional response.
func TestInputFails(t *testing.T) {
	s := newServer(t, faulty.New(), Options{}, nil)
	broken := errors.New("broken")
	var out bytes.Buffer
	err := s.Serve(t.Context(), io.MultiReader(strings.NewReader("{\"type\":"), errReader{broken}), &out)
	if !errors.Is(err, broken) || out.Len() != 0 {
		t.Errorf("Serve returned %v after %q", err, out.String())
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// FuzzDecode tests that every line is either a request or a refusal, and that the response to a
// refusal is one line of JSON in UTF-8, with the id if that can be read.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		shellLine("1", "echo"), `{"type":"write_file","path":"/a","content":"AA==","encoding":"base64","mode":"0644","id":"2"}`,
		`{"type":"read_file","path":"x","id":"3"}`, `{"type":"reset","id":"4"}`, `{"id":5}`, `[]`, `{"id":"6","type":"status","x":{"y":[1e999]}}`, "\xff", "{}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		r, no := decode(line)
		if (r == nil) == (no == nil) {
			t.Fatalf("both or neither: %v, %v", r, no)
		}
		if r != nil {
			if r.kind == typeShell && (r.limit < time.Millisecond || r.limit > time.Hour) {
				t.Errorf("a time limit of %v", r.limit)
			}
			if r.kind == typeWrite && (r.mode == 0 || r.path == "") {
				t.Errorf("mode %o, path %q", r.mode, r.path)
			}
			return
		}
		answer := encode(failed(no.kind, no.id, no.text))
		if bytes.IndexByte(answer, '\n') != len(answer)-1 || !utf8.Valid(answer) || !json.Valid(answer) {
			t.Errorf("the answer is %q", answer)
		}
	})
}
