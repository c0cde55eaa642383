package executor

import (
	"unicode/utf8"

	"github.com/sandbar-dev/sandbar/internal/text/strictjson"
)

// appendString appends p as a JSON string.
func appendString[T ~string | ~[]byte](b []byte, p T) []byte {
	b = append(b, '"')
	b = appendText(b, []byte(p))
	return append(b, '"')
}

// appendText appends p, escaped for a JSON string. The result is valid UTF-8: invalid bytes become
// U+FFFD, one for each maximal subpart, as in browsers and Python.
//
// NEL (U+0085), U+2028 and U+2029 are escaped although JSON does not require it: a known client
// splits streams into lines at them.
func appendText(b, p []byte) []byte {
	for {
		var n int
		b, n = strictjson.AppendASCII(b, p)
		if p = p[n:]; len(p) == 0 {
			return b
		}
		b, n = appendRunes(b, p)
		p = p[n:]
	}
}

// appendRunes appends the non-ASCII characters at the start of p and returns their length in bytes,
// at least one.
func appendRunes(b, p []byte) (_ []byte, n int) {
	for n < len(p) && p[n] >= utf8.RuneSelf {
		r, size := utf8.DecodeRune(p[n:])
		switch {
		case r == utf8.RuneError && size == 1:
			b = append(b, strictjson.Replacement...)
			size = strictjson.Subpart(p[n:])
		case r == '\u0085':
			b = append(b, `\u0085`...)
		case r == '\u2028' || r == '\u2029':
			b = append(append(b, `\u202`...), strictjson.HexDigits[r&0xf])
		default:
			b = append(b, p[n:n+size]...)
		}
		n += size
	}
	return b, n
}

// whole returns the length of the longest prefix of p without an incomplete character at its end:
// at most three bytes less than p.
func whole(p []byte) int {
	for back := 1; back < utf8.UTFMax && back <= len(p); back++ {
		if c := p[len(p)-back]; utf8.RuneStart(c) {
			if !utf8.FullRune(p[len(p)-back:]) {
				return len(p) - back
			}
			break
		}
	}
	return len(p)
}

// cutText returns a prefix of p of at most max bytes, cut between characters. max must be at least
// utf8.UTFMax, so it is not empty unless p is.
func cutText(p []byte, max int) []byte {
	if len(p) <= max {
		return p
	}
	return p[:whole(p[:max])]
}
