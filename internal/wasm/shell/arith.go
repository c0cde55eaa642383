package shell

import (
	"math"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// arith evaluates an arithmetic expression in 64 bits. Overflow wraps around.
func (s *shell) arith(x syntax.ArithmExpr) int64 {
	defer s.nest()()
	switch x := x.(type) {
	case nil:
		return 0
	case *syntax.Word:
		return s.arithWord(x)
	case *syntax.ParenArithm:
		return s.arith(x.X)
	case *syntax.UnaryArithm:
		return s.arithUnary(x)
	case *syntax.BinaryArithm:
		return s.arithBinary(x)
	}
	s.fatal(2, "arithmetic expression is not supported")
	return 0
}

// arithText evaluates the text of an expression, such as a variable's value.
func (s *shell) arithText(text string) int64 {
	text = strings.TrimSpace(text)
	if n, ok := parseInt(text); ok {
		return n
	}
	if text == "" {
		return 0
	}
	defer s.nest()()
	x, err := newParser().Arithmetic(&guardedText{text})
	if err != nil {
		s.fatal(2, "arithmetic expression: syntax error: %q", text)
	}
	if w, ok := x.(*syntax.Word); ok && !syntax.ValidName(w.Lit()) && w.Lit() != "" {
		s.fatal(2, "arithmetic expression: syntax error: %q", text)
	}
	return s.arith(x)
}

// arithWord evaluates a name, a number, or the expansion of a word.
func (s *shell) arithWord(w *syntax.Word) int64 {
	if name, index, ok := arithName(w); ok {
		return s.arithGet(name, index)
	}
	text := strings.TrimSpace(s.literal(w))
	if n, ok := parseInt(text); ok {
		return n
	}
	return s.arithText(text)
}

// arithName reports whether a word is the name of a variable, or of an element.
func arithName(w *syntax.Word) (string, syntax.ArithmExpr, bool) {
	if name := w.Lit(); syntax.ValidName(name) {
		return name, nil, true
	}
	if len(w.Parts) == 1 {
		if p, ok := w.Parts[0].(*syntax.ParamExp); ok && p.Short && p.Index != nil && !p.Dollar.IsValid() {
			return p.Param.Value, p.Index, true
		}
	}
	return "", nil, false
}

func (s *shell) arithGet(name string, index syntax.ArithmExpr) int64 {
	if index != nil {
		return s.arithText(first(s.element(name, s.indexKey(name, index)).list))
	}
	text, ok := s.get(name)
	if !ok && s.opts.nounset {
		s.fatal(2, "%s: parameter not set", name)
	}
	return s.arithText(text)
}

func (s *shell) arithSet(w syntax.ArithmExpr, n int64) {
	word, ok := w.(*syntax.Word)
	if !ok {
		s.fatal(2, "arithmetic expression: assignment to a non-variable")
	}
	name, index, ok := arithName(word)
	if !ok {
		s.fatal(2, "arithmetic expression: assignment to a non-variable")
	}
	text := strconv.FormatInt(n, 10)
	if index != nil {
		s.setElem(name, s.indexKey(name, index), text)
		return
	}
	s.setVar(name, text)
}

func (s *shell) arithUnary(x *syntax.UnaryArithm) int64 {
	switch x.Op {
	case syntax.Inc, syntax.Dec:
		n := s.arith(x.X)
		next := n + 1
		if x.Op == syntax.Dec {
			next = n - 1
		}
		s.arithSet(x.X, next)
		if x.Post {
			return n
		}
		return next
	case syntax.Not:
		return bit(s.arith(x.X) == 0)
	case syntax.BitNegation:
		return ^s.arith(x.X)
	case syntax.Minus:
		return -s.arith(x.X)
	}
	return s.arith(x.X)
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func (s *shell) arithBinary(x *syntax.BinaryArithm) int64 {
	switch x.Op {
	case syntax.AndArit:
		return bit(s.arith(x.X) != 0 && s.arith(x.Y) != 0)
	case syntax.OrArit:
		return bit(s.arith(x.X) != 0 || s.arith(x.Y) != 0)
	case syntax.TernQuest:
		branches, ok := x.Y.(*syntax.BinaryArithm)
		if !ok || branches.Op != syntax.TernColon {
			s.fatal(2, "arithmetic expression: syntax error")
		}
		if s.arith(x.X) != 0 {
			return s.arith(branches.X)
		}
		return s.arith(branches.Y)
	case syntax.Assgn:
		n := s.arith(x.Y)
		s.arithSet(x.X, n)
		return n
	}
	if op, ok := assignOps[x.Op]; ok {
		n := s.operation(op, s.arith(x.X), s.arith(x.Y))
		s.arithSet(x.X, n)
		return n
	}
	return s.operation(x.Op, s.arith(x.X), s.arith(x.Y))
}

// assignOps maps assignment operators to the operators that they apply.
var assignOps = map[syntax.BinAritOperator]syntax.BinAritOperator{
	syntax.AddAssgn: syntax.Add, syntax.SubAssgn: syntax.Sub, syntax.MulAssgn: syntax.Mul,
	syntax.QuoAssgn: syntax.Quo, syntax.RemAssgn: syntax.Rem, syntax.AndAssgn: syntax.And,
	syntax.OrAssgn: syntax.Or, syntax.XorAssgn: syntax.Xor, syntax.ShlAssgn: syntax.Shl, syntax.ShrAssgn: syntax.Shr,
	syntax.PowAssgn: syntax.Pow,
}

func (s *shell) operation(op syntax.BinAritOperator, a, b int64) int64 {
	switch op {
	case syntax.Add:
		return a + b
	case syntax.Sub:
		return a - b
	case syntax.Mul:
		return a * b
	case syntax.Quo, syntax.Rem:
		return s.divide(op, a, b)
	case syntax.Pow:
		return s.power(a, b)
	case syntax.Eql:
		return bit(a == b)
	case syntax.Neq:
		return bit(a != b)
	case syntax.Lss:
		return bit(a < b)
	case syntax.Leq:
		return bit(a <= b)
	case syntax.Gtr:
		return bit(a > b)
	case syntax.Geq:
		return bit(a >= b)
	case syntax.And:
		return a & b
	case syntax.Or:
		return a | b
	case syntax.Xor:
		return a ^ b
	case syntax.Shl:
		return a << (uint64(b) & 63)
	case syntax.Shr:
		return a >> (uint64(b) & 63)
	case syntax.Comma:
		return b
	}
	s.fatal(2, "arithmetic expression: operator %s is not supported", op)
	return 0
}

func (s *shell) divide(op syntax.BinAritOperator, a, b int64) int64 {
	switch {
	case b == 0:
		s.fatal(2, "arithmetic expression: division by zero")
	case a == math.MinInt64 && b == -1: // avoids the overflow
		if op == syntax.Quo {
			return a
		}
		return 0
	}
	if op == syntax.Quo {
		return a / b
	}
	return a % b
}

func (s *shell) power(a, b int64) int64 {
	if b < 0 {
		s.fatal(2, "arithmetic expression: exponent less than 0")
	}
	n := int64(1)
	for ; b > 0; b >>= 1 {
		if b&1 == 1 {
			n *= a
		}
		a *= a
	}
	return n
}

// parseInt parses an integer in the syntax of shell arithmetic: 10, 010, 0x10, 2#10.
func parseInt(text string) (int64, bool) {
	neg := false
	if t, ok := strings.CutPrefix(text, "-"); ok {
		neg, text = true, t
	} else {
		text = strings.TrimPrefix(text, "+")
	}
	if text == "" || text[0] < '0' || text[0] > '9' {
		return 0, false
	}
	base := uint64(10)
	digits := text
	switch b, rest, ok := strings.Cut(text, "#"); {
	case ok:
		n, err := strconv.ParseUint(b, 10, 8)
		if err != nil || n < 2 || n > 64 {
			return 0, false
		}
		base, digits = n, rest
	case strings.HasPrefix(text, "0x") || strings.HasPrefix(text, "0X"):
		base, digits = 16, text[2:]
	case len(text) > 1 && text[0] == '0':
		base, digits = 8, text[1:]
	}
	var n uint64
	for i := range len(digits) {
		d := digit(digits[i], base)
		if d >= base {
			return 0, false
		}
		n = n*base + d
	}
	if neg {
		return -int64(n), true
	}
	return int64(n), true
}

// digit returns the value of a digit in a base up to 64, or a value above any base if c is not a
// digit.
func digit(c byte, base uint64) uint64 {
	switch {
	case c >= '0' && c <= '9':
		return uint64(c - '0')
	case c >= 'a' && c <= 'z':
		return uint64(c-'a') + 10
	case c >= 'A' && c <= 'Z' && base <= 36:
		return uint64(c-'A') + 10
	case c >= 'A' && c <= 'Z':
		return uint64(c-'A') + 36
	case c == '@':
		return 62
	case c == '_':
		return 63
	}
	return math.MaxUint64
}

// number parses a decimal number; 0 if it is malformed.
func (s *shell) number(text string) int {
	n, _ := strconv.Atoi(strings.TrimSpace(text))
	return n
}
