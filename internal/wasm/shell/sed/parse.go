// Package sed implements sed: all of POSIX and the extensions of GNU sed, except for those that
// start programs. A script accesses files only through the functions of its [Env].
package sed

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sandbar-dev/sandbar/internal/wasm/shell/posixre"
)

// Options are the options of a script.
type Options struct {
	Extended bool // regular expressions (-E)
	Quiet    bool // do not print each line (-n)
	Separate bool // treat files separately (-s, -i)
	Null     bool // lines end with NUL (-z)
}

// Script is a compiled script.
type Script struct {
	cmds   []command
	opts   Options
	labels map[string]int
	files  []string // files of w, in order
}

type addrKind uint8

const (
	addrNone  addrKind = iota
	addrLine           // n
	addrLast           // $
	addrRegex          // /re/
	addrStep           // first~step
	addrZero           // 0, as in 0,/re/
	addrPlus           // ,+n
	addrMult           // ,~n
)

type address struct {
	kind    addrKind
	n, step int
	re      *posixre.Regexp // nil: the last one used
}

type command struct {
	a1, a2 address
	negate bool
	name   byte
	text   string // text of a i c; label of b t T; file name
	n      int    // exit status, line length, or index of the end of a block
	sub    *substitution
	trans  map[rune]rune
	id     int // index of the range's state
}

// substitution is the s command.
type substitution struct {
	re      *posixre.Regexp
	with    []part
	all     bool
	nth     int
	print   int
	file    string
	hasFile bool
}

// part is a part of a replacement: text, a group, or a change of case.
type part struct {
	text  string
	group int  // -1 for text
	conv  byte // U L u l E
}

// Error is a syntax error.
type Error struct{ Message string }

// Error returns the message.
func (e *Error) Error() string { return e.Message }

type parser struct {
	in    string
	pos   int
	s     *Script
	depth []int // indices of the open blocks
	open  int   // no bracket expression ends before this position
}

// maxScript bounds a script, in bytes.
const maxScript = 1 << 20

// Compile compiles a script.
func Compile(text string, o Options) (s *Script, err error) {
	if len(text) > maxScript {
		return nil, &Error{"script is too long"}
	}
	defer func() {
		switch e := recover().(type) {
		case nil:
		case *Error:
			s, err = nil, e
		default:
			panic(e)
		}
	}()
	p := &parser{in: text, s: &Script{opts: o, labels: map[string]int{}}}
	if strings.HasPrefix(text, "#n\n") || text == "#n" {
		p.s.opts.Quiet = true
	}
	p.script()
	return p.s, nil
}

func (p *parser) fail(format string, args ...any) {
	panic(&Error{fmt.Sprintf("-e expression #1, char %d: ", p.pos) + fmt.Sprintf(format, args...)})
}

func (p *parser) peek() byte {
	if p.pos < len(p.in) {
		return p.in[p.pos]
	}
	return 0
}

func (p *parser) more() bool { return p.pos < len(p.in) }

func (p *parser) skip(set string) {
	for p.more() && strings.IndexByte(set, p.in[p.pos]) >= 0 {
		p.pos++
	}
}

func (p *parser) script() {
	for {
		p.skip(" \t\n;")
		if !p.more() {
			break
		}
		p.command()
	}
	if len(p.depth) > 0 {
		p.fail("unmatched `{'")
	}
	for _, c := range p.s.cmds {
		if strings.IndexByte("btT", c.name) >= 0 && c.text != "" {
			if _, ok := p.s.labels[c.text]; !ok {
				panic(&Error{"-e expression #1, char 0: can't find label for jump to `" + c.text + "'"})
			}
		}
	}
}

func (p *parser) command() {
	c := command{id: len(p.s.cmds)}
	c.a1 = p.address(true)
	if c.a1.kind != addrNone {
		p.skip(" \t")
		if p.peek() == ',' {
			p.pos++
			p.skip(" \t")
			if c.a2 = p.address(false); c.a2.kind == addrNone {
				p.fail("unexpected `,'")
			}
		}
	}
	if c.a1.kind == addrZero && c.a2.kind != addrRegex {
		p.fail("invalid usage of line address 0")
	}
	p.skip(" \t")
	for p.peek() == '!' {
		c.negate = true
		p.pos++
		p.skip(" \t")
	}
	if !p.more() {
		p.fail("missing command")
	}
	c.name = p.in[p.pos]
	p.pos++
	p.arguments(&c)
	if c.name != '#' && c.name != ':' {
		p.s.cmds = append(p.s.cmds, c)
	}
}

// address parses an address. The second of two may be relative.
func (p *parser) address(first bool) address {
	switch c := p.peek(); {
	case c >= '0' && c <= '9':
		n := p.number()
		if p.peek() == '~' && first {
			p.pos++
			return address{kind: addrStep, n: n, step: p.number()}
		}
		if n == 0 && first {
			return address{kind: addrZero}
		}
		return address{kind: addrLine, n: n}
	case c == '$':
		p.pos++
		return address{kind: addrLast}
	case c == '/' || c == '\\':
		p.pos++
		if c == '\\' {
			if c = p.peek(); c == 0 {
				p.fail("unexpected end of script")
			}
			p.pos++
		}
		text := p.delimited(c, true)
		o := posixre.Options{}
	flags:
		for {
			switch p.peek() {
			case 'I':
				o.Fold = true
			case 'M':
				o.Lines = true
			default:
				break flags
			}
			p.pos++
		}
		return address{kind: addrRegex, re: p.regex(text, o)}
	case !first && (c == '+' || c == '~'):
		p.pos++
		kind := addrPlus
		if c == '~' {
			kind = addrMult
		}
		return address{kind: kind, n: p.number()}
	}
	return address{}
}

func (p *parser) number() int {
	start := p.pos
	for p.peek() >= '0' && p.peek() <= '9' {
		p.pos++
	}
	n, err := strconv.Atoi(p.in[start:p.pos])
	if err != nil {
		p.fail("expected a number")
	}
	return n
}

// delimited reads up to the delimiter. A backslash makes the delimiter an ordinary character; in a
// regular expression, so does a bracket expression.
func (p *parser) delimited(d byte, isRegex bool) string {
	var b strings.Builder
	for p.more() {
		c := p.in[p.pos]
		switch {
		case c == d:
			p.pos++
			return b.String()
		case c == '\\' && p.pos+1 < len(p.in):
			next := p.in[p.pos+1]
			p.pos += 2
			switch {
			case next == d && d != 'n':
				if isRegex && strings.IndexByte(`.*[]^$+?(){}|`, d) >= 0 {
					b.WriteString("[" + string(d) + "]")
					if d == '^' {
						b.Reset()
						b.WriteString(`\^`)
					}
				} else {
					b.WriteByte(next)
				}
			case next == '\n' && isRegex:
				b.WriteByte('\n')
			default:
				b.WriteByte('\\')
				b.WriteByte(next)
			}
			continue
		case c == '\n' && isRegex:
			p.fail("unterminated address regex")
		case c == '[' && isRegex:
			b.WriteString(p.bracket())
			continue
		}
		b.WriteByte(c)
		p.pos++
	}
	p.fail("unterminated command or address")
	return ""
}

// bracket copies a bracket expression.
func (p *parser) bracket() string {
	start := p.pos
	if start < p.open {
		p.pos++
		return "["
	}
	i := p.pos + 1
	if i < len(p.in) && p.in[i] == '^' {
		i++
	}
	if i < len(p.in) && p.in[i] == ']' {
		i++
	}
	for i < len(p.in) && p.in[i] != ']' && p.in[i] != '\n' {
		if p.in[i] == '[' && i+1 < len(p.in) && strings.IndexByte(":.=", p.in[i+1]) >= 0 {
			if end := strings.Index(p.in[i+2:], string(p.in[i+1])+"]"); end >= 0 {
				i += end + 4
				continue
			}
		}
		i++
	}
	if i >= len(p.in) || p.in[i] != ']' {
		p.pos++
		p.open = i
		return "["
	}
	p.pos = i + 1
	return p.in[start:p.pos]
}

// regex compiles a regular expression. An empty one stands for the last one used.
func (p *parser) regex(text string, o posixre.Options) *posixre.Regexp {
	if text == "" {
		return nil
	}
	o.Extended, o.Escapes = p.s.opts.Extended, true
	re, err := posixre.Compile(text, o)
	if err != nil {
		p.fail("%v", err)
	}
	return re
}

// arguments parses the arguments of a command.
func (p *parser) arguments(c *command) {
	switch c.name {
	case '#':
		p.line()
	case ':':
		if c.a1.kind != addrNone {
			p.fail(": doesn't want any addresses")
		}
		label := strings.TrimSpace(p.word(";\n"))
		if label == "" {
			p.fail("\":\" lacks a label")
		}
		p.s.labels[label] = len(p.s.cmds)
	case '{':
		p.depth = append(p.depth, len(p.s.cmds))
	case '}':
		if len(p.depth) == 0 {
			p.fail("unexpected `}'")
		}
		open := p.depth[len(p.depth)-1]
		p.depth = p.depth[:len(p.depth)-1]
		p.s.cmds[open].n = len(p.s.cmds)
		p.end()
	case 'a', 'i', 'c':
		c.text = p.text()
	case 'b', 't', 'T':
		p.skip(" \t")
		c.text = strings.TrimSpace(p.word(";\n}"))
	case 'r', 'R', 'w', 'W':
		p.skip(" \t")
		if c.text = p.line(); c.text == "" {
			p.fail("missing filename in r/R/w/W commands")
		}
		if c.name == 'w' || c.name == 'W' {
			p.s.files = append(p.s.files, c.text)
		}
	case 's':
		p.substitute(c)
	case 'y':
		p.transliterate(c)
	case 'q', 'Q', 'l', 'L':
		p.skip(" \t")
		c.n = -1
		if b := p.peek(); b >= '0' && b <= '9' {
			c.n = p.number()
		}
		p.end()
	case '=', 'd', 'D', 'g', 'G', 'h', 'H', 'n', 'N', 'p', 'P', 'x', 'z', 'F':
		p.end()
	default:
		p.fail("unknown command: `%c'", c.name)
	}
}

// end checks that a command is followed by a separator.
func (p *parser) end() {
	p.skip(" \t")
	switch p.peek() {
	case 0, ';', '\n':
		p.pos++
	case '}', '#':
	default:
		p.fail("extra characters after command")
	}
}

// word reads up to one of the bytes in stop.
func (p *parser) word(stop string) string {
	start := p.pos
	for p.more() && strings.IndexByte(stop, p.in[p.pos]) < 0 {
		p.pos++
	}
	return p.in[start:p.pos]
}

// line reads the rest of the line.
func (p *parser) line() string {
	text := p.word("\n")
	if p.more() {
		p.pos++
	}
	return text
}

// text reads the text of a, i and c: on the same line, or on the lines after a backslash.
func (p *parser) text() string {
	p.skip(" \t")
	if !p.more() {
		p.fail("expected \\ after `a', `c' or `i'")
	}
	if p.peek() == '\\' {
		rest := strings.TrimLeft(p.in[p.pos+1:], " \t")
		switch {
		case rest == "": // a\ at the end of the line: the text is on the next line
			p.pos = len(p.in)
			return ""
		case rest[0] == '\n':
			p.pos = len(p.in) - len(rest) + 1
		default:
			p.pos++ // the text after it keeps its leading blanks
		}
	}
	var b strings.Builder
	for p.more() {
		c := p.in[p.pos]
		p.pos++
		if c == '\n' {
			break
		}
		if c == '\\' && p.more() {
			c = p.in[p.pos]
			p.pos++
			if i := strings.IndexByte("antrfv", c); i >= 0 {
				c = "\a\n\t\r\f\v"[i]
			}
		}
		b.WriteByte(c)
	}
	return b.String() + "\n"
}

func (p *parser) substitute(c *command) {
	d := p.peek()
	if d == 0 || d == '\n' || d == '\\' {
		p.fail("unterminated `s' command")
	}
	p.pos++
	pattern := p.delimited(d, true)
	with := p.delimited(d, false)
	s := &substitution{}
	c.sub = s
	o := posixre.Options{}
	for done := false; !done; {
		switch f := p.peek(); {
		case f == 'g':
			s.all = true
		case f == 'p':
			s.print++
		case f == 'i' || f == 'I':
			o.Fold = true
		case f == 'm' || f == 'M':
			o.Lines = true
		case f >= '1' && f <= '9':
			s.nth = p.number()
			continue
		case f == '0':
			p.fail("number option to `s' command may not be zero")
		case f == 'e':
			p.fail("the e flag is not supported: it would start programs")
		case f == 'w':
			p.pos++
			p.skip(" \t")
			s.file, s.hasFile = p.line(), true
			p.s.files = append(p.s.files, s.file)
			done = true
			continue
		default:
			done = true
			continue
		}
		p.pos++
	}
	if !s.hasFile {
		if b := p.peek(); b != 0 && strings.IndexByte(" \t;\n}#", b) < 0 {
			p.fail("unknown option to `s'")
		}
		p.end()
	}
	s.re = p.regex(pattern, o)
	s.with = p.replacement(with)
	if s.re != nil {
		for _, part := range s.with {
			if part.group > s.re.Groups() {
				p.fail("invalid reference \\%d on `s' command's RHS", part.group)
			}
		}
	}
}

// replacement parses the replacement of an s command.
func (p *parser) replacement(text string) []part {
	var parts []part
	var b strings.Builder
	add := func(x part) {
		if b.Len() > 0 {
			parts = append(parts, part{text: b.String(), group: -1})
			b.Reset()
		}
		parts = append(parts, x)
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '&':
			add(part{group: 0})
		case c == '\\' && i+1 < len(text):
			i++
			switch c := text[i]; {
			case c >= '0' && c <= '9':
				add(part{group: int(c - '0')})
			case strings.IndexByte("ULulE", c) >= 0:
				add(part{group: -1, conv: c})
			case strings.IndexByte("ntrfva", c) >= 0:
				b.WriteByte("\n\t\r\f\v\a"[strings.IndexByte("ntrfva", c)])
			case c == 'x' && i+2 < len(text):
				n, err := strconv.ParseUint(text[i+1:i+3], 16, 8)
				if err != nil {
					b.WriteByte(c)
					break
				}
				b.WriteByte(byte(n))
				i += 2
			default:
				b.WriteByte(c)
			}
		default:
			b.WriteByte(c)
		}
	}
	if b.Len() > 0 {
		parts = append(parts, part{text: b.String(), group: -1})
	}
	return parts
}

func (p *parser) transliterate(c *command) {
	d := p.peek()
	if d == 0 || d == '\n' || d == '\\' {
		p.fail("unterminated `y' command")
	}
	p.pos++
	from, to := p.characters(p.delimited(d, false)), p.characters(p.delimited(d, false))
	if len(from) != len(to) {
		p.fail("strings for `y' command are different lengths")
	}
	c.trans = map[rune]rune{}
	for i, r := range from {
		if _, ok := c.trans[r]; !ok {
			c.trans[r] = to[i]
		}
	}
	p.end()
}

func (p *parser) characters(text string) []rune {
	var out []rune
	for text != "" {
		r, n := utf8.DecodeRuneInString(text)
		if r == '\\' && len(text) > 1 {
			switch text[1] {
			case '\\':
				n = 2
			case 'n':
				r, n = '\n', 2
			case 't':
				r, n = '\t', 2
			case 'r':
				r, n = '\r', 2
			}
		}
		out, text = append(out, r), text[n:]
	}
	return out
}
