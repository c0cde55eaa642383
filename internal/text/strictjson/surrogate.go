package strictjson

import "strconv"

// UnpairedSurrogate returns the position, counted from 1, of the escape of an unpaired surrogate in
// a JSON text, or 0 if there is none. UTF-8 cannot represent one, and encoding/json replaces it
// silently. The text need not be valid JSON.
func UnpairedSurrogate(text []byte) int {
	inString := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			inString = !inString
		case inString && c == '\\':
			n, ok := EscapeLength(text[i:])
			if !ok {
				return i + 1
			}
			i += n - 1
		}
	}
	return 0
}

// EscapeLength returns the length of the escape sequence at the start of p, where a surrogate pair
// counts as one, and false for an unpaired surrogate.
func EscapeLength(p []byte) (n int, ok bool) {
	unit, isUnit := escapedUnit(p)
	switch {
	case !isUnit:
		return 2, true // a short escape; the parser finds malformed ones
	case unit < 0xD800 || unit > 0xDFFF:
		return 6, true
	case unit > 0xDBFF:
		return 6, false
	}
	low, isUnit := escapedUnit(p[6:])
	return 12, isUnit && low >= 0xDC00 && low <= 0xDFFF
}

// escapedUnit reads an escape: \u and four hexadecimal digits.
func escapedUnit(p []byte) (uint64, bool) {
	if len(p) < 6 || p[0] != '\\' || p[1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(string(p[2:6]), 16, 16)
	return unit, err == nil
}
