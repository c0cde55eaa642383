package wiretest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/sandbar-dev/sandbar"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scripted answers every sent line with a fixed list of lines.
type scripted struct {
	answers []string
	queue   []string
}

func (s *scripted) Send(_ context.Context, line string) error {
	if line == "fail" {
		return errors.New("send failed")
	}
	s.queue = append(s.queue, s.answers...)
	return nil
}

func (s *scripted) Receive(context.Context) (string, error) {
	if len(s.queue) == 0 {
		return "", io.EOF
	}
	line := s.queue[0]
	s.queue = s.queue[1:]
	return line, nil
}

func (s *scripted) Close() error { return nil }

func splitData(m map[string]any) string {
	if m["type"] == "out" || m["type"] == "err" {
		return "data"
	}
	return ""
}

// TestPlay plays transcripts against fixed answers. Most of them must fail, with the reason.
func TestPlay(t *testing.T) {
	for _, tt := range []struct {
		name    string
		answers []string
		script  string
		wrong   string // part of the error; "" for none
	}{
		{"equal", []string{`{"b":2,"a":"\u0041"}`}, "-- client --\n{}\n-- server --\n{\"a\":\"A\",\"b\":2}\n", ""},
		{"comments", []string{`1`}, "-- client --\n# a comment\n\n{}\n-- server --\n# another\n1\n", ""},
		{"field missing", []string{`{"a":1}`}, "-- client --\n{}\n-- server --\n{\"a\":1,\"b\":2}\n", "but received"},
		{"field too many", []string{`{"a":1,"b":2}`}, "-- client --\n{}\n-- server --\n{\"a\":1}\n", "but received"},
		{"other value", []string{`{"a":2}`}, "-- client --\n{}\n-- server --\n{\"a\":1}\n", "but received"},
		{"null is not missing", []string{`{}`}, "-- client --\n{}\n-- server --\n{\"a\":null}\n", "but received"},
		{"number written otherwise", []string{`1.0`}, "-- client --\n{}\n-- server --\n1\n", "but received"},
		{"array", []string{`[1,2]`}, "-- client --\n{}\n-- server --\n[1,2]\n", ""},
		{"array too short", []string{`[1]`}, "-- client --\n{}\n-- server --\n[1,2]\n", "but received"},
		{"nothing comes", nil, "-- client --\n{}\n-- server --\n1\n", "received nothing"},
		{"not JSON comes", []string{`{`}, "-- client --\n{}\n-- server --\n{}\n", "but received"},
		{"two values come", []string{`1 2`}, "-- client --\n{}\n-- server --\n1\n", "but received"},
		{"time", []string{`"2025-12-27T11:30:00.000Z"`}, "-- client --\n{}\n-- server --\n\"$time\"\n", ""},
		{"time without milliseconds", []string{`"2025-12-27T11:30:00Z"`}, "-- client --\n{}\n-- server --\n\"$time\"\n", "but received"},
		{"time with microseconds", []string{`"2025-12-27T11:30:00.000000Z"`}, "-- client --\n{}\n-- server --\n\"$time\"\n", "but received"},
		{"time with an offset", []string{`"2025-12-27T11:30:00.000+01:00"`}, "-- client --\n{}\n-- server --\n\"$time\"\n", "but received"},
		{"time that is a number", []string{`1`}, "-- client --\n{}\n-- server --\n\"$time\"\n", "but received"},
		{"int", []string{`12`}, "-- client --\n{}\n-- server --\n\"$int\"\n", ""},
		{"int negative", []string{`-1`}, "-- client --\n{}\n-- server --\n\"$int\"\n", "but received"},
		{"int with a fraction", []string{`1.5`}, "-- client --\n{}\n-- server --\n\"$int\"\n", "but received"},
		{"int in a string", []string{`"1"`}, "-- client --\n{}\n-- server --\n\"$int\"\n", "but received"},
		{"any", []string{`{"x":[null]}`}, "-- client --\n{}\n-- server --\n\"$any\"\n", ""},
		{"like", []string{`"a 1 to 2"`}, "-- client --\n{}\n-- server --\n\"$like a .* 2\"\n", ""},
		{"like is the whole string", []string{`"xa"`}, "-- client --\n{}\n-- server --\n\"$like a\"\n", "but received"},
		{"dollar", []string{`"$any"`}, "-- client --\n{}\n-- server --\n\"$$any\"\n", ""},
		{"dollar is not any", []string{`"other"`}, "-- client --\n{}\n-- server --\n\"$$any\"\n", "but received"},
		{"event", []string{`@closed 1001`}, "-- client --\n{}\n-- server --\n@closed 1001\n", ""},
		{"other event", []string{`@closed 1000`}, "-- client --\n{}\n-- server --\n@closed 1001\n", "but received"},
		{"event for a message", []string{`@closed 1000`}, "-- client --\n{}\n-- server --\n{}\n", "but received"},
		{"order", []string{`1`, `2`}, "-- client --\n{}\n-- server --\n2\n1\n", "but received"},
		{"unordered", []string{`1`, `2`}, "-- client --\n{}\n-- server --\n@unordered\n2\n1\n@end\n", ""},
		{"unordered, one missing", []string{`1`, `1`}, "-- client --\n{}\n-- server --\n@unordered\n2\n1\n@end\n", "but received"},
		{"split", []string{`{"type":"out","data":"ab"}`, `{"type":"out","data":""}`, `{"type":"out","data":"c"}`},
			"-- client --\n{}\n-- server --\n{\"type\":\"out\",\"data\":\"abc\"}\n", ""},
		{"split, wrong in the middle", []string{`{"type":"out","data":"ab"}`, `{"type":"out","data":"x"}`},
			"-- client --\n{}\n-- server --\n{\"type\":\"out\",\"data\":\"abc\"}\n", `still missing: "c"`},
		{"split, too much", []string{`{"type":"out","data":"abcd"}`},
			"-- client --\n{}\n-- server --\n{\"type\":\"out\",\"data\":\"abc\"}\n", "but received"},
		{"split, another field differs", []string{`{"type":"out","id":2,"data":"ab"}`},
			"-- client --\n{}\n-- server --\n{\"type\":\"out\",\"id\":1,\"data\":\"ab\"}\n", "but received"},
		{"split and interleaved", []string{`{"type":"out","data":"a"}`, `{"type":"err","data":"x"}`, `{"type":"out","data":"b"}`},
			"-- client --\n{}\n-- server --\n@unordered\n{\"type\":\"out\",\"data\":\"ab\"}\n{\"type\":\"err\",\"data\":\"x\"}\n@end\n", ""},
		{"send fails", nil, "-- client --\nfail\n", "send failed"},
		{"two connections", []string{`1`}, "-- client --\n{}\n-- client b --\n{}\n-- server b --\n1\n-- server --\n1\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Parse("x", []byte("Pins something.\n"+tt.script))
			if err != nil {
				t.Fatal(err)
			}
			dial := func(context.Context) (Conn, error) { return &scripted{answers: tt.answers}, nil }
			checkError(t, Protocol{Split: splitData}.Play(t.Context(), s, dial), tt.wrong)
		})
	}
}

func checkError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Fatalf("unexpected: %v", err)
	case want != "" && err == nil:
		t.Fatalf("no error, want one with %q", want)
	case want != "" && !strings.Contains(err.Error(), want):
		t.Fatalf("error is %q, want one with %q", err, want)
	}
}

// TestParse tests that Parse refuses transcripts that would test less than they seem to.
func TestParse(t *testing.T) {
	for _, tt := range []struct{ name, script, wrong string }{
		{"no prose", "-- client --\n{}\n", "no introduction"},
		{"nothing to play", "Prose.\n", "nothing to play"},
		{"unknown section", "Prose.\n-- cleint --\n{}\n", "a section is client or server"},
		{"late setup", "Prose.\n-- client --\n{}\n-- setup --\nx\n", "a section is client or server"},
		{"unknown placeholder", "Prose.\n-- server --\n{\"a\":[{\"b\":\"$tiem\"}]}\n", "no placeholder $tiem"},
		{"bad expression", "Prose.\n-- server --\n\"$like (\"\n", "missing closing"},
		{"bad JSON", "Prose.\n-- server --\n{\n", "not JSON"},
		{"trailing JSON", "Prose.\n-- server --\n{} {}\n", "not JSON"},
		{"open block", "Prose.\n-- server --\n@unordered\n1\n", "without @end"},
		{"end alone", "Prose.\n-- server --\n@end\n", "without @unordered"},
		{"nested block", "Prose.\n-- server --\n@unordered\n@unordered\n", "within"},
		{"fine", "Prose.\n-- setup --\nx\n-- client --\n{}\n-- server b --\n@unordered\n1\n@end\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("x", []byte(tt.script))
			checkError(t, err, tt.wrong)
		})
	}
}

// TestWebSocket plays against an echo server that produces every event.
func TestWebSocket(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		for {
			kind, b, err := c.Read(r.Context())
			switch {
			case err != nil:
				return
			case string(b) == "close":
				c.Close(websocket.StatusGoingAway, "asked for")
				return
			case string(b) == "drop":
				return
			}
			if c.Write(r.Context(), kind, b) != nil {
				return
			}
		}
	}))
	defer server.Close()
	for _, tt := range []struct{ name, script, wrong string }{
		{"text and binary", "-- client --\n{}\n@binary 00ff\n@text 31\n-- server --\n{}\n@binary 00ff\n1\n", ""},
		{"closed", "-- client --\nclose\n-- server --\n@closed 1001\n", ""},
		{"closed, and asked again", "-- client --\nclose\n-- server --\n@closed 1001\n1\n", "received nothing"},
		{"lost", "-- client --\ndrop\n-- server --\n@lost\n", ""},
		{"client closes", "-- client --\n@close 1000 bye\n", ""},
		{"client vanishes", "-- client --\n@vanish\n-- server --\n1\n", "received nothing"},
		{"not hex", "-- client --\n@binary zz\n", "invalid byte"},
		{"no such verb", "-- client --\n@jump\n", "not something"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Parse("x", []byte("Prose.\n"+tt.script))
			if err != nil {
				t.Fatal(err)
			}
			checkError(t, Protocol{}.Play(t.Context(), s, WebSocket(server.URL, nil)), tt.wrong)
		})
	}
}

// TestTables tests that the tables contain every outcome and every code.
func TestTables(t *testing.T) {
	var outcomes []sandbar.Outcome
	var codes []sandbar.Code
	got := tables(
		func(r sandbar.Result) string { outcomes = append(outcomes, r.Outcome); return "o" },
		func(e *sandbar.Error) string { codes = append(codes, e.Code); return "c" + e.Field })
	for _, o := range sandbar.Outcomes {
		if !slices.Contains(outcomes, o) {
			t.Errorf("the outcome %v is left out", o)
		}
	}
	for _, c := range sandbar.Codes {
		if !slices.Contains(codes, c) {
			t.Errorf("the code %v is left out", c)
		}
	}
	for _, line := range []string{"outcome exited 255: o\n", "outcome lost 0: o\n", "code invalid: c\n", "code unsupported (language): clanguage\n"} {
		if !strings.Contains(got, line) {
			t.Errorf("there is no line %q in\n%s", line, got)
		}
	}
}
