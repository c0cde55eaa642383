package tools

import (
	"fmt"
	"math/big"
	"strings"
	"unicode/utf8"

	"github.com/sandbar-dev/sandbar/internal/wasm/shell/posixre"
)

// expr implements expr.
func expr(t *cmd) {
	args := t.Args[1:]
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		t.fatal(2, "missing operand")
	}
	e := &exprParser{t: t, args: args}
	v := e.or()
	if len(e.args) > 0 {
		t.fatal(2, "syntax error: unexpected argument '%s'", e.args[0])
	}
	fmt.Fprintln(t.out, v)
	if falsy(v) {
		t.status = 1
	}
}

func falsy(v string) bool {
	return v == "" || strings.Trim(v, "0") == "" || strings.HasPrefix(v, "-") && len(v) > 1 && strings.Trim(v[1:], "0") == ""
}

type exprParser struct {
	t     *cmd
	args  []string
	depth int
}

func (e *exprParser) peek() string {
	if len(e.args) == 0 {
		return ""
	}
	return e.args[0]
}

func (e *exprParser) next() string {
	if len(e.args) == 0 {
		e.t.fatal(2, "syntax error: missing argument")
	}
	a := e.args[0]
	e.args = e.args[1:]
	return a
}

func (e *exprParser) or() string {
	v := e.and()
	for e.peek() == "|" {
		e.next()
		w := e.and()
		if falsy(v) {
			v = w
			if falsy(w) {
				v = "0"
			}
		}
	}
	return v
}

func (e *exprParser) and() string {
	v := e.compare()
	for e.peek() == "&" {
		e.next()
		if w := e.compare(); falsy(v) || falsy(w) {
			v = "0"
		}
	}
	return v
}

func (e *exprParser) compare() string {
	v := e.sum()
	for {
		op := e.peek()
		if op != "=" && op != "==" && op != "!=" && op != "<" && op != "<=" && op != ">" && op != ">=" {
			return v
		}
		e.next()
		w := e.sum()
		c := strings.Compare(v, w)
		if a, ok := integer(v); ok {
			if b, ok := integer(w); ok {
				c = a.Cmp(b)
			}
		}
		is := map[string]bool{"=": c == 0, "==": c == 0, "!=": c != 0, "<": c < 0, "<=": c <= 0, ">": c > 0, ">=": c >= 0}[op]
		v = map[bool]string{true: "1", false: "0"}[is]
	}
}

func integer(s string) (*big.Int, bool) {
	digits := strings.TrimPrefix(s, "-")
	if digits == "" || len(digits) > 1000 || strings.Trim(digits, "0123456789") != "" {
		return nil, false
	}
	return new(big.Int).SetString(s, 10)
}

func (e *exprParser) sum() string {
	v := e.product()
	for e.peek() == "+" || e.peek() == "-" {
		op := e.next()
		a, b := e.two(v, e.product())
		if op == "+" {
			v = a.Add(a, b).String()
		} else {
			v = a.Sub(a, b).String()
		}
	}
	return v
}

func (e *exprParser) product() string {
	v := e.match()
	for e.peek() == "*" || e.peek() == "/" || e.peek() == "%" {
		op := e.next()
		a, b := e.two(v, e.match())
		switch {
		case op == "*":
			v = a.Mul(a, b).String()
			continue
		case b.Sign() == 0:
			e.t.fatal(2, "division by zero")
		case op == "/":
			v = a.Quo(a, b).String()
		default:
			v = a.Rem(a, b).String()
		}
	}
	return v
}

func (e *exprParser) two(v, w string) (a, b *big.Int) {
	a, okA := integer(v)
	b, okB := integer(w)
	if !okA || !okB {
		e.t.fatal(2, "non-integer argument")
	}
	return a, b
}

func (e *exprParser) match() string {
	v := e.primary()
	for e.peek() == ":" {
		e.next()
		v = e.matches(v, e.primary())
	}
	return v
}

// matches evaluates the operator ":", whose pattern is a basic regular expression anchored at the
// start.
func (e *exprParser) matches(s, pattern string) string {
	re, err := posixre.Compile(pattern, posixre.Options{})
	if err != nil {
		e.t.fatal(2, "%v", err)
	}
	m := re.Find(s)
	ok := m != nil && m[0] == 0
	if re.Groups() > 0 {
		if !ok || m[2] < 0 {
			return ""
		}
		return s[m[2]:m[3]]
	}
	if !ok {
		return "0"
	}
	return fmt.Sprint(utf8.RuneCountInString(s[:m[1]]))
}

func (e *exprParser) primary() string {
	if e.depth++; e.depth > 1000 {
		e.t.fatal(2, "expression is nested too deeply")
	}
	defer func() { e.depth-- }()
	a := e.next()
	if len(e.args) == 0 && a != "(" {
		return a
	}
	switch a {
	case "(":
		v := e.or()
		if e.next() != ")" {
			e.t.fatal(2, "syntax error: expecting ')'")
		}
		return v
	case "+":
		return e.next()
	case "length":
		return fmt.Sprint(utf8.RuneCountInString(e.primary()))
	case "match":
		s := e.primary()
		return e.matches(s, e.primary())
	case "index":
		s, set := e.primary(), e.primary()
		for i, r := range []rune(s) {
			if strings.ContainsRune(set, r) {
				return fmt.Sprint(i + 1)
			}
		}
		return "0"
	case "substr":
		s := []rune(e.primary())
		pos, n := e.two(e.primary(), e.primary())
		from, count := pos.Int64(), n.Int64()
		if from < 1 || count < 1 || from > int64(len(s)) {
			return ""
		}
		return string(s[from-1 : min(int64(len(s)), from-1+count)])
	}
	return a
}
