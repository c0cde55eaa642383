// Package truncate keeps the beginning of a stream of text: as many bytes as are
// wanted, and no part of a character.
package truncate

import (
	"strings"
	"unicode/utf8"
)

// Excerpt cuts a stream. Its zero value keeps nothing.
type Prefix struct {
	Max       int64 // bytes; negative: all
	Truncated bool  // whether something was left out

	taken int64
}

// Take returns the beginning of p that still belongs to the excerpt. Where that
// is not all of p, it does not end within a character.
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

// Whole is data without the beginning of a character at its end.
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

// Text is data as text: each byte that is not UTF-8 becomes U+FFFD.
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
