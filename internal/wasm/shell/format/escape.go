package format

import (
	"strconv"
	"strings"
)

// Dialect is a set of backslash escapes.
type Dialect uint8

// The dialects.
const (
	Format Dialect = iota // in a format of printf: \ddd is octal
	EchoE                 // in %b and echo -e: \0ddd is octal, \c ends the output
	Dollar                // in $'…': as Format, with \cX and \'
)

// Escape decodes the escape at the beginning of s, which is a backslash. It returns the text, the
// length of the escape, and whether the output ends after it (\c).
func Escape(s string, d Dialect) (text string, n int, stop bool) {
	if len(s) < 2 {
		return `\`, len(s), false
	}
	c := s[1]
	if i := strings.IndexByte(`abfnrtv\`, c); i >= 0 {
		return "\a\b\f\n\r\t\v\\"[i : i+1], 2, false
	}
	switch {
	case c == 'e' || c == 'E':
		return "\x1b", 2, false
	case c == 'c' && d != Dollar:
		return "", 2, true
	case c == 'c' && d == Dollar && len(s) > 2:
		return string(s[2] & 0x1f), 3, false
	case (c == '\'' || c == '?') && d == Dollar, c == '"' && d != EchoE:
		return s[1:2], 2, false
	case c == '0' && d == EchoE:
		text, n = byteEscape(s, 2, 3, 8)
		if n == 2 {
			text = "\x00"
		}
		return text, n, false
	case c >= '0' && c <= '7':
		text, n = byteEscape(s, 1, 3, 8)
		return text, n, false
	case c == 'x':
		if text, n = byteEscape(s, 2, 2, 16); n > 2 {
			return text, n, false
		}
	case c == 'u':
		if text, n = runeEscape(s, 4); n > 2 {
			return text, n, false
		}
	case c == 'U':
		if text, n = runeEscape(s, 8); n > 2 {
			return text, n, false
		}
	}
	return s[:2], 2, false
}

func digits(s string, from, max, base int) int {
	i := from
	for i < len(s) && i < from+max {
		if _, err := strconv.ParseUint(s[i:i+1], base, 8); err != nil {
			break
		}
		i++
	}
	return i
}

func byteEscape(s string, from, max, base int) (string, int) {
	end := digits(s, from, max, base)
	v, _ := strconv.ParseUint(s[from:end], base, 16)
	return string([]byte{byte(v)}), end
}

func runeEscape(s string, max int) (string, int) {
	end := digits(s, 2, max, 16)
	v, _ := strconv.ParseUint(s[2:end], 16, 32)
	return string(rune(v)), end
}

// Echo replaces the escapes in an argument of echo -e or %b. stop: the output ends here.
func Echo(s string) (text string, stop bool) { return replace(s, EchoE) }

// Unquote replaces the escapes in $'…'. A NUL ends the text.
func Unquote(s string) string {
	text, _ := replace(s, Dollar)
	text, _, _ = strings.Cut(text, "\x00")
	return text
}

func replace(s string, d Dialect) (string, bool) {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '\\')
		if i < 0 {
			b.WriteString(s)
			return b.String(), false
		}
		b.WriteString(s[:i])
		text, n, stop := Escape(s[i:], d)
		if stop {
			return b.String(), true
		}
		b.WriteString(text)
		s = s[i+n:]
	}
}
