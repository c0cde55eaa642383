package fathom

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// convert passes parts through one text and decodes the result as JSON.
func convert(t interface{ Fatalf(string, ...any) }, parts ...[]byte) string {
	var x text
	b := []byte{'"'}
	for _, p := range parts {
		b = x.append(b, p)
	}
	b = append(x.flush(b), '"')
	if !utf8.Valid(b) {
		t.Fatalf("not valid UTF-8: %q", b)
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatalf("%q is not a JSON string: %v", b, err)
	}
	return s
}

// TestTextReplacement tests the number of U+FFFD: one for each maximal subpart. The cases marked
// with † are those of the Unicode standard, section 3.9, tables 3-8 to 3-11.
func TestTextReplacement(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"", ""},
		{"hello, world\n", "hello, world\n"},
		{"\x00\x01\x1f\x7f", "\x00\x01\x1f\x7f"},
		{`"\/` + "\b\f\n\r\t", `"\/` + "\b\f\n\r\t"},
		{"é€😀", "é€😀"},
		{"\u2028\u2029\u2027\u202a", "\u2028\u2029\u2027\u202a"},
		{"\uFFFD", "\uFFFD"},
		{"\uFEFFx", "\uFEFFx"},
		{"</script>&", "</script>&"},
		{"\xff", "\uFFFD"},
		{"\x80\x80", "\uFFFD\uFFFD"},
		{"a\xc3", "a\uFFFD"},
		{"a\xc3b", "a\uFFFDb"},
		{"\xe2\x82", "\uFFFD"},
		{"\xe2\x82A", "\uFFFDA"},
		{"\xe2\xe2\x82\xac", "\uFFFD€"},
		{"\xf0\x9f\x98", "\uFFFD"},
		{"\xf0\x9f\x98A", "\uFFFDA"},
		{"\xf0\x9f\x98\xf0\x9f\x98\x80", "\uFFFD😀"},
		{"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82A", strings.Repeat("\uFFFD", 8) + "A"},           // † non-shortest forms
		{"\xed\xa0\x80\xed\xbf\xbf\xed\xafA", strings.Repeat("\uFFFD", 8) + "A"},           // † surrogates
		{"\xf4\x91\x92\x93\xffA\x80\xbfB", strings.Repeat("\uFFFD", 5) + "A\uFFFD\uFFFDB"}, // † beyond U+10FFFF
		{"\xe1\x80\xe2\xf0\x91\x92\xf1\xbfA", "\uFFFD\uFFFD\uFFFD\uFFFDA"},                 // † truncated
		{"\xf8\x88\x80\x80\x80", strings.Repeat("\uFFFD", 5)},                              // an obsolete five-byte form
		{"ok \xed\xa0\xbd\xed\xb8\x80 end", "ok " + strings.Repeat("\uFFFD", 6) + " end"},  // CESU-8
		{"\xe2\x80", "\uFFFD"},     // an incomplete U+2028
		{"\xe2\x80x", "\uFFFDx"},   // the same, not completed
		{"\xe2\x80\xa8", "\u2028"}, // the same, completed
	} {
		if got := convert(t, []byte(tt.in)); got != tt.want {
			t.Errorf("%q became %q, want %q", tt.in, got, tt.want)
		}
		var bytewise [][]byte
		for i := range len(tt.in) {
			bytewise = append(bytewise, []byte{tt.in[i]})
		}
		if got := convert(t, bytewise...); got != tt.want {
			t.Errorf("%q byte by byte became %q, want %q", tt.in, got, tt.want)
		}
	}
}

// TestTextHoldsBackHalves tests that an incomplete character waits for its rest, and that nothing
// else waits.
func TestTextHoldsBackHalves(t *testing.T) {
	var x text
	for _, step := range []struct{ in, out string }{
		{"a\xf0", "a"},
		{"\x9f", ""},
		{"\x98", ""},
		{"\x80b", "😀b"},
		{"\xe2\x82", ""},
		{"\xac", "€"},
		{"\xc3", ""},
		{"\xc3", "\uFFFD"},
		{"\xa9", "é"},
	} {
		if got := string(x.append(nil, []byte(step.in))); got != step.out {
			t.Fatalf("%q gave %q at once, want %q", step.in, got, step.out)
		}
	}
	if got := x.flush(nil); len(got) != 0 {
		t.Fatalf("%q was left at the end", got)
	}
}

// TestTextEscapes tests that line separators are escaped, and no other non-ASCII character.
func TestTextEscapes(t *testing.T) {
	got, used := new(text).appendText(nil, []byte("\x00\x1b\n\"\\\u2028é\u2029/"))
	if want := `\u0000\u001b\n\"\\\u2028é\u2029/`; string(got) != want || used != 14 {
		t.Errorf("got %s (%d bytes used), want %s", got, used, want)
	}
}

// TestTextAnyCut tests that the result does not depend on where a stream is split, is valid UTF-8,
// and keeps valid input unchanged.
func TestTextAnyCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Bytes that often start characters, and text.
		b := rapid.SliceOf(rapid.OneOf(
			rapid.Byte(),
			rapid.SampledFrom([]byte{0xe2, 0x80, 0xa8, 0xf0, 0x9f, 0x98, 0x80, 0xc3, 0xed, 0xa0, 0xf4, 0x90, '"', '\\', 'a'}),
		)).Draw(t, "bytes")
		whole := convert(t, b)
		var parts [][]byte
		for rest := b; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
			parts = append(parts, rest[:n])
			rest = rest[n:]
		}
		if got := convert(t, parts...); got != whole {
			t.Fatalf("in parts %q became %q, as a whole %q", parts, got, whole)
		}
		if utf8.Valid(b) && whole != string(b) {
			t.Fatalf("valid %q became %q", b, whole)
		}
	})
}

func FuzzText(f *testing.F) {
	f.Add([]byte("hello"), 2)
	f.Add([]byte("\xf0\x9f\x98\x80\xff"), 3)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		if cut < 0 || cut > len(b) {
			cut = len(b)
		}
		if got, whole := convert(t, b[:cut], b[cut:]), convert(t, b); got != whole {
			t.Fatalf("cut at %d %q became %q, as a whole %q", cut, b, got, whole)
		}
	})
}

func BenchmarkText(b *testing.B) {
	for name, line := range map[string]string{
		"ascii": "the quick brown fox jumps over the lazy dog 0123456789\n",
		"utf8":  "Füße, naïve, größer — Ω≈ç√∫ 日本語テキスト\n",
		"noise": "\xff\x00\x9c\x1b\xe2\x82\x01",
	} {
		data := []byte(strings.Repeat(line, maxData/len(line)))
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			var x text
			buf := make([]byte, 0, 6*maxData)
			for b.Loop() {
				buf = x.append(buf[:0], data)
			}
		})
	}
}
