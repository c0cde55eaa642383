package fathom

import (
	"unicode/utf8"

	"github.com/sandbar-dev/sandbar/internal/text/strictjson"
)

// text converts the bytes of one output stream to the content of JSON strings. The result is always
// valid UTF-8, wherever the output was split: an incomplete character waits for its rest, and bytes
// that are not UTF-8 become U+FFFD, one for each maximal subpart (Unicode, "substitution of maximal
// subparts"; TextDecoder and Python's errors="replace" do the same).
//
// The zero text is the start of a stream.
type text struct {
	held  [utf8.UTFMax]byte // an incomplete character
	n     int               // bytes in use of held; at most 3 between calls
	bytes int64             // length in UTF-8 of everything appended so far
}

// append appends the held bytes and p to b, and holds back an incomplete character at p's end.
func (t *text) append(b, p []byte) []byte {
	for t.n > 0 && len(p) > 0 {
		t.held[t.n] = p[0]
		t.n++
		p = p[1:]
		var used int
		b, used = t.appendText(b, t.held[:t.n])
		t.n = copy(t.held[:], t.held[used:t.n])
	}
	b, used := t.appendText(b, p)
	t.n += copy(t.held[t.n:], p[used:])
	return b
}

// flush ends the stream: an incomplete character becomes one U+FFFD.
func (t *text) flush(b []byte) []byte {
	if t.n > 0 {
		t.n = 0
		t.bytes += int64(len(strictjson.Replacement))
		b = append(b, strictjson.Replacement...)
	}
	return b
}

// appendText appends p, escaped for a JSON string, to b. It returns how much of p it used: all of
// it, except for an incomplete character of at most three bytes at the end.
func (t *text) appendText(b, p []byte) (_ []byte, used int) {
	for i := 0; ; {
		var n int
		b, n = strictjson.AppendASCII(b, p[i:])
		if i += n; i == len(p) {
			t.bytes += int64(len(p))
			return b, i
		}
		start := i // p[start:i] needs no escape and is not appended yet
		for i < len(p) && p[i] >= utf8.RuneSelf {
			if n := plainRune(p[i:]); n > 0 {
				i += n
				continue
			}
			r, size := utf8.DecodeRune(p[i:])
			switch {
			case r == utf8.RuneError && size == 1:
				b = append(b, p[start:i]...)
				if !utf8.FullRune(p[i:]) {
					t.bytes += int64(i)
					return b, i
				}
				b = append(b, strictjson.Replacement...)
				size = strictjson.Subpart(p[i:])
				t.bytes += int64(len(strictjson.Replacement) - size)
				start = i + size
			case r == '\u2028' || r == '\u2029':
				// U+2028 and U+2029 are legal in JSON, but line terminators in JavaScript before
				// 2019 and in readers that split text into lines.
				b = append(b, p[start:i]...)
				b = append(b, `\u202`...)
				b = append(b, strictjson.HexDigits[r&0xf])
				start = i + size
			}
			i += size
		}
		b = append(b, p[start:i]...)
	}
}

// plainRune returns the length of the character at the start of p if it is a common one of two or
// three bytes that needs no escape: those of most scripts. 0 means unknown.
func plainRune(p []byte) int {
	const mask, tail = 0xc0, 0x80 // of continuation bytes
	switch c := p[0]; {
	case 0xc2 <= c && c <= 0xdf && len(p) > 1 && p[1]&mask == tail:
		return 2
	case 0xe1 <= c && c != 0xe2 && c != 0xed && c <= 0xef && len(p) > 2 && p[1]&mask == tail && p[2]&mask == tail:
		return 3
	}
	return 0
}

// appendString appends s as a JSON string.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	var t text
	b = t.flush(t.append(b, []byte(s)))
	return append(b, '"')
}
