// Package jsontext has what protocols share that write the bytes of programs, which
// may be anything, into JSON strings.
package jsontext

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

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

// Plain is how many bytes p begins with that stand for themselves in a JSON
// string: ASCII without control characters, quotes and backslashes. It looks
// at eight bytes at a time; output passes through here.
func Plain(p []byte) int {
	const (
		ones = 0x0101010101010101
		high = 0x8080808080808080
	)
	i := 0
	for ; i+8 <= len(p); i += 8 {
		w := binary.LittleEndian.Uint64(p[i:])
		quote := w ^ ones*'"'
		slash := w ^ ones*'\\'
		// A high bit is set for a byte that is not ASCII, below ' ', or equal to
		// one of the two. A borrow can set one too many, but only above a byte
		// that is rightly marked, and the lowest is what counts.
		odd := (w | (w - ones*' ') | (quote - ones) | (slash - ones)) & high
		if odd != 0 {
			return i + bits.TrailingZeros64(odd)/8
		}
	}
	for ; i < len(p); i++ {
		if c := p[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			break
		}
	}
	return i
}
