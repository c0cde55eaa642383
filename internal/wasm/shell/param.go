package shell

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"

	"github.com/sandbar-dev/sandbar/internal/wasm/shell/format"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/glob"
)

// expansion is the value of a parameter during expansion: one string, or a list for $@ and arrays.
type expansion struct {
	set    bool
	list   []string
	isList bool
	star   bool // a list that is joined to one string in quotes ($*)
}

func scalar(v string, set bool) expansion { return expansion{set: set, list: []string{v}} }

func (e expansion) isNull() bool { return len(e.list) == 0 || len(e.list) == 1 && e.list[0] == "" }

// param expands $name and all forms of ${…}.
func (s *shell) param(b *fieldBuilder, p *syntax.ParamExp, quoted bool) {
	defer s.nest()()
	if p.Names != 0 {
		s.emit(b, s.variableNames(p), quoted)
		return
	}
	if p.Param == nil || p.Width || p.Flags != nil || p.NestedParam != nil || len(p.Modifiers) > 0 {
		s.fatal(2, "bad substitution")
	}
	v := s.lookup(p)
	if p.Exp != nil && s.alternative(b, p, v, quoted) {
		return
	}
	if !v.set && s.opts.nounset && !(v.isList && (p.Param.Value == "@" || p.Param.Value == "*")) && !isDefault(p) {
		s.fatal(2, "%s: parameter not set", p.Param.Value)
	}
	switch {
	case p.Length:
		v = s.length(v)
	case p.Slice != nil:
		v = s.slice(p, v)
	case p.Repl != nil:
		v = s.replaceAll(p.Repl, v)
	case p.Exp != nil && !isDefault(p):
		v = s.operate(p, v)
	}
	s.emit(b, v, quoted)
}

// isDefault reports whether an expansion has a word for an unset variable.
func isDefault(p *syntax.ParamExp) bool {
	if p.Exp == nil {
		return false
	}
	switch p.Exp.Op {
	case syntax.AlternateUnset, syntax.AlternateUnsetOrNull, syntax.DefaultUnset, syntax.DefaultUnsetOrNull,
		syntax.ErrorUnset, syntax.ErrorUnsetOrNull, syntax.AssignUnset, syntax.AssignUnsetOrNull:
		return true
	}
	return false
}

// emit adds a value to the fields.
func (s *shell) emit(b *fieldBuilder, v expansion, quoted bool) {
	switch {
	case !v.isList && quoted:
		b.add(first(v.list), true)
	case !v.isList:
		b.value(first(v.list))
	case v.star && quoted, !b.split && !quoted && v.star:
		sep := " "
		if ifs, ok := s.get("IFS"); ok {
			sep = ifs
			if len(sep) > 1 {
				sep = sep[:1]
			}
		}
		b.add(strings.Join(v.list, sep), true)
	case quoted:
		for i, item := range v.list {
			if i > 0 {
				b.flush(true)
			}
			b.add(item, true)
		}
	default:
		for i, item := range v.list {
			if i > 0 {
				b.flush(false)
			}
			b.value(item)
		}
	}
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// lookup returns the value of the parameter before operators are applied.
func (s *shell) lookup(p *syntax.ParamExp) expansion {
	name := p.Param.Value
	if p.Excl && p.Index == nil {
		ref, ok := s.special(name)
		if !ok {
			ref, _ = s.get(name)
		}
		if v := s.vars[name]; v != nil && v.ref {
			return scalar(v.str, true)
		}
		if base, index, ok := strings.Cut(ref, "["); ok && strings.HasSuffix(index, "]") {
			return s.element(base, strings.TrimSuffix(index, "]"))
		}
		if ref == "" {
			s.fatal(1, "%s: invalid indirect expansion", name)
		}
		name = ref
	}
	if p.Index != nil {
		return s.indexed(p)
	}
	switch name {
	case "@", "*":
		return expansion{set: len(s.params) > 0, list: s.params, isList: true, star: name == "*"}
	}
	if v, ok := s.special(name); ok {
		return scalar(v, true)
	}
	if n, err := strconv.Atoi(name); err == nil {
		if n >= 1 && n <= len(s.params) {
			return scalar(s.params[n-1], true)
		}
		return scalar("", false)
	}
	v, ok := s.get(name)
	return scalar(v, ok)
}

// special returns a special parameter (sh(1)).
func (s *shell) special(name string) (string, bool) {
	switch name {
	case "#":
		return strconv.Itoa(len(s.params)), true
	case "?":
		return strconv.Itoa(s.status & 0xff), true
	case "$":
		return strconv.Itoa(s.mainPID), true
	case "!":
		if len(s.jobs) == 0 {
			return "", s.lastBG != 0
		}
		return strconv.Itoa(s.lastBG), true
	case "-":
		return s.opts.letters(), true
	case "0":
		return s.name, true
	case "_":
		return s.lastArg, true
	case "PPID":
		if p := s.sys.find(s.mainPID); p != nil && p.parent != nil {
			return strconv.Itoa(p.parent.pid), true
		}
		return "1", true
	}
	return "", false
}

// indexed expands ${name[index]}.
func (s *shell) indexed(p *syntax.ParamExp) expansion {
	name := s.target(p.Param.Value)
	if w, ok := p.Index.(*syntax.Word); ok {
		if lit := w.Lit(); lit == "@" || lit == "*" {
			e := expansion{isList: true, star: lit == "*"}
			if list, ok := s.computedList(name); ok {
				e.list = list
			} else if v := s.vars[name]; v != nil {
				e.list = v.values()
				if p.Excl {
					e.list = v.keys()
				}
			}
			e.set = len(e.list) > 0
			return e
		}
	}
	return s.element(name, s.indexKey(name, p.Index))
}

// indexKey evaluates an index: a string for an associative array, a number for an indexed one.
func (s *shell) indexKey(name string, index syntax.ArithmExpr) string {
	if v := s.vars[s.target(name)]; v != nil && v.dict != nil {
		if w, ok := index.(*syntax.Word); ok {
			return s.literal(w)
		}
		return printedArithm(index)
	}
	return strconv.FormatInt(s.arith(index), 10)
}

// printedArithm returns the text of an expression that was parsed as arithmetic but is the key of
// an associative array.
func printedArithm(x syntax.ArithmExpr) string {
	text := printed(&syntax.ArithmCmd{X: x})
	return strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(text, "(("), "))"), " ", "")
}

// computedList returns the value of an array that the shell itself maintains.
func (s *shell) computedList(name string) ([]string, bool) {
	var list []string
	switch name {
	case "PIPESTATUS":
		for _, st := range s.pipeStatus {
			list = append(list, strconv.Itoa(st))
		}
	case "FUNCNAME":
		list = slices.Clone(s.funcNames)
		slices.Reverse(list)
	default:
		return nil, false
	}
	return list, true
}

// element returns one element of an array.
func (s *shell) element(name, key string) expansion {
	v := s.vars[s.target(name)]
	if list, ok := s.computedList(name); ok {
		if i := s.number(key); i >= 0 && i < len(list) {
			return scalar(list[i], true)
		}
		return scalar("", false)
	}
	switch {
	case v == nil:
		return scalar("", false)
	case key == "@" || key == "*":
		return expansion{set: v.set, list: v.values(), isList: true, star: key == "*"}
	case v.dict != nil:
		str, ok := v.dict[key]
		return scalar(str, ok)
	}
	i := int(s.arithText(key))
	if v.list == nil {
		str, ok := v.scalar()
		return scalar(str, ok && (i == 0 || i == -1))
	}
	if i < 0 {
		i += v.next()
	}
	str, ok := v.list[i]
	return scalar(str, ok)
}

// alternative handles the operators for unset or null parameters (-, =, ?, +). It reports whether
// the word, or nothing, replaces the value.
func (s *shell) alternative(b *fieldBuilder, p *syntax.ParamExp, v expansion, quoted bool) bool {
	missing := !v.set
	switch p.Exp.Op {
	case syntax.AlternateUnsetOrNull, syntax.DefaultUnsetOrNull, syntax.ErrorUnsetOrNull, syntax.AssignUnsetOrNull:
		missing = missing || v.isNull()
	}
	switch p.Exp.Op {
	case syntax.AlternateUnset, syntax.AlternateUnsetOrNull:
		if !missing {
			s.alternativeWord(b, p.Exp.Word, quoted)
		} else if quoted && !v.isList {
			b.add("", true)
		}
		return true
	case syntax.DefaultUnset, syntax.DefaultUnsetOrNull:
		if missing {
			s.alternativeWord(b, p.Exp.Word, quoted)
		}
		return missing
	case syntax.AssignUnset, syntax.AssignUnsetOrNull:
		if !missing {
			return false
		}
		if !syntax.ValidName(p.Param.Value) {
			s.fatal(2, "%s: cannot assign in this way", p.Param.Value)
		}
		value := s.literal(p.Exp.Word)
		if p.Index != nil {
			s.setElem(p.Param.Value, s.indexKey(p.Param.Value, p.Index), value)
		} else {
			s.setVar(p.Param.Value, value)
		}
		s.emit(b, scalar(value, true), quoted)
		return true
	case syntax.ErrorUnset, syntax.ErrorUnsetOrNull:
		if !missing {
			return false
		}
		text := s.literal(p.Exp.Word)
		if text == "" {
			text = "parameter not set"
			if p.Exp.Op == syntax.ErrorUnsetOrNull {
				text = "parameter not set or null"
			}
		}
		s.fatal(2, "%s: %s", p.Param.Value, text)
	}
	return false
}

// alternativeWord expands the word in ${name-word}. Outside of quotes, the result is split.
func (s *shell) alternativeWord(b *fieldBuilder, w *syntax.Word, quoted bool) {
	if w == nil {
		if quoted {
			b.add("", true)
		}
		return
	}
	if quoted {
		s.quotedParts(b, w.Parts, false)
		return
	}
	for i, part := range w.Parts {
		lit, ok := part.(*syntax.Lit)
		if !ok || strings.Contains(lit.Value, `\`) || strings.HasPrefix(lit.Value, "~") {
			if ok && i == 0 {
				s.litWithTilde(b, lit.Value, true, len(w.Parts) == 1, wordPlain)
			} else {
				s.part(b, part)
			}
			continue
		}
		b.value(lit.Value)
	}
}

// length expands ${#name}.
func (s *shell) length(v expansion) expansion {
	if v.isList {
		return scalar(strconv.Itoa(len(v.list)), true)
	}
	return scalar(strconv.Itoa(utf8.RuneCountInString(first(v.list))), true)
}

// slice expands ${name:offset:length}, of a string or a list.
func (s *shell) slice(p *syntax.ParamExp, v expansion) expansion {
	from := 0
	if p.Slice.Offset != nil {
		from = int(s.arith(p.Slice.Offset))
	}
	if v.isList {
		list := v.list
		if name := p.Param.Value; name == "@" || name == "*" {
			list = append([]string{s.name}, list...)
			if from == 0 && p.Slice.Length == nil {
				list, from = v.list, 0
			}
		} else if from > 0 {
			from = s.position(p.Param.Value, from)
		}
		lo, hi := s.sliceBounds(p, from, len(list))
		v.list = list[lo:hi]
		return v
	}
	runes := []rune(first(v.list))
	lo, hi := s.sliceBounds(p, from, len(runes))
	return scalar(string(runes[lo:hi]), v.set)
}

// position returns the number of elements before an index.
func (s *shell) position(name string, index int) int {
	v := s.vars[s.target(name)]
	if v == nil || v.list == nil {
		return index
	}
	n := 0
	for k := range v.list {
		if k < index {
			n++
		}
	}
	return n
}

func (s *shell) sliceBounds(p *syntax.ParamExp, from, n int) (lo, hi int) {
	if from < 0 {
		if from += n; from < 0 {
			return 0, 0
		}
	}
	lo, hi = min(from, n), n
	if p.Slice.Length == nil {
		return lo, hi
	}
	count := int(s.arith(p.Slice.Length))
	if count < 0 {
		return lo, max(lo, n+count)
	}
	return lo, min(n-lo, count) + lo
}

// operate applies an operator to each element of a value.
func (s *shell) operate(p *syntax.ParamExp, v expansion) expansion {
	pattern := s.pattern(p.Exp.Word)
	out := v
	out.list = make([]string, len(v.list))
	for i, item := range v.list {
		s.p.check()
		out.list[i] = s.operateOne(p.Exp.Op, pattern, item, p)
	}
	return out
}

func (s *shell) operateOne(op syntax.ParExpOperator, pattern, v string, p *syntax.ParamExp) string {
	pat := glob.Compile(pattern, glob.Options{Extended: true, Fold: s.opts.nocasematch})
	switch op {
	case syntax.RemSmallPrefix, syntax.RemLargePrefix:
		return s.removePrefix(pat, v, op == syntax.RemLargePrefix)
	case syntax.RemSmallSuffix, syntax.RemLargeSuffix:
		return s.removeSuffix(pat, v, op == syntax.RemLargeSuffix)
	case syntax.UpperFirst, syntax.UpperAll, syntax.LowerFirst, syntax.LowerAll:
		return changeCase(op, pat, pattern, v)
	case syntax.OtherParamOps:
		switch pattern {
		case "Q":
			return singleQuote(v)
		case "U":
			return strings.ToUpper(v)
		case "u":
			return changeCase(syntax.UpperFirst, pat, "", v)
		case "L":
			return strings.ToLower(v)
		case "E":
			return format.Unquote(v)
		case "A":
			if variable := s.vars[p.Param.Value]; variable != nil {
				return variable.declaration(p.Param.Value)
			}
		}
	}
	s.fatal(2, "bad substitution")
	return ""
}

// borders returns the offsets of the characters of v and its length.
func borders(v string) []int {
	var at []int
	for i := range v {
		at = append(at, i)
	}
	return append(at, len(v))
}

func (s *shell) removePrefix(pat *glob.Pattern, v string, longest bool) string {
	at := borders(v)
	if longest {
		slices.Reverse(at)
	}
	for _, i := range at {
		s.p.check()
		if pat.Match(v[:i]) {
			return v[i:]
		}
	}
	return v
}

func (s *shell) removeSuffix(pat *glob.Pattern, v string, longest bool) string {
	at := borders(v)
	if !longest {
		slices.Reverse(at)
	}
	for _, i := range at {
		s.p.check()
		if pat.Match(v[i:]) {
			return v[:i]
		}
	}
	return v
}

func changeCase(op syntax.ParExpOperator, pat *glob.Pattern, pattern, v string) string {
	to := unicode.ToUpper
	if op == syntax.LowerFirst || op == syntax.LowerAll {
		to = unicode.ToLower
	}
	all := op == syntax.UpperAll || op == syntax.LowerAll
	var b strings.Builder
	for i, r := range v {
		if (i == 0 || all) && (pattern == "" || pat.Match(string(r))) {
			r = to(r)
		}
		b.WriteRune(r)
	}
	return b.String()
}

// replaceAll expands ${name/pattern/with}.
func (s *shell) replaceAll(r *syntax.Replace, v expansion) expansion {
	pattern, with := s.pattern(r.Orig), s.literal(r.With)
	out := v
	out.list = make([]string, len(v.list))
	for i, item := range v.list {
		out.list[i] = s.replaceOne(pattern, with, r.All, item)
	}
	return out
}

func (s *shell) replaceOne(pattern, with string, all bool, v string) string {
	o := glob.Options{Extended: true, Fold: s.opts.nocasematch}
	switch {
	case pattern == "":
		return v
	case !all && strings.HasPrefix(pattern, "#"):
		return s.anchored(glob.Compile(pattern[1:], o), with, v, true)
	case !all && strings.HasPrefix(pattern, "%"):
		return s.anchored(glob.Compile(pattern[1:], o), with, v, false)
	}
	pat := glob.Compile(pattern, o)
	if text, ok := pat.Literal(); ok {
		n := 1
		if all {
			n = -1
		}
		s.bound(len(v) + strings.Count(v, text)*len(with))
		return strings.Replace(v, text, with, n)
	}
	if v == "" && pat.Match("") {
		return with
	}
	var b strings.Builder
	for v != "" {
		s.p.check()
		s.bound(b.Len())
		at := borders(v)
		slices.Reverse(at)
		end := slices.IndexFunc(at, func(i int) bool { return i > 0 && pat.Match(v[:i]) })
		if end < 0 {
			_, n := utf8.DecodeRuneInString(v)
			b.WriteString(v[:n])
			v = v[n:]
			continue
		}
		b.WriteString(with)
		v = v[at[end]:]
		if !all {
			break
		}
	}
	b.WriteString(v)
	return b.String()
}

// anchored replaces the longest match at the start (front) or the end.
func (s *shell) anchored(pat *glob.Pattern, with, v string, front bool) string {
	at := borders(v)
	if front {
		slices.Reverse(at)
	}
	for _, i := range at {
		s.p.check()
		if front && pat.Match(v[:i]) {
			return with + v[i:]
		}
		if !front && pat.Match(v[i:]) {
			return v[:i] + with
		}
	}
	return v
}

// variableNames expands ${!prefix*}.
func (s *shell) variableNames(p *syntax.ParamExp) expansion {
	e := expansion{set: true, isList: true, star: p.Names == syntax.NamesPrefix}
	for name, v := range s.vars {
		if v.set && strings.HasPrefix(name, p.Param.Value) {
			e.list = append(e.list, name)
		}
	}
	slices.Sort(e.list)
	return e
}
