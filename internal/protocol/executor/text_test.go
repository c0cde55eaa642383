package executor

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestAppendText(t *testing.T) {
	for in, want := range map[string]string{
		"":                              ``,
		"plain text, long enough":       `plain text, long enough`,
		"a\"b\\c/d":                     `a\"b\\c/d`,
		"\x00\x07\b\t\n\v\f\r\x1f ":     `\u0000\u0007\u0008\t\n\u000b\u000c\r\u001f `,
		"é€𝄞":                           `é€𝄞`,
		"\u0085|\u2028|\u2029|":         `\u0085|\u2028|\u2029|`,
		"\u0084\u0086\u2027\u202a":      "\u0084\u0086\u2027\u202a",
		"a\xffb":                        "a\uFFFDb",
		"\xe2\x82":                      "\uFFFD",
		"\xe2\x82A":                     "\uFFFDA",
		"\xf0\x9d\x84\xe2\x82\xac":      "\uFFFD€",
		"\xc0\x80":                      "\uFFFD\uFFFD",
		"\xed\xa0\x80":                  "\uFFFD\uFFFD\uFFFD",
		"\xf4\x90\x80\x80":              "\uFFFD\uFFFD\uFFFD\uFFFD",
		strings.Repeat("x", 100) + "\n": strings.Repeat("x", 100) + `\n`,
	} {
		if got := string(appendText(nil, []byte(in))); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

// FuzzAppendText tests that the result for any bytes is the content of a JSON string with the same
// meaning, on one line by every definition of a line end.
func FuzzAppendText(f *testing.F) {
	for _, s := range []string{"", "abc", "a\nb\"\\\x00", "\xff\xe2\x82", "\u2028\u0085é𝄞"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		b := appendString(nil, p)
		var got string
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatalf("%q: %v: %s", p, err, b)
		}
		if utf8.Valid(p) && got != string(p) {
			t.Fatalf("%q became %q", p, got)
		}
		if strings.ContainsAny(string(b), "\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029") {
			t.Fatalf("%q holds the end of a line: %q", p, b)
		}
		// The result is the same for pieces.
		in := make([]byte, 0, len(p)*6)
		for rest := p; len(rest) > 0; {
			piece := cutText(rest, 7)
			if len(piece) == 0 || len(piece) > 7 {
				t.Fatalf("a piece of %d bytes", len(piece))
			}
			in = appendText(in, piece)
			rest = rest[len(piece):]
		}
		if string(b) != `"`+string(in)+`"` {
			t.Fatalf("%q in pieces: %q, want %q", p, in, b)
		}
	})
}

func TestWhole(t *testing.T) {
	for in, want := range map[string]int{
		"": 0, "a": 1, "é": 2, "\xc3": 0, "a\xc3": 1, "a\xe2\x82": 1, "€": 3, "a\xf0\x9d\x84": 1, "𝄞": 4,
		"\x80\x80\x80\x80": 4, "\xff": 1, "a\x80": 2, "\xe2\x82\xe2": 2, "\xc0": 1, "\xed\xa0": 2,
	} {
		if got := whole([]byte(in)); got != want {
			t.Errorf("%q: %d, want %d", in, got, want)
		}
	}
}
