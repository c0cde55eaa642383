package executor

import (
	"unicode/utf8"

	"github.com/sandbar-dev/sandbar/internal/text/strictjson"
)

// appendString appends p to b as a JSON string.
func appendString[T ~string | ~[]byte](b []byte, p T) []byte {
	b = append(b, '"')
	b = appendText(b, []byte(p))
	return append(b, '"')
}

// appendText appends p to b in the form it has inside a JSON string. What comes
// out is valid UTF-8: bytes that are not become U+FFFD, one for each longest
// run that could have begun a character, which is what browsers and Python do.
//
// NEL (U+0085) and U+2028 and U+2029 are escaped although JSON does not ask for
// it: a known client cuts streams into lines at them.
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

// appendRunes appends the characters beyond ASCII that p begins with and
// returns how many bytes of p they are; at least one.
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

// whole returns the longest beginning of p that does not end within a
// character: at most three bytes less than p, and all of p when its end cannot
// be the beginning of a character.
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

// cutText returns a beginning of p of at most max bytes, cut between
// characters; max is at least utf8.UTFMax, so it is never empty for a p that is
// not.
func cutText(p []byte, max int) []byte {
	if len(p) <= max {
		return p
	}
	return p[:whole(p[:max])]
}
