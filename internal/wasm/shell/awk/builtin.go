package awk

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandbar-dev/sandbar/internal/wasm/shell/format"
)

func (in *interp) builtin(c builtinCall) value {
	if v, ok := in.math(c); ok {
		return v
	}
	switch c.name {
	case "length":
		return in.length(c.args)
	case "substr":
		return in.substr(c.args)
	case "index":
		s, t := in.text(c.args[0]), in.text(c.args[1])
		i := strings.Index(s, t)
		if i < 0 {
			return num(0)
		}
		return num(float64(utf8.RuneCountInString(s[:i]) + 1))
	case "split":
		return in.splitCall(c.args)
	case "match":
		return in.match(c.args)
	case "sub", "gsub":
		return in.sub(c.args, c.name == "gsub")
	case "gensub":
		return in.gensub(c.args)
	case "sprintf":
		args := make([]value, len(c.args)-1)
		layout := in.text(c.args[0])
		for i, x := range c.args[1:] {
			args[i] = in.eval(x)
		}
		return in.str(in.sprintf(layout, args))
	case "tolower":
		return str(strings.ToLower(in.text(c.args[0])))
	case "toupper":
		return str(strings.ToUpper(in.text(c.args[0])))
	case "system":
		in.flushAll()
		return num(float64(in.env.Run(in.text(c.args[0]), nil, nil)))
	case "close":
		return num(in.closeStream(in.text(c.args[0])))
	case "fflush":
		in.flushAll()
		return num(0)
	case "systime":
		return num(float64(in.env.Time().Unix()))
	case "strftime":
		return in.strftime(c.args)
	case "mktime":
		return in.mktime(in.text(c.args[0]))
	case "strtonum":
		text := in.text(c.args[0])
		if n := hexLength(text); n > 0 {
			v, _ := strconv.ParseUint(text[2:n], 16, 64)
			return num(float64(v))
		}
		if len(text) > 1 && text[0] == '0' {
			if v, err := strconv.ParseUint(text, 8, 64); err == nil {
				return num(float64(v))
			}
		}
		return num(prefixNumber(text))
	case "asort", "asorti":
		return in.asort(c)
	}
	throw("function %s is not supported", c.name)
	return value{}
}

// math evaluates the arithmetic functions.
func (in *interp) math(c builtinCall) (value, bool) {
	arg := func(i int) float64 { return in.eval(c.args[i]).number() }
	bits := func(i int) uint64 { return uint64(max(0, arg(i))) }
	switch c.name {
	case "atan2":
		y := arg(0)
		return num(math.Atan2(y, arg(1))), true
	case "cos":
		return num(math.Cos(arg(0))), true
	case "sin":
		return num(math.Sin(arg(0))), true
	case "exp":
		return num(math.Exp(arg(0))), true
	case "log":
		return num(math.Log(arg(0))), true
	case "sqrt":
		return num(math.Sqrt(arg(0))), true
	case "int":
		return num(math.Trunc(arg(0))), true
	case "rand":
		in.seed = in.seed*6364136223846793005 + 1442695040888963407
		return num(float64(in.seed>>11) / (1 << 53)), true
	case "srand":
		old := in.lastSeed
		in.lastSeed = float64(in.env.Time().Unix())
		if len(c.args) > 0 {
			in.lastSeed = arg(0)
		}
		in.seed = math.Float64bits(in.lastSeed) * 2654435761
		return num(old), true
	case "and":
		return num(float64(bits(0) & bits(1))), true
	case "or":
		return num(float64(bits(0) | bits(1))), true
	case "xor":
		return num(float64(bits(0) ^ bits(1))), true
	case "lshift":
		return num(float64(bits(0) << (bits(1) & 63))), true
	case "rshift":
		return num(float64(bits(0) >> (bits(1) & 63))), true
	case "compl":
		return num(float64(^bits(0) & (1<<53 - 1))), true
	}
	return value{}, false
}

func (in *interp) length(args []expr) value {
	if len(args) == 0 {
		return num(float64(utf8.RuneCountInString(in.getRecord())))
	}
	if r, ok := args[0].(varRef); ok {
		c := in.cell(r)
		if c.arr == nil && c.up != nil && c.up.arr != nil {
			c.arr = c.up.arr
		}
		if c.arr != nil {
			return num(float64(len(c.arr.m)))
		}
	}
	return num(float64(utf8.RuneCountInString(in.text(args[0]))))
}

// substr implements substr with rounded positions, as POSIX specifies.
func (in *interp) substr(args []expr) value {
	s := in.text(args[0])
	from := math.RoundToEven(in.eval(args[1]).number())
	to := math.Inf(1)
	if len(args) > 2 {
		to = from + math.RoundToEven(in.eval(args[2]).number())
	}
	n := float64(utf8.RuneCountInString(s))
	from, to = max(from, 1), min(to, n+1)
	if !(from < to) { // also if one of them is NaN
		return str("")
	}
	if int(n) == len(s) {
		return str(s[int(from)-1 : int(to)-1])
	}
	return str(string([]rune(s)[int(from)-1 : int(to)-1]))
}

// target returns the array that an argument names.
func (in *interp) target(x expr) *array {
	r, ok := x.(varRef)
	if !ok {
		throw("an array is wanted")
	}
	return in.array(r)
}

func (in *interp) splitCall(args []expr) value {
	text := in.text(args[0])
	var parts []string
	switch {
	case len(args) < 3:
		parts = in.splitText(text, in.globals[varFS].v.s, false)
	default:
		if r, ok := args[2].(regexLit); ok {
			if text != "" {
				parts = splitRegex(text, r.re.All(text, -1))
			}
		} else {
			parts = in.splitText(text, in.text(args[2]), false)
		}
	}
	arr := in.target(args[1])
	clear(arr.m)
	for i, p := range parts {
		arr.m[strconv.Itoa(i+1)] = input(p)
	}
	return num(float64(len(parts)))
}

func (in *interp) match(args []expr) value {
	s := in.text(args[0])
	m := in.regex(args[1]).Find(s)
	start, length := 0, -1
	if m != nil {
		start = utf8.RuneCountInString(s[:m[0]]) + 1
		length = utf8.RuneCountInString(s[m[0]:m[1]])
	}
	in.globals[varRSTART].v, in.globals[varRLENGTH].v = num(float64(start)), num(float64(length))
	if len(args) > 2 {
		arr := in.target(args[2])
		clear(arr.m)
		for i := 0; i+1 < len(m); i += 2 {
			if m[i] >= 0 {
				arr.m[strconv.Itoa(i/2)] = input(s[m[i]:m[i+1]])
			}
		}
	}
	return num(float64(start))
}

// sub implements sub and gsub.
func (in *interp) sub(args []expr, all bool) value {
	re, with := in.regex(args[0]), in.text(args[1])
	var target expr = fieldRef{numLit{num(0)}}
	if len(args) > 2 {
		target = args[2]
	}
	s := in.text(target)
	var b strings.Builder
	at, count := 0, 0
	for m := range re.Each(s) {
		if count++; count%1024 == 0 {
			in.env.Check()
		}
		b.WriteString(s[at:m[0]])
		substitute(&b, with, s[m[0]:m[1]])
		at = m[1]
		if b.Len() > maxString {
			throw("string is too long")
		}
		if !all {
			break
		}
	}
	if count == 0 {
		return num(0)
	}
	b.WriteString(s[at:])
	if isLvalue(target) {
		in.set(target, in.str(b.String()))
	}
	return num(float64(count))
}

// substitute writes a replacement: & is the match, \& an ampersand.
func substitute(b *strings.Builder, with, match string) {
	for i := 0; i < len(with); i++ {
		switch {
		case with[i] == '\\' && i+1 < len(with) && (with[i+1] == '&' || with[i+1] == '\\'):
			i++
			b.WriteByte(with[i])
		case with[i] == '&':
			b.WriteString(match)
		default:
			b.WriteByte(with[i])
		}
	}
}

// gensub implements gensub: \1 to \9 are groups; "g" or a number selects the matches.
func (in *interp) gensub(args []expr) value {
	re, with, how := in.regex(args[0]), in.text(args[1]), in.eval(args[2])
	s := in.getRecord()
	if len(args) > 3 {
		s = in.text(args[3])
	}
	which := int(how.number())
	text := how.text(in.convfmt())
	all := strings.HasPrefix(text, "g") || strings.HasPrefix(text, "G")
	which = max(which, 1)
	var b strings.Builder
	at := 0
	count := 0
	for m := range re.Each(s) {
		if count++; !all && count != which {
			continue
		}
		b.WriteString(s[at:m[0]])
		at = m[1]
		for k := 0; k < len(with); k++ {
			group := -1
			switch {
			case with[k] == '&':
				group = 0
			case with[k] == '\\' && k+1 < len(with):
				k++
				if isDigit(with[k]) {
					group = int(with[k] - '0')
				}
			}
			switch {
			case group >= 0 && 2*group+1 < len(m) && m[2*group] >= 0:
				b.WriteString(s[m[2*group]:m[2*group+1]])
			case group < 0:
				b.WriteByte(with[k])
			}
		}
		if b.Len() > maxString {
			throw("string is too long")
		}
	}
	b.WriteString(s[at:])
	return in.str(b.String())
}

// sprintf formats as printf does.
func (in *interp) sprintf(layout string, args []value) string {
	var b strings.Builder
	next := func() value {
		if len(args) == 0 {
			return value{}
		}
		v := args[0]
		args = args[1:]
		return v
	}
	for i := 0; i < len(layout); i++ {
		if layout[i] != '%' {
			b.WriteByte(layout[i])
			continue
		}
		if strings.HasPrefix(layout[i+1:], "%") {
			b.WriteByte('%')
			i++
			continue
		}
		sp, n := format.Parse(layout[i+1:], func() int { return int(next().number()) })
		if n == 0 {
			b.WriteString(layout[i:])
			break
		}
		text, ok := in.convert(sp, next)
		if !ok {
			text = layout[i : i+1+n]
		}
		b.WriteString(text)
		i += n
		if b.Len() > maxString {
			throw("string is too long")
		}
	}
	return b.String()
}

func (in *interp) convert(sp format.Spec, next func() value) (string, bool) {
	switch sp.Verb {
	case 'd', 'i':
		f := math.Trunc(next().number())
		if math.Abs(f) >= 1<<63 || f != f {
			sp.Verb, sp.Prec = 'f', 0
			return sp.Float(f), true
		}
		return sp.Int(int64(f)), true
	case 'o', 'x', 'X', 'u':
		f := math.Trunc(next().number())
		if f < 0 {
			return sp.Uint(uint64(int64(max(f, -1<<63)))), true
		}
		return sp.Uint(uint64(min(f, 1<<63))), true
	case 'e', 'E', 'f', 'F', 'g', 'G', 'a', 'A':
		return sp.Float(next().number()), true
	case 's':
		return sp.String(next().text(in.convfmt())), true
	case 'c':
		sp.Prec = -1
		v := next()
		if n, ok := v.numeric(); ok && v.kind != kindNone {
			if n >= 128 && n <= utf8.MaxRune {
				return sp.String(string(rune(n))), true
			}
			return sp.String(string([]byte{byte(int(n))})), true
		}
		text := v.text(in.convfmt())
		if text != "" {
			_, w := utf8.DecodeRuneInString(text)
			text = text[:w]
		}
		return sp.String(text), true
	}
	return "", false
}

func (in *interp) strftime(args []expr) value {
	layout, when, zone := "%a %b %e %H:%M:%S %Z %Y", in.env.Time(), in.env.Zone
	if len(args) > 0 {
		layout = in.text(args[0])
	}
	if len(args) > 1 {
		when = time.Unix(int64(in.eval(args[1]).number()), 0)
	}
	if len(args) > 2 && in.eval(args[2]).truth() {
		zone = time.UTC
	}
	return str(in.env.Strftime(layout, when.In(zone)))
}

// mktime parses "YYYY MM DD HH MM SS".
func (in *interp) mktime(text string) value {
	var n [6]int
	words := strings.Fields(text)
	if len(words) < 6 {
		return num(-1)
	}
	for i := range n {
		v, err := strconv.Atoi(words[i])
		if err != nil {
			return num(-1)
		}
		n[i] = v
	}
	return num(float64(time.Date(n[0], time.Month(n[1]), n[2], n[3], n[4], n[5], 0, in.env.Zone).Unix()))
}

// asort implements asort and asorti: it replaces an array by its sorted values or keys, numbered
// from 1.
func (in *interp) asort(c builtinCall) value {
	src := in.target(c.args[0])
	dst := src
	if len(c.args) > 1 {
		dst = in.target(c.args[1])
	}
	var items []value
	for _, k := range sortedKeys(src) {
		if c.name == "asorti" {
			items = append(items, str(k))
		} else {
			items = append(items, src.m[k])
		}
	}
	slices.SortStableFunc(items, func(a, b value) int {
		switch {
		case in.compare("<", a, b):
			return -1
		case in.compare(">", a, b):
			return 1
		}
		return 0
	})
	clear(dst.m)
	for i, v := range items {
		dst.m[strconv.Itoa(i+1)] = v
	}
	return num(float64(len(items)))
}
