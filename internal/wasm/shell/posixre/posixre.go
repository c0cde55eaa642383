// Package posixre implements the regular expressions of grep, sed and awk: POSIX basic and extended
// ones with the extensions of GNU (\w \s \b \< \> in both, \+ \? \| in basic ones, back-references
// in both). A match is the leftmost-longest.
//
// Package regexp matches expressions that are regular, in linear time. A backtracking matcher
// handles back-references and \< \>. It takes a bounded number of steps, and then returns the best
// match so far.
package posixre

import (
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sandbar-dev/sandbar/internal/wasm/shell/glob"
)

// Options are the syntax and flags of an expression.
type Options struct {
	Extended bool // ERE, else BRE
	Fold     bool // ignore case
	Lines    bool // ^ and $ match at each line of the text
	Escapes  bool // \n, \t etc. are escapes, also in brackets
}

// Regexp is a compiled expression. It may be used concurrently.
type Regexp struct {
	root   *node
	groups int
	opts   Options
	re     *regexp.Regexp // nil: backtrack
	// lookBehind: a match depends on the text before it.
	lookBehind bool
}

type op uint8

const (
	opEmpty op = iota
	opChar
	opAny
	opSet
	opLineStart
	opLineEnd
	opTextStart
	opTextEnd
	opWordEdge
	opNotWordEdge
	opWordStart
	opWordEnd
	opGroup
	opCat
	opAlt
	opRepeat
	opBackref
)

type node struct {
	op       op
	r        rune
	neg      bool
	items    []item
	n        int // number of a group or back-reference
	min, max int // bounds of a repetition; max < 0: unbounded
	kids     []*node
}

// item is a range of characters or a named class.
type item struct {
	lo, hi rune
	class  string
}

// Error is a syntax error.
type Error struct{ Message string }

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// maxExpr bounds an expression in bytes, and maxDepth the nesting of groups.
const (
	maxExpr  = 64 << 10
	maxDepth = 200
)

// Compile compiles an expression. Its errors are of type *Error.
func Compile(expr string, o Options) (*Regexp, error) {
	if len(expr) > maxExpr {
		return nil, &Error{"Regular expression too big"}
	}
	p := &parser{in: expr, o: o}
	root, err := p.parse()
	if err != nil {
		return nil, err
	}
	re := &Regexp{root: root, groups: p.groups, opts: o, lookBehind: looksBack(root)}
	if p.tries {
		return re, nil
	}
	var b strings.Builder
	flags := "s"
	if o.Fold {
		flags += "i"
	}
	b.WriteString("(?" + flags + ")")
	emit(&b, root, o.Lines)
	re.re, err = regexp.Compile(b.String())
	if err != nil {
		return nil, &Error{"Regular expression too big"}
	}
	re.re.Longest()
	return re, nil
}

// Literal returns an expression that matches text only.
func Literal(text string, o Options) (*Regexp, error) {
	var b strings.Builder
	special := `\.[*^$`
	if o.Extended {
		special = `\.[*^$+?(){}|`
	}
	for i := range len(text) {
		if strings.IndexByte(special, text[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(text[i])
	}
	o.Escapes = false
	return Compile(b.String(), o)
}

// Text returns the text that the expression matches if it matches one text only.
func (re *Regexp) Text() (text string, ok bool) {
	if re.re == nil {
		return "", false
	}
	return re.re.LiteralPrefix()
}

// Groups returns the number of groups.
func (re *Regexp) Groups() int { return re.groups }

// Match reports whether the expression matches anywhere in s.
func (re *Regexp) Match(s string) bool {
	if re.re != nil {
		return re.re.MatchString(s)
	}
	return re.find(s, 0) != nil
}

// Find returns the offsets of the first match and of its groups, two each; -1 for a group that did
// not match. It returns nil if there is no match.
func (re *Regexp) Find(s string) []int {
	if re.re != nil {
		return re.re.FindStringSubmatchIndex(s)
	}
	return re.find(s, 0)
}

// All returns the results of Find for the first n matches that do not overlap; for all matches if n
// is negative. An empty match adjacent to the previous match is skipped.
func (re *Regexp) All(s string, n int) [][]int {
	var all [][]int
	for m := range re.Each(s) {
		if n >= 0 && len(all) >= n {
			break
		}
		all = append(all, m)
	}
	return all
}

// Each iterates over the matches of All.
func (re *Regexp) Each(s string) iter.Seq[[]int] {
	if re.re != nil && re.lookBehind {
		// Package regexp considers the text before a match only if it finds all matches itself.
		return slices.Values(re.re.FindAllStringSubmatchIndex(s, -1))
	}
	return func(yield func([]int) bool) {
		for pos, last := 0, -1; pos <= len(s); {
			m := re.findFrom(s, pos)
			if m == nil {
				return
			}
			if (m[1] > m[0] || m[0] != last) && !yield(m) {
				return
			}
			last = m[1]
			if pos = m[1]; m[1] == m[0] {
				_, w := utf8.DecodeRuneInString(s[pos:])
				pos += max(w, 1)
			}
		}
	}
}

func (re *Regexp) findFrom(s string, pos int) []int {
	if re.re == nil {
		return re.find(s, pos)
	}
	m := re.re.FindStringSubmatchIndex(s[pos:])
	for i := range m {
		if m[i] >= 0 {
			m[i] += pos
		}
	}
	return m
}

// looksBack reports whether a match of n depends on the text before it.
func looksBack(n *node) bool {
	switch n.op {
	case opLineStart, opTextStart, opWordEdge, opNotWordEdge, opWordStart, opWordEnd:
		return true
	}
	return slices.ContainsFunc(n.kids, looksBack)
}

// emit writes a node in the syntax of package regexp.
func emit(b *strings.Builder, n *node, lines bool) {
	switch n.op {
	case opChar:
		b.WriteString(quoteRune(n.r))
	case opAny:
		b.WriteByte('.')
	case opSet:
		emitSet(b, n)
	case opLineStart:
		b.WriteString(map[bool]string{true: "(?m:^)", false: `\A`}[lines])
	case opLineEnd:
		b.WriteString(map[bool]string{true: "(?m:$)", false: `\z`}[lines])
	case opTextStart:
		b.WriteString(`\A`)
	case opTextEnd:
		b.WriteString(`\z`)
	case opWordEdge:
		b.WriteString(`\b`)
	case opNotWordEdge:
		b.WriteString(`\B`)
	case opGroup:
		b.WriteByte('(')
		emit(b, n.kids[0], lines)
		b.WriteByte(')')
	case opCat:
		for _, k := range n.kids {
			emit(b, k, lines)
		}
	case opAlt:
		b.WriteString("(?:")
		for i, k := range n.kids {
			if i > 0 {
				b.WriteByte('|')
			}
			emit(b, k, lines)
		}
		b.WriteByte(')')
	case opRepeat:
		b.WriteString("(?:")
		emit(b, n.kids[0], lines)
		b.WriteByte(')')
		switch {
		case n.min == 0 && n.max < 0:
			b.WriteByte('*')
		case n.min == 1 && n.max < 0:
			b.WriteByte('+')
		case n.min == 0 && n.max == 1:
			b.WriteByte('?')
		case n.max < 0:
			fmt.Fprintf(b, "{%d,}", n.min)
		default:
			fmt.Fprintf(b, "{%d,%d}", n.min, n.max)
		}
	}
}

func quoteRune(r rune) string {
	if r == utf8.RuneError {
		return `\x{FFFD}`
	}
	return regexp.QuoteMeta(string(r))
}

func emitSet(b *strings.Builder, n *node) {
	b.WriteByte('[')
	if n.neg {
		b.WriteByte('^')
	}
	for _, i := range n.items {
		if i.class == "" {
			fmt.Fprintf(b, `\x{%x}-\x{%x}`, i.lo, i.hi)
			continue
		}
		b.WriteString("[:" + i.class + ":]")
		switch i.class {
		case "alpha", "alnum":
			b.WriteString(`\p{L}`)
		case "upper":
			b.WriteString(`\p{Lu}`)
		case "lower":
			b.WriteString(`\p{Ll}`)
		case "word":
			b.WriteString(`\p{L}`)
		case "punct":
			b.WriteString(`\p{P}\p{S}`)
		case "print", "graph":
			b.WriteString(`\p{L}\p{M}\p{N}\p{P}\p{S}`)
		}
	}
	b.WriteByte(']')
}

// maxSteps bounds one backtracking search.
const maxSteps = 2_000_000

type backtracker struct {
	s     string
	o     Options
	caps  []int
	best  []int
	steps int
}

// find searches by backtracking from each start position.
func (re *Regexp) find(s string, from int) []int {
	t := &backtracker{s: s, o: re.opts, steps: maxSteps}
	for pos := from; pos <= len(s); {
		t.caps = slices.Repeat([]int{-1}, 2*(re.groups+1))
		t.best = nil
		t.caps[0] = pos
		t.try(re.root, pos, func(end int) bool {
			if t.best == nil || end > t.best[1] {
				t.caps[1] = end
				t.best = slices.Clone(t.caps)
			}
			return end == len(s)
		})
		if t.best != nil {
			return t.best
		}
		if t.steps <= 0 {
			return nil
		}
		_, w := utf8.DecodeRuneInString(s[pos:])
		pos += max(w, 1)
	}
	return nil
}

// try matches n at pos and calls then with each end position. True ends the search.
func (t *backtracker) try(n *node, pos int, then func(int) bool) bool {
	if t.steps--; t.steps <= 0 {
		return true
	}
	switch n.op {
	case opEmpty:
		return then(pos)
	case opChar, opAny, opSet:
		if pos >= len(t.s) {
			return false
		}
		r, w := utf8.DecodeRuneInString(t.s[pos:])
		return t.one(n, r) && then(pos+w)
	case opGroup:
		return t.group(n, pos, then)
	case opCat:
		return t.cat(n.kids, pos, then)
	case opAlt:
		for _, k := range n.kids {
			if t.try(k, pos, then) {
				return true
			}
		}
		return false
	case opRepeat:
		return t.repeat(n, 0, pos, -1, then)
	case opBackref:
		lo, hi := t.caps[2*n.n], t.caps[2*n.n+1]
		if lo < 0 || hi < 0 {
			return false
		}
		want := t.s[lo:hi]
		got := t.s[pos:min(len(t.s), pos+len(want))]
		return (got == want || t.o.Fold && strings.EqualFold(got, want)) && then(pos+len(want))
	}
	return t.edge(n.op, pos) && then(pos)
}

func (t *backtracker) cat(kids []*node, pos int, then func(int) bool) bool {
	if len(kids) == 0 {
		return then(pos)
	}
	return t.try(kids[0], pos, func(p int) bool { return t.cat(kids[1:], p, then) })
}

func (t *backtracker) group(n *node, pos int, then func(int) bool) bool {
	lo, hi := t.caps[2*n.n], t.caps[2*n.n+1]
	ok := t.try(n.kids[0], pos, func(p int) bool {
		oldLo, oldHi := t.caps[2*n.n], t.caps[2*n.n+1]
		t.caps[2*n.n], t.caps[2*n.n+1] = pos, p
		if then(p) {
			return true
		}
		t.caps[2*n.n], t.caps[2*n.n+1] = oldLo, oldHi
		return false
	})
	if !ok {
		t.caps[2*n.n], t.caps[2*n.n+1] = lo, hi
	}
	return ok
}

// repeat matches a repetition greedily. An empty iteration is not repeated.
func (t *backtracker) repeat(n *node, count, pos, last int, then func(int) bool) bool {
	if (n.max < 0 || count < n.max) && pos != last {
		if t.try(n.kids[0], pos, func(p int) bool { return t.repeat(n, count+1, p, pos, then) }) {
			return true
		}
	}
	return (count >= n.min || pos == last) && then(pos)
}

func (t *backtracker) one(n *node, r rune) bool {
	switch n.op {
	case opAny:
		return true
	case opChar:
		return n.r == r || t.o.Fold && unicode.ToLower(n.r) == unicode.ToLower(r)
	}
	in := n.has(r)
	if t.o.Fold && !in {
		in = n.has(unicode.ToLower(r)) || n.has(unicode.ToUpper(r))
	}
	return in != n.neg
}

func (n *node) has(r rune) bool {
	for _, i := range n.items {
		switch {
		case i.class == "word":
			if isWord(r) {
				return true
			}
		case i.class != "":
			if glob.Class(i.class)(r) {
				return true
			}
		case i.lo <= r && r <= i.hi:
			return true
		}
	}
	return false
}

func isWord(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

// edge reports whether a zero-width assertion holds at pos.
func (t *backtracker) edge(o op, pos int) bool {
	before, _ := utf8.DecodeLastRuneInString(t.s[:pos])
	after, _ := utf8.DecodeRuneInString(t.s[pos:])
	left, right := pos > 0 && isWord(before), pos < len(t.s) && isWord(after)
	switch o {
	case opLineStart:
		return pos == 0 || t.o.Lines && before == '\n'
	case opLineEnd:
		return pos == len(t.s) || t.o.Lines && after == '\n'
	case opTextStart:
		return pos == 0
	case opTextEnd:
		return pos == len(t.s)
	case opWordEdge:
		return left != right
	case opNotWordEdge:
		return left == right
	case opWordStart:
		return !left && right
	case opWordEnd:
		return left && !right
	}
	return false
}

// number reads a decimal number at the beginning of s.
func number(s string) (n int, rest string, ok bool) {
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	n, err := strconv.Atoi(s[:i])
	return n, s[i:], err == nil
}
