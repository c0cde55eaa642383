// Package format implements the conversions of C's printf for the commands printf and awk, and the
// backslash escapes of echo, printf and $'…'.
package format

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Spec is a conversion such as %-5.3d.
type Spec struct {
	Left, Plus, Space, Alt, Zero bool
	Width                        int
	Prec                         int // -1: none
	Verb                         byte
}

// Parse parses a conversion after its "%". star returns the next value for "*". It returns the
// length of the conversion, or 0 if it is incomplete.
func Parse(s string, star func() int) (Spec, int) {
	sp := Spec{Prec: -1}
	i := 0
flags:
	for ; i < len(s); i++ {
		switch s[i] {
		case '-':
			sp.Left = true
		case '+':
			sp.Plus = true
		case ' ':
			sp.Space = true
		case '#':
			sp.Alt = true
		case '0':
			sp.Zero = true
		case '\'':
		default:
			break flags
		}
	}
	number := func() int {
		if i < len(s) && s[i] == '*' {
			i++
			return star()
		}
		n := 0
		for ; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
			n = min(n*10+int(s[i]-'0'), MaxWidth+1)
		}
		return n
	}
	sp.Width = number()
	if sp.Width < 0 {
		sp.Left, sp.Width = true, -sp.Width
	}
	if i < len(s) && s[i] == '.' {
		i++
		sp.Prec = number()
	}
	for i < len(s) && strings.IndexByte("hlLjzt", s[i]) >= 0 {
		i++
	}
	if i == len(s) {
		return sp, 0
	}
	sp.Verb = s[i]
	sp.Width, sp.Prec = min(sp.Width, MaxWidth), min(sp.Prec, MaxWidth)
	return sp, i + 1
}

// MaxWidth bounds width and precision.
const MaxWidth = 1 << 16

// pad pads to the width. Zeros are inserted after sign and prefix.
func (sp Spec) pad(prefix, body string, zero bool) string {
	n := sp.Width - utf8.RuneCountInString(prefix) - utf8.RuneCountInString(body)
	switch {
	case n <= 0:
		return prefix + body
	case sp.Left:
		return prefix + body + strings.Repeat(" ", n)
	case zero:
		return prefix + strings.Repeat("0", n) + body
	}
	return strings.Repeat(" ", n) + prefix + body
}

// String formats a string for %s.
func (sp Spec) String(s string) string {
	if sp.Prec >= 0 && utf8.RuneCountInString(s) > sp.Prec {
		r := []rune(s)
		s = string(r[:sp.Prec])
	}
	return sp.pad("", s, false)
}

func (sp Spec) sign(neg bool) string {
	switch {
	case neg:
		return "-"
	case sp.Plus:
		return "+"
	case sp.Space:
		return " "
	}
	return ""
}

// Int formats a number for %d and %i.
func (sp Spec) Int(n int64) string {
	digits := strconv.FormatInt(n, 10)
	digits, neg := strings.CutPrefix(digits, "-")
	return sp.digits(sp.sign(neg), digits, n == 0)
}

// Uint formats a number for %u, %o, %x and %X.
func (sp Spec) Uint(n uint64) string {
	prefix, digits := "", ""
	switch sp.Verb {
	case 'o':
		digits = strconv.FormatUint(n, 8)
		if sp.Alt && digits[0] != '0' {
			digits = "0" + digits
		}
	case 'x', 'X':
		digits = strconv.FormatUint(n, 16)
		if sp.Alt && n != 0 {
			prefix = "0x"
		}
	default:
		digits = strconv.FormatUint(n, 10)
	}
	if sp.Verb == 'X' {
		prefix, digits = strings.ToUpper(prefix), strings.ToUpper(digits)
	}
	return sp.digits(prefix, digits, n == 0)
}

func (sp Spec) digits(prefix, digits string, isZero bool) string {
	if sp.Prec == 0 && isZero {
		digits = ""
	}
	if n := sp.Prec - len(digits); n > 0 {
		digits = strings.Repeat("0", n) + digits
	}
	return sp.pad(prefix, digits, sp.Zero && sp.Prec < 0)
}

// Float formats a number for %e, %f, %g, %a and their upper-case variants.
func (sp Spec) Float(f float64) string {
	neg := math.Signbit(f)
	abs := math.Abs(f)
	upper := sp.Verb >= 'A' && sp.Verb <= 'Z'
	verb := sp.Verb | 0x20
	var body string
	special := math.IsInf(abs, 0) || math.IsNaN(abs)
	switch {
	case math.IsInf(abs, 0):
		body = "inf"
	case math.IsNaN(abs):
		body = "nan"
	case verb == 'g':
		body = sp.general(abs)
	case verb == 'a':
		body = strconv.FormatFloat(abs, 'x', sp.Prec, 64)
	default:
		prec := sp.Prec
		if prec < 0 {
			prec = 6
		}
		body = strconv.FormatFloat(abs, verb, prec, 64)
		if sp.Alt && prec == 0 {
			body += "."
		}
	}
	if upper {
		body = strings.ToUpper(body)
	}
	return sp.pad(sp.sign(neg), body, sp.Zero && !special)
}

// general formats for %g: the shorter of %e and %f, without trailing zeros.
func (sp Spec) general(f float64) string {
	prec := sp.Prec
	switch {
	case prec < 0:
		prec = 6
	case prec == 0:
		prec = 1
	}
	e := strconv.FormatFloat(f, 'e', prec-1, 64)
	exp, _ := strconv.Atoi(e[strings.IndexByte(e, 'e')+1:])
	text := e
	if exp >= -4 && exp < prec {
		text = strconv.FormatFloat(f, 'f', prec-1-exp, 64)
	}
	if sp.Alt {
		return text
	}
	mantissa, rest, hasExp := strings.Cut(text, "e")
	if strings.Contains(mantissa, ".") {
		mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
	}
	if hasExp {
		return mantissa + "e" + rest
	}
	return mantissa
}

// Printf formats like the command printf: it repeats the format until all arguments are used. It
// returns messages about invalid arguments. limit bounds the output in bytes.
func Printf(b *strings.Builder, format string, args []string, limit int) (problems []string) {
	p := printer{b: b, args: args, limit: limit}
	for {
		before := len(p.args)
		if p.once(format) || len(p.args) == 0 || len(p.args) == before {
			return p.problems
		}
	}
}

type printer struct {
	b        *strings.Builder
	args     []string
	limit    int
	problems []string
}

func (p *printer) next() (string, bool) {
	if len(p.args) == 0 {
		return "", false
	}
	a := p.args[0]
	p.args = p.args[1:]
	return a, true
}

// once formats all conversions of the format once. stop: the output ends (\c).
func (p *printer) once(format string) (stop bool) {
	for i := 0; i < len(format); {
		if p.b.Len() > p.limit {
			p.problems = append(p.problems, "output is too long")
			return true
		}
		switch c := format[i]; {
		case c == '\\':
			text, n, stop := Escape(format[i:], Format)
			p.b.WriteString(text)
			if stop {
				return true
			}
			i += n
		case c == '%' && strings.HasPrefix(format[i+1:], "%"):
			p.b.WriteByte('%')
			i += 2
		case c == '%':
			sp, n := Parse(format[i+1:], func() int {
				a, _ := p.next()
				return int(p.integer(a))
			})
			if n == 0 {
				p.problems = append(p.problems, format[i:]+": missing conversion")
				return true
			}
			i += 1 + n
			if p.convert(sp) {
				return true
			}
		default:
			p.b.WriteByte(c)
			i++
		}
	}
	return false
}

// convert formats one conversion. stop: the output ends (\c).
func (p *printer) convert(sp Spec) (stop bool) {
	arg, have := p.next()
	switch sp.Verb {
	case 's':
		p.b.WriteString(sp.String(arg))
	case 'b':
		text, stop := Echo(arg)
		p.b.WriteString(sp.String(text))
		return stop
	case 'q':
		p.b.WriteString(sp.String(shellQuote(arg)))
	case 'c':
		if arg != "" {
			arg = arg[:1]
		}
		sp.Prec = -1
		p.b.WriteString(sp.String(arg))
	case 'd', 'i':
		p.b.WriteString(sp.Int(p.integer(arg)))
	case 'o', 'u', 'x', 'X':
		p.b.WriteString(sp.Uint(uint64(p.integer(arg))))
	case 'e', 'E', 'f', 'F', 'g', 'G', 'a', 'A':
		var f float64
		if have {
			f = p.float(arg)
		}
		p.b.WriteString(sp.Float(f))
	default:
		p.problems = append(p.problems, fmt.Sprintf("%%%c: invalid directive", sp.Verb))
		return true
	}
	return false
}

// integer parses a number in C's notation, or returns the code of the character after a quote.
func (p *printer) integer(s string) int64 {
	if s == "" {
		return 0
	}
	if s[0] == '\'' || s[0] == '"' {
		r, _ := utf8.DecodeRuneInString(s[1:])
		return int64(r)
	}
	t := strings.TrimLeft(s, " \t\n")
	n, err := strconv.ParseInt(cNumber(t), 0, 64)
	if err == nil {
		return n
	}
	if u, err := strconv.ParseUint(cNumber(t), 0, 64); err == nil {
		return int64(u)
	}
	if e, ok := err.(*strconv.NumError); ok && e.Err == strconv.ErrRange {
		p.problems = append(p.problems, s+": Numerical result out of range")
		return n
	}
	for end := len(t); end > 0; end-- {
		if n, err := strconv.ParseInt(cNumber(t[:end]), 0, 64); err == nil {
			p.problems = append(p.problems, s+": not completely converted")
			return n
		}
	}
	p.problems = append(p.problems, s+": expected numeric value")
	return 0
}

// cNumber returns s, or a malformed number if s is a number in Go's syntax but not in C's.
func cNumber(s string) string {
	if strings.ContainsAny(s, "_oOpP") || strings.HasPrefix(strings.TrimLeft(s, "+-"), "0b") || strings.HasPrefix(strings.TrimLeft(s, "+-"), "0B") {
		return "?"
	}
	return s
}

func (p *printer) float(s string) float64 {
	if s == "" {
		return 0
	}
	if s[0] == '\'' || s[0] == '"' {
		r, _ := utf8.DecodeRuneInString(s[1:])
		return float64(r)
	}
	t := strings.TrimLeft(s, " \t\n")
	f, n := Float(t)
	switch {
	case n == 0:
		p.problems = append(p.problems, s+": expected numeric value")
	case n < len(t):
		p.problems = append(p.problems, s+": not completely converted")
	}
	return f
}

// Float parses the number at the beginning of s and returns its length.
func Float(s string) (float64, int) {
	i := 0
	digits := func() int {
		start := i
		for i < len(s) && s[i] >= '0' && s[i] <= '9' {
			i++
		}
		return i - start
	}
	if i < len(s) && (s[i] == '+' || s[i] == '-') {
		i++
	}
	rest := strings.ToLower(s[i:min(len(s), i+8)])
	for _, word := range []string{"infinity", "inf", "nan"} {
		if strings.HasPrefix(rest, word) {
			f, _ := strconv.ParseFloat(word, 64)
			if s[0] == '-' {
				f = -f
			}
			return f, i + len(word)
		}
	}
	if strings.HasPrefix(rest, "0x") {
		j := i + 2
		for j < len(s) && strings.IndexByte("0123456789abcdefABCDEF", s[j]) >= 0 {
			j++
		}
		if n, err := strconv.ParseUint(s[i+2:j], 16, 64); err == nil {
			if s[0] == '-' {
				return -float64(n), j
			}
			return float64(n), j
		}
	}
	n := digits()
	if i < len(s) && s[i] == '.' {
		i++
		n += digits()
	}
	if n == 0 {
		return 0, 0
	}
	end := i
	if i < len(s) && (s[i] == 'e' || s[i] == 'E') {
		i++
		if i < len(s) && (s[i] == '+' || s[i] == '-') {
			i++
		}
		if digits() > 0 {
			end = i
		}
	}
	f, _ := strconv.ParseFloat(s[:end], 64)
	return f, end
}

// shellQuote formats for %q.
func shellQuote(s string) string {
	if s == "" {
		return "''"
	}
	var b strings.Builder
	for _, r := range s {
		if r < ' ' || r == 0x7f {
			return "$" + strings.ReplaceAll(strconv.Quote(s), `"`, "'")
		}
		if strings.ContainsRune(" \t|&;<>()$`\\\"'*?[]#~=%!{}^", r) && !strings.ContainsRune("=%", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}
