package awk

import (
	"math"
	"strconv"
	"strings"

	"github.com/sandbar-dev/sandbar/internal/wasm/shell/format"
)

type valueKind uint8

const (
	kindNone  valueKind = iota // never set
	kindNum                    // n
	kindStr                    // s
	kindInput                  // s, from input: compares as a number if it looks like one
)

// value is a number or a string.
type value struct {
	kind valueKind
	n    float64
	s    string
}

func num(n float64) value  { return value{kind: kindNum, n: n} }
func str(s string) value   { return value{kind: kindStr, s: s} }
func input(s string) value { return value{kind: kindInput, s: s} }

func boolean(b bool) value {
	if b {
		return num(1)
	}
	return num(0)
}

// number returns the value as a number; for a string, the number at its beginning, or 0.
func (v value) number() float64 {
	if v.kind == kindNum {
		return v.n
	}
	return prefixNumber(v.s)
}

func prefixNumber(s string) float64 {
	s = strings.TrimLeft(s, " \t\n\r\f\v")
	sign := ""
	if s != "" && (s[0] == '+' || s[0] == '-') {
		sign, s = s[:1], s[1:]
	}
	n := numberLength(s)
	f, _ := strconv.ParseFloat(sign+s[:n], 64)
	return f
}

// looksNumeric reports whether s is a number surrounded by blanks.
func looksNumeric(s string) (float64, bool) {
	s = strings.Trim(s, " \t\n\r\f\v")
	sign := ""
	if s != "" && (s[0] == '+' || s[0] == '-') {
		sign, s = s[:1], s[1:]
	}
	if s == "" || numberLength(s) != len(s) {
		return 0, false
	}
	f, _ := strconv.ParseFloat(sign+s, 64)
	return f, true
}

// numeric reports whether the value compares as a number.
func (v value) numeric() (float64, bool) {
	switch v.kind {
	case kindNum:
		return v.n, true
	case kindNone:
		return 0, true
	case kindInput:
		return looksNumeric(v.s)
	}
	return 0, false
}

// truth returns the value as a condition.
func (v value) truth() bool {
	switch v.kind {
	case kindNum:
		return v.n != 0
	case kindInput:
		if n, ok := looksNumeric(v.s); ok {
			return n != 0
		}
	}
	return v.s != ""
}

// text returns the value as a string. conv is the format for numbers that are not integers.
func (v value) text(conv string) string {
	if v.kind != kindNum {
		return v.s
	}
	return numberText(v.n, conv)
}

func numberText(n float64, conv string) string {
	switch {
	case n == math.Trunc(n) && math.Abs(n) < 1e16:
		return strconv.FormatInt(int64(n), 10)
	case math.IsNaN(n):
		if math.Signbit(n) {
			return "-nan"
		}
		return "nan"
	case math.IsInf(n, 1):
		return "inf"
	case math.IsInf(n, -1):
		return "-inf"
	}
	if before, rest, ok := strings.Cut(conv, "%"); ok {
		if sp, k := format.Parse(rest, func() int { return 0 }); k > 0 {
			if strings.IndexByte("di", sp.Verb) >= 0 {
				return before + sp.Int(int64(n)) + rest[k:]
			}
			return before + sp.Float(n) + rest[k:]
		}
	}
	return format.Spec{Prec: 6, Verb: 'g'}.Float(n)
}

// array is an associative array.
type array struct{ m map[string]value }

func newArray() *array { return &array{m: map[string]value{}} }

// cell is a variable: a value, an array, or undefined. If an undefined variable is passed to a
// function that uses it as an array, it becomes an array for the caller, too.
type cell struct {
	v   value
	arr *array
	up  *cell
}

func (c *cell) array(name string) *array {
	if c.arr == nil {
		if c.v.kind != kindNone {
			throw("%s is used as an array but is none", name)
		}
		if c.up != nil {
			c.arr = c.up.array(name)
		} else {
			c.arr = newArray()
		}
	}
	return c.arr
}
