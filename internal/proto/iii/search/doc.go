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
	"strings"
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

// Filter chooses files by glob. The zero Filter chooses all.
type Filter struct{ include, exclude []glob }

// NewFilter makes a Filter: a file is chosen if it matches one of include, or
// include is empty, and none of exclude.
func NewFilter(include, exclude []string) Filter {
	compile := func(patterns []string) []glob {
		globs := make([]glob, 0, len(patterns))
		for _, p := range patterns {
			globs = append(globs, newGlob(p))
		}
		return globs
	}
	return Filter{compile(include), compile(exclude)}
}

// Chooses reports whether the file at rel, a path relative to the root of a
// walk and never empty, is to be looked at.
func (f Filter) Chooses(rel string) bool {
	return (len(f.include) == 0 || matchAny(f.include, rel)) && !matchAny(f.exclude, rel)
}

func matchAny(globs []glob, rel string) bool {
	for _, g := range globs {
		if g.match(rel) {
			return true
		}
	}
	return false
}

// glob is one pattern: with a slash it is for the whole relative path, without
// for the last name; a leading **/ is for either.
type glob struct {
	pattern    string
	all        bool
	base, path bool
}

func newGlob(p string) glob {
	if p == "**" {
		return glob{all: true}
	}
	if rest, ok := strings.CutPrefix(p, "**/"); ok {
		return glob{pattern: rest, base: true, path: true}
	}
	slash := strings.Contains(p, "/")
	return glob{pattern: p, base: !slash, path: slash}
}

func (g glob) match(rel string) bool {
	return g.all ||
		g.path && wildcard(g.pattern, rel) ||
		g.base && wildcard(g.pattern, rel[strings.LastIndexByte(rel, '/')+1:])
}

// wildcard matches * against any run without a slash and ? against one
// character that is none. Everything else is literal. It takes time in
// proportion to the product of the lengths at worst.
func wildcard(pattern, name string) bool {
	p, n := 0, 0
	star, from := -1, 0 // the last *, and what it has matched up to
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, from = p, n
			p++
		case p < len(pattern) && pattern[p] == '?' && name[n] != '/':
			p++
			n += runeLen(name[n:])
		case p < len(pattern) && pattern[p] != '?' && pattern[p] == name[n]:
			p++
			n++
		case star >= 0 && name[from] != '/':
			from++
			p, n = star+1, from
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// runeLen is the length of the first character, 1 for what is none.
func runeLen(s string) int {
	for i := range s {
		if i > 0 {
			return i
		}
	}
	return len(s)
}
