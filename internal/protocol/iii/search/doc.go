// Package search is what the iii functions sandbox::fs::grep and sandbox::fs::sed
// do to one file's bytes, and the globs that choose files. It is pure: it opens
// nothing.
//
// Patterns are those of package regexp, which are close to the reference's.
// They differ in that \w, \d and \s are ASCII here and Unicode there.
package search

import (
	"regexp"
	"regexp/syntax"
)

// maxPattern is the longest pattern that is compiled, in bytes.
const maxPattern = 64 << 10

// Compile makes a regular expression of a pattern. The error says what is wrong
// with it, in one line.
func Compile(pattern string, ignoreCase bool) (*regexp.Regexp, error) {
	if len(pattern) > maxPattern {
		return nil, &syntax.Error{Code: syntax.ErrLarge, Expr: "the pattern"}
	}
	if ignoreCase {
		pattern = "(?i)" + pattern
	}
	return regexp.Compile(pattern)
}
