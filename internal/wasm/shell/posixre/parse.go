package posixre

import (
	"strings"
	"unicode/utf8"

	"github.com/sandbar-dev/sandbar/internal/wasm/shell/glob"
)

type parser struct {
	in     string
	o      Options
	groups int
	depth  int
	closed []bool // closed groups by number
	tries  bool   // the expression needs backtracking
}

func fail(message string) (*node, error) { return nil, &Error{message} }

func (p *parser) parse() (*node, error) {
	n, err := p.alternatives()
	if err != nil {
		return nil, err
	}
	if p.in != "" { // an unmatched closing parenthesis
		return fail("Unmatched ) or \\)")
	}
	return n, nil
}

// special reports whether the input begins with an operator: c in an extended expression, \c in a
// basic one.
func (p *parser) special(c byte) bool {
	if p.o.Extended {
		return p.in != "" && p.in[0] == c
	}
	return len(p.in) > 1 && p.in[0] == '\\' && p.in[1] == c
}

func (p *parser) skip() {
	if !p.o.Extended {
		p.in = p.in[1:]
	}
	p.in = p.in[1:]
}

func (p *parser) alternatives() (*node, error) {
	var kids []*node
	for {
		n, err := p.sequence()
		if err != nil {
			return nil, err
		}
		kids = append(kids, n)
		if !p.special('|') {
			break
		}
		p.skip()
	}
	if len(kids) == 1 {
		return kids[0], nil
	}
	return &node{op: opAlt, kids: kids}, nil
}

func (p *parser) sequence() (*node, error) {
	seq := &node{op: opCat}
	start := true
	for p.in != "" && !p.special('|') && (p.depth == 0 || !p.special(')')) {
		if p.depth == 0 && p.special(')') {
			return fail("Unmatched ) or \\)")
		}
		n, err := p.atom(start)
		if err != nil {
			return nil, err
		}
		start = start && n.op == opLineStart
		if n, err = p.repetitions(n, start); err != nil {
			return nil, err
		}
		seq.kids = append(seq.kids, n)
	}
	return seq, nil
}

// repetitions parses * + ? {n,m} after an atom.
func (p *parser) repetitions(n *node, start bool) (*node, error) {
	for p.in != "" {
		lo, hi := 0, -1
		switch {
		case p.in[0] == '*' && !(start && !p.o.Extended):
			p.in = p.in[1:]
		case p.special('+'):
			p.skip()
			lo = 1
		case p.special('?'):
			p.skip()
			hi = 1
		case p.special('{'):
			a, b, rest, ok := p.interval()
			if !ok {
				if p.o.Extended && !strings.ContainsRune("0123456789,", rune(first(p.in[1:]))) {
					return n, nil // it is literal
				}
				return fail("Invalid content of \\{\\}")
			}
			lo, hi, p.in = a, b, rest
		default:
			return n, nil
		}
		n = &node{op: opRepeat, min: lo, max: hi, kids: []*node{n}}
	}
	return n, nil
}

func first(s string) byte {
	if s == "" {
		return 0
	}
	return s[0]
}

// maxRepeat is the largest bound of an interval, as in package regexp.
const maxRepeat = 1000

func (p *parser) interval() (lo, hi int, rest string, ok bool) {
	s := p.in[1:]
	if !p.o.Extended {
		s = p.in[2:]
	}
	lo, s, hasLo := number(s)
	hi = lo
	if strings.HasPrefix(s, ",") {
		var hasHi bool
		hi, s, hasHi = number(s[1:])
		if !hasHi {
			hi = -1
		}
		hasLo = true
	}
	end := "}"
	if !p.o.Extended {
		end = `\}`
	}
	if !hasLo || !strings.HasPrefix(s, end) || hi >= 0 && hi < lo || lo > maxRepeat || hi > maxRepeat {
		return 0, 0, "", false
	}
	return lo, hi, s[len(end):], true
}

// atom parses one element. start reports whether it begins an alternative.
func (p *parser) atom(start bool) (*node, error) {
	if p.special('(') {
		return p.group()
	}
	c := p.in[0]
	switch c {
	case '.':
		p.in = p.in[1:]
		return &node{op: opAny}, nil
	case '[':
		return p.set()
	case '^':
		if p.o.Extended || start {
			p.in = p.in[1:]
			return &node{op: opLineStart}, nil
		}
	case '$':
		if p.o.Extended || p.endsAfterDollar() {
			p.in = p.in[1:]
			return &node{op: opLineEnd}, nil
		}
	case '\\':
		return p.escape()
	case '*', '+', '?', '{':
		// At the start of an alternative, an operator is literal in a basic expression. In an
		// extended one, it is a repetition of nothing.
		if p.o.Extended && c != '{' {
			p.in = p.in[1:]
			return &node{op: opEmpty}, nil
		}
	}
	r, w := utf8.DecodeRuneInString(p.in)
	p.in = p.in[w:]
	return &node{op: opChar, r: r}, nil
}

func (p *parser) endsAfterDollar() bool {
	rest := p.in[1:]
	return rest == "" || strings.HasPrefix(rest, `\)`) || strings.HasPrefix(rest, `\|`)
}

func (p *parser) group() (*node, error) {
	if p.depth++; p.depth > maxDepth {
		return fail("Regular expression too big")
	}
	p.skip()
	p.groups++
	number := p.groups
	kid, err := p.alternatives()
	if err != nil {
		return nil, err
	}
	if !p.special(')') {
		return fail("Unmatched ( or \\(")
	}
	p.skip()
	p.depth--
	for len(p.closed) <= number {
		p.closed = append(p.closed, false)
	}
	p.closed[number] = true
	return &node{op: opGroup, n: number, kids: []*node{kid}}, nil
}

// escape parses a backslash and the character after it.
func (p *parser) escape() (*node, error) {
	if len(p.in) == 1 {
		return fail("Trailing backslash")
	}
	c := p.in[1]
	edges := map[byte]op{'b': opWordEdge, 'B': opNotWordEdge, '<': opWordStart, '>': opWordEnd, '`': opTextStart, '\'': opTextEnd}
	sets := map[byte]node{
		'w': {items: []item{{class: "word"}}}, 'W': {items: []item{{class: "word"}}, neg: true},
		's': {items: []item{{class: "space"}}}, 'S': {items: []item{{class: "space"}}, neg: true},
	}
	if o, ok := edges[c]; ok {
		p.in = p.in[2:]
		p.tries = p.tries || o == opWordStart || o == opWordEnd
		return &node{op: o}, nil
	}
	if n, ok := sets[c]; ok {
		p.in = p.in[2:]
		n.op = opSet
		return &n, nil
	}
	if c >= '1' && c <= '9' {
		number := int(c - '0')
		if number >= len(p.closed) || !p.closed[number] {
			return fail("Invalid back reference")
		}
		p.in = p.in[2:]
		p.tries = true
		return &node{op: opBackref, n: number}, nil
	}
	if r, n := p.charEscape(p.in); n > 0 {
		p.in = p.in[n:]
		return &node{op: opChar, r: r}, nil
	}
	if c == '{' && !p.o.Extended {
		return fail("Invalid preceding regular expression")
	}
	r, w := utf8.DecodeRuneInString(p.in[1:])
	p.in = p.in[1+w:]
	return &node{op: opChar, r: r}, nil
}

// charEscape decodes \n etc. if they are escapes.
func (p *parser) charEscape(s string) (rune, int) {
	if !p.o.Escapes || len(s) < 2 || s[0] != '\\' {
		return 0, 0
	}
	if i := strings.IndexByte("ntrfva", s[1]); i >= 0 {
		return rune("\n\t\r\f\v\a"[i]), 2
	}
	return 0, 0
}

// set parses a bracket expression.
func (p *parser) set() (*node, error) {
	n := &node{op: opSet}
	s := p.in[1:]
	if strings.HasPrefix(s, "^") {
		n.neg, s = true, s[1:]
	}
	for begin := true; ; begin = false {
		switch {
		case s == "":
			return fail("Unmatched [, [^, [:, [., or [=")
		case s[0] == ']' && !begin:
			p.in = s[1:]
			return n, nil
		case strings.HasPrefix(s, "[:"):
			name, rest, ok := strings.Cut(s[2:], ":]")
			if !ok || glob.Class(name) == nil {
				return fail("Invalid character class name")
			}
			n.items, s = append(n.items, item{class: name}), rest
			continue
		}
		lo, w, err := p.setChar(s)
		if err != nil {
			return nil, err
		}
		s = s[w:]
		hi := lo
		if len(s) > 1 && s[0] == '-' && s[1] != ']' {
			if hi, w, err = p.setChar(s[1:]); err != nil {
				return nil, err
			}
			s = s[1+w:]
			if hi < lo {
				return fail("Invalid range end")
			}
		}
		n.items = append(n.items, item{lo: lo, hi: hi})
	}
}

// setChar parses one character of a bracket expression.
func (p *parser) setChar(s string) (rune, int, error) {
	for _, d := range []string{".", "="} {
		if strings.HasPrefix(s, "["+d) {
			i := strings.Index(s[2:], d+"]")
			r, w := utf8.DecodeRuneInString(s[2:])
			if i != w || i <= 0 {
				return 0, 0, &Error{"Invalid collation character"}
			}
			return r, 4 + w, nil
		}
	}
	if r, n := p.charEscape(s); n > 0 {
		return r, n, nil
	}
	if p.o.Escapes && len(s) > 1 && s[0] == '\\' && (s[1] == ']' || s[1] == '\\') && p.o.Extended {
		return rune(s[1]), 2, nil
	}
	r, w := utf8.DecodeRuneInString(s)
	return r, w, nil
}
