// Package truncate keeps a prefix of a text stream, up to a number of bytes, without splitting a
// character.
package truncate

import (
	"strings"
	"unicode/utf8"
)

// Prefix truncates a stream. Its zero value keeps nothing.
type Prefix struct {
	Max       int64 // bytes; negative for no bound
	Truncated bool  // something was left out

	taken int64
}

// Take returns the part of p that belongs to the prefix. If it is not all of p, it does not end
// within a character.
func (e *Prefix) Take(p []byte) []byte {
	if e.Truncated {
		return nil
	}
	if e.Max >= 0 && e.taken+int64(len(p)) > e.Max {
		p, e.Truncated = TrimPartialRune(p[:e.Max-e.taken]), true
	}
	e.taken += int64(len(p))
	return p
}

// TrimPartialRune removes an incomplete character at the end of data.
func TrimPartialRune(data []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(data); i++ {
		if !utf8.RuneStart(data[len(data)-i]) {
			continue
		}
		if !utf8.FullRune(data[len(data)-i:]) {
			return data[:len(data)-i]
		}
		break
	}
	return data
}

// Text returns data as text: each byte that is not UTF-8 becomes U+FFFD.
func Text(data []byte) string {
	if utf8.Valid(data) {
		return string(data)
	}
	var b strings.Builder
	for _, r := range string(data) {
		b.WriteRune(r)
	}
	return b.String()
}
