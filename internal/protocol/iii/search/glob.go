package search

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of the globs of one call.
const (
	maxGlob  = 4096 // bytes of one glob
	maxGlobs = 1000
)

// Filter selects files by glob. The zero Filter selects all.
//
// Globs are patterns of gitignore(5), and a list is like a file of them: the last match decides;
// "!" negates; a "/" at the start or in the middle anchors a pattern at the root of the walk; one
// at the end restricts it to directories; "**" matches directories; everything below a matching
// directory matches. Two additions: {a,b} matches a or b, as in a shell, and a list of only negated
// globs starts with all files.
type Filter struct{ include, exclude globs }

// NewFilter creates a Filter. It selects a file if include is empty or matches it, and exclude does
// not match it. The error says what is allowed.
func NewFilter(include, exclude []string) (f Filter, err error) {
	if f.include, err = newGlobs(include); err == nil {
		f.exclude, err = newGlobs(exclude)
	}
	f.exclude.all = false
	return f, err
}

// Selects reports whether the file at rel, a non-empty path relative to the root of a walk, is
// selected.
func (f Filter) Selects(rel string) bool {
	return (!f.include.given || f.include.match(rel)) && !f.exclude.match(rel)
}

// Prunes reports whether everything below the directory at rel is excluded.
func (f Filter) Prunes(rel string) bool { return f.exclude.matchDir(rel) }

// globs is a list of patterns.
type globs struct {
	all     bool // files without a matching pattern match
	given   bool // there are some
	ordered []glob
}

func newGlobs(patterns []string) (globs, error) {
	l := globs{given: len(patterns) > 0, all: len(patterns) > 0}
	if len(patterns) > maxGlobs {
		return l, fmt.Errorf("%d globs are given, and at most %d are allowed", len(patterns), maxGlobs)
	}
	for _, p := range patterns {
		g, ok, err := newGlob(p)
		if err != nil {
			return l, err
		}
		if ok {
			l.ordered = append(l.ordered, g)
		}
		l.all = l.all && ok && g.negated
	}
	return l, nil
}

// match reports whether a file or one of its parent directories matches.
func (l globs) match(rel string) bool {
	if !l.given {
		return false
	}
	for i, c := range rel {
		if c == '/' && l.decides(rel[:i], true, false) {
			return true
		}
	}
	return l.decides(rel, false, l.all)
}

// matchDir reports whether a directory matches, given that none of its parents does.
func (l globs) matchDir(rel string) bool { return l.given && l.decides(rel, true, false) }

// decides returns the decision of the last pattern that matches a name, or otherwise if none does.
func (l globs) decides(rel string, dir, otherwise bool) bool {
	for _, g := range slices.Backward(l.ordered) {
		if g.match(rel, dir) {
			return !g.negated
		}
	}
	return otherwise
}

// glob is one pattern.
type glob struct {
	negated bool
	dirs    bool // matches only directories
	base    bool // matches the last name instead of the path
	expr    *regexp.Regexp
}

func (g glob) match(rel string, dir bool) bool {
	if g.dirs && !dir {
		return false
	}
	if g.base {
		rel = rel[strings.LastIndexByte(rel, '/')+1:]
	}
	return g.expr.MatchString(rel)
}

// newGlob parses a line of gitignore(5). ok is false for a line that matches nothing, such as a
// comment.
func newGlob(p string) (g glob, ok bool, err error) {
	if len(p) > maxGlob || !utf8.ValidString(p) {
		return g, false, fmt.Errorf("a glob has %d bytes, and at most %d are allowed, of UTF-8", len(p), maxGlob)
	}
	p = trimBlanks(p)
	if strings.HasPrefix(p, "#") {
		return g, false, nil
	}
	p, g.negated = strings.CutPrefix(p, "!")
	p, g.dirs = strings.CutSuffix(p, "/")
	g.base = !strings.Contains(p, "/")
	p = strings.TrimPrefix(p, "/")
	expr, ok := translate(p, !g.base)
	if !ok || p == "" {
		return g, false, nil
	}
	// Package regexp matches in time linear in the lengths of pattern and name.
	if g.expr, err = regexp.Compile(expr); err != nil {
		return g, false, errors.New("a glob is too large")
	}
	return g, true, nil
}

// trimBlanks removes trailing blanks that no backslash quotes.
func trimBlanks(p string) string {
	end := 0
	for i := 0; i < len(p); i++ {
		if p[i] == ' ' {
			continue
		}
		if p[i] == '\\' {
			i++
		}
		end = min(i+1, len(p))
	}
	return p[:end]
}

// translator converts a glob to a regular expression.
type translator struct {
	b     strings.Builder
	p     string
	paths bool // "**" is special
	depth int  // nesting of braces
}

// translate returns the regular expression of a glob, false if it matches nothing.
func translate(p string, paths bool) (string, bool) {
	t := translator{p: p, paths: paths}
	t.b.WriteString(`(?s)\A(?:`)
	for i := 0; i < len(p); {
		n := t.token(i)
		if n == 0 {
			return "", false
		}
		i += n
	}
	t.b.WriteString(`)\z`)
	return t.b.String(), t.depth == 0
}

// token translates the token at i and returns its length, 0 if it can match nothing.
func (t *translator) token(i int) int {
	switch c := t.p[i]; {
	case c == '*':
		return t.stars(i)
	case c == '?':
		t.b.WriteString(`[^/]`)
	case c == '[':
		return t.class(i)
	case c == '\\':
		if i+1 == len(t.p) {
			return 0
		}
		return 1 + t.literal(i+1)
	case c == '{' && closing(t.p[i:]) > 0:
		t.depth++
		t.b.WriteString(`(?:`)
	case c == '}' && t.depth > 0:
		t.depth--
		t.b.WriteString(`)`)
	case c == ',' && t.depth > 0:
		t.b.WriteString(`|`)
	default:
		return t.literal(i)
	}
	return 1
}

// literal translates one character.
func (t *translator) literal(i int) int {
	n := runeLen(t.p[i:])
	t.b.WriteString(regexp.QuoteMeta(t.p[i : i+n]))
	return n
}

// stars translates a run of stars. Two or more match directories if they are a whole path element.
func (t *translator) stars(i int) int {
	rest := strings.TrimLeft(t.p[i:], "*")
	n := len(t.p) - i - len(rest)
	switch whole := t.paths && n > 1 && (i == 0 || t.p[i-1] == '/'); {
	case whole && (rest == "" || strings.HasPrefix(rest, `\/`)):
		t.b.WriteString(`.*`)
	case whole && rest[0] == '/':
		t.b.WriteString(`(?:.*/)?`)
		return n + 1
	default:
		t.b.WriteString(`[^/]*`)
	}
	return n
}

// closing returns the index of the brace that closes the one at the start of s, 0 if there is none.
func closing(s string) int {
	depth := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return 0
}

// class translates [a-z], [!a-z] and [[:alpha:]]. No class matches a slash.
func (t *translator) class(i int) int {
	at := i + 1
	negated := at < len(t.p) && (t.p[at] == '!' || t.p[at] == '^')
	if negated {
		at++
	}
	var set []rune // pairs of bounds
	for first := true; ; first = false {
		if at >= len(t.p) {
			return 0
		}
		if t.p[at] == ']' && !first {
			t.emit(set, negated)
			return at + 1 - i
		}
		if name, ok := posixName(t.p[at:]); ok {
			ranges := posixRanges(name)
			if ranges == nil {
				return 0
			}
			set = append(set, ranges...)
			at += len("[:") + len(name) + len(":]")
			continue
		}
		lo, n := classChar(t.p[at:])
		hi := lo
		if at += n; n > 0 && at+1 < len(t.p) && t.p[at] == '-' && t.p[at+1] != ']' {
			hi, n = classChar(t.p[at+1:])
			at += 1 + n
		}
		if n == 0 {
			return 0
		}
		set = append(set, lo, max(lo, hi)) // an empty range matches its start
	}
}

// emit writes a class of ranges, which may be empty and may contain the slash.
func (t *translator) emit(set []rune, negated bool) {
	var b strings.Builder
	add := func(lo, hi rune) {
		if lo <= hi {
			fmt.Fprintf(&b, `\x{%x}-\x{%x}`, lo, hi)
		}
	}
	for i := 0; i < len(set); i += 2 {
		if lo, hi := set[i], set[i+1]; negated || lo > '/' || hi < '/' {
			add(lo, hi)
		} else {
			add(lo, '/'-1)
			add('/'+1, hi)
		}
	}
	switch {
	case negated:
		t.b.WriteString(`[^/` + b.String() + `]`)
	case b.Len() == 0:
		t.b.WriteString(`[^\x{0}-\x{10ffff}]`) // matches nothing
	default:
		t.b.WriteString(`[` + b.String() + `]`)
	}
}

// posixName returns the name of a text that begins with [:name:].
func posixName(s string) (string, bool) {
	rest, ok := strings.CutPrefix(s, "[:")
	if !ok {
		return "", false
	}
	name, _, ok := strings.Cut(rest, "]")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(name, ":")
}

// posixRanges returns the characters of a POSIX class, nil if it is unknown.
func posixRanges(name string) []rune {
	return map[string][]rune{
		"alnum": {'0', '9', 'A', 'Z', 'a', 'z'}, "alpha": {'A', 'Z', 'a', 'z'}, "blank": {'\t', '\t', ' ', ' '},
		"cntrl": {0, 0x1f, 0x7f, 0x7f}, "digit": {'0', '9'}, "graph": {'!', '~'}, "lower": {'a', 'z'}, "print": {' ', '~'},
		"punct": {'!', '/', ':', '@', '[', '`', '{', '~'}, "space": {'\t', '\r', ' ', ' '}, "upper": {'A', 'Z'},
		"xdigit": {'0', '9', 'A', 'F', 'a', 'f'},
	}[name]
}

// classChar returns the first character of a class and its length.
func classChar(s string) (rune, int) {
	skip := 0
	if s[0] == '\\' {
		skip = 1
	}
	if len(s) == skip {
		return 0, 0
	}
	r := []rune(s[skip : skip+runeLen(s[skip:])])[0]
	return r, skip + runeLen(s[skip:])
}

// runeLen returns the length of the first character, 1 if it is invalid.
func runeLen(s string) int {
	for i := range s {
		if i > 0 {
			return i
		}
	}
	return len(s)
}
