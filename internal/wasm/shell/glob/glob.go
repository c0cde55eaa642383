// Package glob matches the patterns of the shell: * ? [...] and optionally the extended patterns of
// bash. It does not access files: callers match one name of a path at a time.
//
// A match takes a bounded number of steps, so that a hostile pattern cannot block the caller. Above
// the bound, the result is no match.
package glob

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Options are the syntax and flags of a pattern.
type Options struct {
	Extended bool // ?(…) *(…) +(…) @(…) !(…)
	Fold     bool // ignore case
}

// maxSteps bounds the work of one match.
const maxSteps = 1 << 20

// Pattern is a compiled pattern. It may be used concurrently.
type Pattern struct {
	seq  []token
	fold bool
	// literal is the text that the pattern matches if it has no special characters.
	literal string
	plain   bool
}

type kind uint8

const (
	char  kind = iota // r
	any1              // ?
	star              // *
	class             // [...]
	group             // an extended pattern
)

type token struct {
	kind kind
	r    rune
	neg  bool   // of a class
	set  []item // of a class
	op   byte   // of a group: ? * + @ !
	alts [][]token
}

// item is a range or a named class.
type item struct {
	lo, hi rune
	name   string
}

// Compile compiles a pattern. It never fails: an invalid special form is literal text. A backslash
// makes the next character literal. If a group does not end, the pattern has no groups.
func Compile(pattern string, o Options) *Pattern {
	p := &parser{in: pattern, ext: o.Extended}
	seq := p.sequence("")
	if p.unclosed {
		p = &parser{in: pattern}
		seq = p.sequence("")
	}
	pat := &Pattern{seq: seq, fold: o.Fold, plain: !o.Fold}
	var b strings.Builder
	for _, t := range seq {
		if t.kind != char {
			pat.plain = false
			break
		}
		writeRune(&b, t.r)
	}
	pat.literal = b.String()
	return pat
}

// Match reports whether the pattern matches all of s.
func Match(pattern, s string) bool { return Compile(pattern, Options{}).Match(s) }

// Match reports whether the pattern matches all of s.
func (p *Pattern) Match(s string) bool {
	if p.plain {
		return s == p.literal
	}
	m := matcher{fold: p.fold, steps: maxSteps}
	return m.match(p.seq, s)
}

// Literal returns the text that the pattern matches; false if the pattern has special characters.
func (p *Pattern) Literal() (string, bool) { return p.literal, p.plain }

// LeadingDot reports whether the pattern begins with a literal dot. Only such a pattern matches
// names that begin with a dot.
func (p *Pattern) LeadingDot() bool {
	return len(p.seq) > 0 && p.seq[0].kind == char && p.seq[0].r == '.'
}

// HasMeta reports whether the pattern has special characters.
func HasMeta(pattern string, extended bool) bool {
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '\\':
			i++
		case '*', '?', '[':
			return true
		case '+', '@', '!':
			if extended && i+1 < len(pattern) && pattern[i+1] == '(' {
				return true
			}
		}
	}
	return false
}

// Quote escapes special characters in s, so that the result matches s only.
func Quote(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if strings.IndexByte(`*?[]\()|+@!-^`, s[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// decode decodes a character. An invalid byte of UTF-8 becomes a value above all characters.
func decode(s string) (rune, int) {
	r, n := utf8.DecodeRuneInString(s)
	if r == utf8.RuneError && n == 1 {
		return invalid + rune(s[0]), 1
	}
	return r, n
}

// invalid is added to bytes that are not UTF-8.
const invalid = unicode.MaxRune + 1

func writeRune(b *strings.Builder, r rune) {
	if r >= invalid {
		b.WriteByte(byte(r - invalid))
		return
	}
	b.WriteRune(r)
}

type parser struct {
	in        string
	ext       bool
	depth     int
	unclosed  bool // a group does not end
	noClosing bool // no further bracket expression ends
}

// maxDepth bounds the nesting of groups.
const maxDepth = 50

// sequence parses up to the end or one of the bytes in stop, which it does not consume.
func (p *parser) sequence(stop string) []token {
	var seq []token
	for p.in != "" && strings.IndexByte(stop, p.in[0]) < 0 {
		seq = append(seq, p.token())
	}
	return seq
}

func (p *parser) token() token {
	c := p.in[0]
	if p.ext && strings.IndexByte("?*+@!", c) >= 0 && strings.HasPrefix(p.in[1:], "(") && p.depth < maxDepth {
		t, _ := p.group()
		return t
	}
	switch c {
	case '?':
		p.in = p.in[1:]
		return token{kind: any1}
	case '*':
		p.in = p.in[1:]
		return token{kind: star}
	case '[':
		if t, ok := p.class(); ok {
			return t
		}
	case '\\':
		if len(p.in) > 1 {
			p.in = p.in[1:]
		}
	}
	r, n := decode(p.in)
	p.in = p.in[n:]
	return token{kind: char, r: r}
}

// group parses an extended pattern. One that does not end consumes the whole rest.
func (p *parser) group() (token, bool) {
	t := token{kind: group, op: p.in[0]}
	p.in = p.in[2:]
	p.depth++
	defer func() { p.depth-- }()
	for {
		t.alts = append(t.alts, p.sequence("|)"))
		if p.in == "" {
			p.unclosed = true
			return token{}, false
		}
		c := p.in[0]
		p.in = p.in[1:]
		if c == ')' {
			return t, true
		}
	}
}

// class parses a bracket expression. It returns false if the expression does not end.
func (p *parser) class() (token, bool) {
	s := p.in[1:]
	t := token{kind: class}
	if s != "" && (s[0] == '!' || s[0] == '^') {
		t.neg, s = true, s[1:]
	}
	for first := true; ; first = false {
		if s == "" || p.noClosing {
			p.noClosing = true
			return t, false
		}
		if s[0] == ']' && !first {
			p.in = s[1:]
			return t, true
		}
		if name, rest, ok := named(s); ok {
			t.set, s = append(t.set, item{name: name}), rest
			continue
		}
		lo, n := classChar(s)
		if n == 0 {
			return t, false
		}
		s = s[n:]
		hi := lo
		if len(s) > 1 && s[0] == '-' && s[1] != ']' {
			r, n := classChar(s[1:])
			if n == 0 {
				return t, false
			}
			hi, s = r, s[1+n:]
		}
		t.set = append(t.set, item{lo: lo, hi: hi})
	}
}

// named parses [:name:].
func named(s string) (name, rest string, ok bool) {
	if !strings.HasPrefix(s, "[:") {
		return "", "", false
	}
	name, rest, ok = strings.Cut(s[2:], ":]")
	return name, rest, ok && Class(name) != nil
}

// classChar parses one character of a bracket expression: literal, escaped by a backslash, or as
// [.x.] or [=x=].
func classChar(s string) (rune, int) {
	for _, d := range []string{".", "="} {
		if strings.HasPrefix(s, "["+d) {
			if i := strings.Index(s[2:], d+"]"); i > 0 {
				r, n := decode(s[2:])
				if n == i {
					return r, 4 + n
				}
			}
		}
	}
	skip := 0
	if s[0] == '\\' && len(s) > 1 {
		skip = 1
	}
	r, n := decode(s[skip:])
	return r, skip + n
}

// Class returns the predicate of a named class of POSIX, such as "alpha", extended from the C
// locale to Unicode; nil if the name is unknown.
func Class(name string) func(rune) bool {
	switch name {
	case "alpha":
		return unicode.IsLetter
	case "digit":
		return func(r rune) bool { return r >= '0' && r <= '9' }
	case "alnum":
		return func(r rune) bool { return unicode.IsLetter(r) || (r >= '0' && r <= '9') }
	case "upper":
		return unicode.IsUpper
	case "lower":
		return unicode.IsLower
	case "space":
		return unicode.IsSpace
	case "blank":
		return func(r rune) bool { return r == ' ' || r == '\t' }
	case "punct":
		return func(r rune) bool {
			return r > ' ' && r < 0x7f && !isAlnum(r) || r > 0x7f && (unicode.IsPunct(r) || unicode.IsSymbol(r))
		}
	case "print":
		return func(r rune) bool { return r == ' ' || unicode.IsGraphic(r) }
	case "graph":
		return func(r rune) bool { return unicode.IsGraphic(r) && !unicode.IsSpace(r) }
	case "cntrl":
		return unicode.IsControl
	case "xdigit":
		return func(r rune) bool { return r >= '0' && r <= '9' || r >= 'a' && r <= 'f' || r >= 'A' && r <= 'F' }
	}
	return nil
}

func isAlnum(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}

type matcher struct {
	fold  bool
	steps int
}

// match reports whether a sequence matches all of s. It backtracks to the last star only, which is
// sufficient unless a group follows.
func (m *matcher) match(seq []token, s string) bool {
	var backSeq []token
	var backS string
	saved := false
	for {
		if m.steps--; m.steps < 0 {
			return false
		}
		if len(seq) == 0 && s == "" {
			return true
		}
		if len(seq) > 0 {
			switch t := &seq[0]; {
			case t.kind == star:
				backSeq, backS, saved = seq[1:], s, true
				seq = seq[1:]
				continue
			case t.kind == group:
				if m.group(t, seq[1:], s) {
					return true
				}
			case s != "":
				r, n := decode(s)
				if m.one(t, r) {
					seq, s = seq[1:], s[n:]
					continue
				}
			}
		}
		if !saved || backS == "" {
			return false
		}
		_, n := decode(backS)
		backS = backS[n:]
		seq, s = backSeq, backS
	}
}

// one reports whether a token matches one character.
func (m *matcher) one(t *token, r rune) bool {
	switch t.kind {
	case any1:
		return true
	case char:
		return t.r == r || m.fold && foldEqual(t.r, r)
	}
	in := t.has(r)
	if !in && m.fold {
		for f := unicode.SimpleFold(min(r, unicode.MaxRune)); f != r && r <= unicode.MaxRune && !in; f = unicode.SimpleFold(f) {
			in = t.has(f)
		}
	}
	return in != t.neg
}

func (t *token) has(r rune) bool {
	for _, i := range t.set {
		if i.name != "" {
			if Class(i.name)(r) {
				return true
			}
		} else if i.lo <= r && r <= i.hi {
			return true
		}
	}
	return false
}

func foldEqual(a, b rune) bool {
	return a <= unicode.MaxRune && b <= unicode.MaxRune && unicode.ToLower(a) == unicode.ToLower(b)
}

// group reports whether an extended pattern followed by rest matches all of s.
func (m *matcher) group(t *token, rest []token, s string) bool {
	if t.op == '!' {
		for i := 0; i <= len(s); i++ {
			if m.steps--; m.steps < 0 {
				return false
			}
			if !m.any(t.alts, s[:i]) && m.match(rest, s[i:]) {
				return true
			}
		}
		return false
	}
	if (t.op == '?' || t.op == '*') && m.match(rest, s) {
		return true
	}
	for i := 0; i <= len(s); i++ {
		if m.steps--; m.steps < 0 {
			return false
		}
		if !m.any(t.alts, s[:i]) {
			continue
		}
		if m.match(rest, s[i:]) {
			return true
		}
		if (t.op == '*' || t.op == '+') && i > 0 {
			again := *t
			again.op = '*'
			if m.group(&again, rest, s[i:]) {
				return true
			}
		}
	}
	return false
}

func (m *matcher) any(alts [][]token, s string) bool {
	for _, a := range alts {
		if m.match(a, s) {
			return true
		}
	}
	return false
}
