package strictjson

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf8"
)

// Replacement is U+FFFD, which replaces bytes that are not UTF-8.
const Replacement = "\uFFFD"

// HexDigits are the digits of escapes.
const HexDigits = "0123456789abcdef"

// Subpart returns the length of the maximal subpart at the start of p (Unicode, section 3.9): the
// longest prefix of a well-formed character, otherwise one byte. p must not start with a complete
// character. Each subpart becomes one Replacement, as in browsers and Python.
func Subpart(p []byte) int {
	n := 1
	for n < len(p) && !utf8.FullRune(p[:n]) && !utf8.FullRune(p[:n+1]) {
		n++
	}
	return n
}

// AppendEscape appends the escape of the ASCII character c, which a JSON string cannot contain
// literally.
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

// PlainPrefix returns the number of bytes at the start of p that a JSON string can contain
// literally: ASCII without control characters, quotes and backslashes. It checks eight bytes at a
// time, because all output passes through it.
func PlainPrefix(p []byte) int {
	i := 0
	for ; i+8 <= len(p); i += 8 {
		if odd := special(binary.LittleEndian.Uint64(p[i:])); odd != 0 {
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

// special marks the bytes of w that are not ASCII, are below ' ', or are a quote or backslash, by
// their high bits. The lowest mark is exact; a borrow can set further marks above it.
func special(w uint64) uint64 {
	const (
		ones = 0x0101010101010101
		high = 0x8080808080808080
	)
	quote := w ^ ones*'"'
	slash := w ^ ones*'\\'
	return (w | (w - ones*' ') | (quote - ones) | (slash - ones)) & high
}

// AppendASCII appends the ASCII characters at the start of p, escaped for a JSON string, and
// returns how many there are.
func AppendASCII(b, p []byte) (_ []byte, n int) {
	const (
		block   = 1 << 10 // bytes to check before b grows again
		longest = 6       // bytes of the longest escape
	)
	for n < len(p) {
		piece := p[n:min(len(p), n+block)]
		b = slices.Grow(b, longest*len(piece)+8)
		to := b[len(b):cap(b)]
		i, j := 0, 0
		for i < len(piece) {
			if i+8 <= len(piece) {
				w := binary.LittleEndian.Uint64(piece[i:])
				// the next write overwrites what follows the special byte
				binary.LittleEndian.PutUint64(to[j:], w)
				odd := special(w)
				if odd == 0 {
					i, j = i+8, j+8
					continue
				}
				k := bits.TrailingZeros64(odd) / 8
				i, j = i+k, j+k
			}
			c := piece[i]
			if c >= utf8.RuneSelf {
				return b[:len(b)+j], n + i
			}
			if c >= ' ' && c != '"' && c != '\\' {
				to[j] = c
				j++
			} else {
				j += len(AppendEscape(to[j:j], c))
			}
			i++
		}
		b, n = b[:len(b)+j], n+i
	}
	return b, n
}
