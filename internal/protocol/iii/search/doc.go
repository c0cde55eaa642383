// Package search implements the parts of sandbox::fs::grep and sandbox::fs::sed that process one
// file's bytes, and the globs that select files. It is pure: it opens no files.
//
// Patterns are those of package regexp, which are close to the reference's. One difference: \w, \d
// and \s are ASCII here and Unicode there.
package search

import (
	"regexp"
	"regexp/syntax"
)

// maxPattern is the longest pattern that is compiled, in bytes.
const maxPattern = 64 << 10

// Compile compiles a pattern. The error is one line.
func Compile(pattern string, ignoreCase bool) (*regexp.Regexp, error) {
	if len(pattern) > maxPattern {
		return nil, &syntax.Error{Code: syntax.ErrLarge, Expr: "the pattern"}
	}
	if ignoreCase {
		pattern = "(?i)" + pattern
	}
	return regexp.Compile(pattern)
}
