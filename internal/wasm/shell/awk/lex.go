package awk

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// tokens that are not a single operator.
const (
	tokEOF     = "end of program"
	tokNewline = "newline"
	tokNumber  = "number"
	tokString  = "string"
	tokName    = "name"
	tokFunc    = "function name" // a name right before "("
	tokBuiltin = "built-in function"
	tokKeyword = "keyword"
)

type token struct {
	kind string // one of the constants above, or the operator itself
	text string
	num  float64
	line int
}

var keywords = map[string]bool{
	"BEGIN": true, "END": true, "break": true, "continue": true, "delete": true, "do": true, "else": true, "exit": true, "for": true,
	"function": true, "func": true, "getline": true, "if": true, "in": true, "next": true, "nextfile": true, "print": true, "printf": true,
	"return": true, "while": true,
}

var builtinNames = map[string]bool{
	"atan2": true, "close": true, "cos": true, "exp": true, "fflush": true, "gensub": true, "gsub": true, "index": true, "int": true, "length": true,
	"log": true, "match": true, "mktime": true, "rand": true, "sin": true, "split": true, "sprintf": true, "sqrt": true, "srand": true, "strftime": true,
	"sub": true, "substr": true, "system": true, "systime": true, "tolower": true, "toupper": true,
	"and": true, "or": true, "xor": true, "lshift": true, "rshift": true, "compl": true, "strtonum": true, "asort": true, "asorti": true,
}

// Error is a syntax error or a run-time error.
type Error struct{ Message string }

// Error returns the message.
func (e *Error) Error() string { return e.Message }

func throw(format string, args ...any) { panic(&Error{fmt.Sprintf(format, args...)}) }

type lexer struct {
	in   string
	pos  int
	line int
}

var operators = []string{
	"**=", "&&", "||", "==", "<=", ">=", "!=", "++", "--", "+=", "-=", "*=", "/=", "%=", "^=", "!~", ">>", "**",
	"{", "}", "(", ")", "[", "]", ";", ",", "+", "-", "*", "/", "%", "^", "!", ">", "<", "|", "?", ":", "~", "$", "=",
}

func (l *lexer) next() token {
	l.blanks()
	t := token{line: l.line}
	if l.pos >= len(l.in) {
		t.kind = tokEOF
		return t
	}
	c := l.in[l.pos]
	switch {
	case c == '\n':
		l.pos++
		l.line++
		t.kind = tokNewline
	case c >= '0' && c <= '9' || c == '.' && l.pos+1 < len(l.in) && isDigit(l.in[l.pos+1]):
		t.kind = tokNumber
		n := numberLength(l.in[l.pos:])
		if hex := hexLength(l.in[l.pos:]); hex > 0 {
			v, _ := strconv.ParseUint(l.in[l.pos+2:l.pos+hex], 16, 64)
			t.num, n = float64(v), hex
		} else {
			t.num, _ = strconv.ParseFloat(l.in[l.pos:l.pos+n], 64)
		}
		l.pos += n
	case c == '"':
		t.kind, t.text = tokString, l.str()
	case c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z':
		l.name(&t)
	default:
		l.operator(&t)
	}
	return t
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func (l *lexer) blanks() {
	for l.pos < len(l.in) {
		switch c := l.in[l.pos]; {
		case c == ' ' || c == '\t' || c == '\r':
			l.pos++
		case c == '\\' && strings.HasPrefix(l.in[l.pos+1:], "\n"):
			l.pos += 2
			l.line++
		case c == '\\' && strings.HasPrefix(l.in[l.pos+1:], "\r\n"):
			l.pos += 3
			l.line++
		case c == '#':
			for l.pos < len(l.in) && l.in[l.pos] != '\n' {
				l.pos++
			}
		default:
			return
		}
	}
}

func (l *lexer) name(t *token) {
	start := l.pos
	for l.pos < len(l.in) && (l.in[l.pos] == '_' || isDigit(l.in[l.pos]) || l.in[l.pos]|0x20 >= 'a' && l.in[l.pos]|0x20 <= 'z') {
		l.pos++
	}
	t.text = l.in[start:l.pos]
	switch {
	case keywords[t.text]:
		t.kind = tokKeyword
	case builtinNames[t.text]:
		t.kind = tokBuiltin
	case l.pos < len(l.in) && l.in[l.pos] == '(':
		t.kind = tokFunc
	default:
		t.kind = tokName
	}
}

func (l *lexer) operator(t *token) {
	for _, op := range operators {
		if strings.HasPrefix(l.in[l.pos:], op) {
			l.pos += len(op)
			switch op {
			case "**":
				op = "^"
			case "**=":
				op = "^="
			}
			t.kind = op
			return
		}
	}
	r, _ := utf8.DecodeRuneInString(l.in[l.pos:])
	throw("syntax error at source line %d: unexpected character %q", l.line, r)
}

// str reads a string literal.
func (l *lexer) str() string {
	var b strings.Builder
	for l.pos++; ; {
		if l.pos >= len(l.in) || l.in[l.pos] == '\n' {
			throw("syntax error at source line %d: unterminated string", l.line)
		}
		c := l.in[l.pos]
		l.pos++
		switch {
		case c == '"':
			return b.String()
		case c == '\\' && l.pos < len(l.in):
			l.pos += escape(&b, l.in[l.pos:])
			if l.in[l.pos-1] == '\n' {
				l.line++
			}
		default:
			b.WriteByte(c)
		}
	}
}

// escape decodes the escape after a backslash in a string and returns its length. An unknown escape
// keeps its backslash, for regular expressions.
func escape(b *strings.Builder, s string) int {
	if i := strings.IndexByte(`abfnrtv"\/`, s[0]); i >= 0 {
		b.WriteByte("\a\b\f\n\r\t\v\"\\/"[i])
		return 1
	}
	if s[0] == '\n' {
		return 1
	}
	if n := octalLength(s); n > 0 {
		v, _ := strconv.ParseUint(s[:n], 8, 16)
		b.WriteByte(byte(v))
		return n
	}
	if n := hexLength("0" + s[:min(3, len(s))]); n > 0 { // \xHH
		v, _ := strconv.ParseUint(s[1:n-1], 16, 8)
		b.WriteByte(byte(v))
		return n - 1
	}
	b.WriteByte('\\')
	b.WriteByte(s[0])
	return 1
}

// octalLength returns the length of the octal escape at the beginning of s, at most 3.
func octalLength(s string) int {
	n := 0
	for n < 3 && n < len(s) && s[n] >= '0' && s[n] <= '7' {
		n++
	}
	return n
}

// literalOctal replaces octal escapes of a regular expression by the quoted characters.
func literalOctal(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		i++
		n := octalLength(text[i:])
		if n == 0 {
			b.WriteString(text[i-1 : i+1])
			continue
		}
		v, _ := strconv.ParseUint(text[i:i+n], 8, 16)
		if strings.IndexByte(`\.*+?()[]{}|^$`, byte(v)) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(byte(v))
		i += n - 1
	}
	return b.String()
}

// regex reads the rest of a regular expression after its first slash.
func (l *lexer) regex() string {
	var b strings.Builder
	inSet := false
	for {
		if l.pos >= len(l.in) || l.in[l.pos] == '\n' {
			throw("syntax error at source line %d: unterminated regular expression", l.line)
		}
		c := l.in[l.pos]
		l.pos++
		switch {
		case c == '/' && !inSet:
			return b.String()
		case c == '\\' && l.pos < len(l.in) && l.in[l.pos] == '/':
			b.WriteByte('/')
			l.pos++
			continue
		case c == '\\' && l.pos < len(l.in) && l.in[l.pos] == '"':
			b.WriteByte('"')
			l.pos++
			continue
		case c == '\\' && l.pos < len(l.in) && l.in[l.pos] != '\n':
			b.WriteByte(c)
			c = l.in[l.pos]
			l.pos++
		case c == '[' && !inSet:
			// A "]" immediately after "[" or "[^" is literal.
			inSet = true
			b.WriteByte(c)
			for _, first := range []byte("^]") {
				if l.pos < len(l.in) && l.in[l.pos] == first && strings.IndexByte(l.in[l.pos+1:], ']') >= 0 {
					b.WriteByte(first)
					l.pos++
				}
			}
			continue
		case c == '[' && inSet && l.pos < len(l.in) && l.in[l.pos] == ':':
			if end := strings.Index(l.in[l.pos:], ":]"); end >= 0 {
				b.WriteString(l.in[l.pos-1 : l.pos+end+2])
				l.pos += end + 2
				continue
			}
		case c == ']':
			inSet = false
		}
		b.WriteByte(c)
	}
}

// numberLength returns the length of the decimal number at the beginning of s.
func numberLength(s string) int {
	i := 0
	digits := func() int {
		start := i
		for i < len(s) && isDigit(s[i]) {
			i++
		}
		return i - start
	}
	n := digits()
	if i < len(s) && s[i] == '.' {
		i++
		n += digits()
	}
	if n == 0 {
		return 0
	}
	end := i
	if i < len(s) && s[i]|0x20 == 'e' {
		i++
		if i < len(s) && (s[i] == '+' || s[i] == '-') {
			i++
		}
		if digits() > 0 {
			end = i
		}
	}
	return end
}

// hexLength returns the length of the hexadecimal number, such as 0x1f, at the beginning of s.
func hexLength(s string) int {
	if len(s) < 3 || s[0] != '0' || s[1]|0x20 != 'x' {
		return 0
	}
	i := 2
	for i < len(s) && (isDigit(s[i]) || s[i]|0x20 >= 'a' && s[i]|0x20 <= 'f') {
		i++
	}
	if i == 2 {
		return 0
	}
	return i
}
