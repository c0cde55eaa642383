// Package jsontext has what protocols share that write the bytes of programs, which
// may be anything, into JSON strings.
package jsontext

import "unicode/utf8"

// Replacement is U+FFFD, which stands for bytes that are not UTF-8.
const Replacement = "\uFFFD"

// HexDigits are those of escapes.
const HexDigits = "0123456789abcdef"

// Subpart returns the length of the maximal subpart that p begins with: the
// longest beginning of a well-formed character, or else one byte. p does not
// begin with a whole character. One Replacement stands for each, which is what
// browsers and Python do.
func Subpart(p []byte) int {
	n := 1
	for n < len(p) && !utf8.FullRune(p[:n]) && !utf8.FullRune(p[:n+1]) {
		n++
	}
	return n
}

// AppendEscape appends the ASCII character c, which a JSON string cannot hold as
// it is.
func AppendEscape(b []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(b, '\\', c)
	case '\n':
		return append(b, '\\', 'n')
	case '\r':
		return append(b, '\\', 'r')
	case '\t':
		return append(b, '\\', 't')
	}
	return append(b, '\\', 'u', '0', '0', HexDigits[c>>4], HexDigits[c&0xf])
}
