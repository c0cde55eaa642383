package shell

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// assign executes an assignment in any of its forms.
func (s *shell) assign(a *syntax.Assign, export bool) {
	name := a.Name.Value
	switch {
	case a.Array != nil:
		s.assignArray(name, a, false)
	case a.Index != nil:
		key := s.indexKey(name, a.Index)
		value := s.assigned(a.Value)
		if a.Append {
			value = first(s.element(name, key).list) + value
		}
		s.setElem(name, key, value)
	default:
		value := s.assigned(a.Value)
		if a.Append {
			old, _ := s.get(name)
			if v := s.vars[s.target(name)]; v != nil && v.integer {
				value = strconv.FormatInt(s.arithText(old)+s.arithText(value), 10)
			} else {
				value = old + value
			}
		}
		s.setVar(name, value)
	}
	if export {
		s.writable(name).exported = true
	}
}

// assignArray executes name=(…) and name+=(…).
func (s *shell) assignArray(name string, a *syntax.Assign, dict bool) {
	v := s.writable(name)
	dict = dict || v.dict != nil
	if !a.Append {
		v.list, v.dict, v.str = nil, nil, ""
	}
	// The new elements may refer to the old value.
	fresh := &variable{list: maps.Clone(v.list), dict: maps.Clone(v.dict)}
	if dict && fresh.dict == nil {
		fresh.dict = map[string]string{}
	}
	if !dict && fresh.list == nil {
		fresh.list = map[int]string{}
		if a.Append && v.set {
			fresh.list[0] = v.str
		}
	}
	next := fresh.next()
	for _, e := range a.Array.Elems {
		switch {
		case e.Index != nil && dict:
			key := ""
			if w, ok := e.Index.(*syntax.Word); ok {
				key = s.literal(w)
			} else {
				key = printedArithm(e.Index)
			}
			fresh.dict[key] = s.assigned(e.Value)
		case e.Index != nil:
			next = int(s.arith(e.Index))
			if next < 0 {
				s.fatal(1, "%s: bad array subscript", name)
			}
			fresh.list[next] = s.assigned(e.Value)
			next++
		default:
			for _, field := range s.fields(e.Value) {
				fresh.list[next] = field
				next++
			}
		}
	}
	v.list, v.dict, v.str, v.set = fresh.list, fresh.dict, "", true
}

// declareFlags are the options of declare, typeset, export, readonly, local and nameref.
type declareFlags struct {
	array, dict, integer, lower, upper, ref, readonly, export, global, print, funcs bool
	off                                                                             bool // + instead of -: the attributes are removed
}

// declare executes export, readonly, local, declare, typeset and nameref.
func (s *shell) declare(c *syntax.DeclClause) {
	variant := c.Variant.Value
	s.status = 0
	s.substStatus = -1
	flags := declareFlags{export: variant == "export", readonly: variant == "readonly", ref: variant == "nameref"}
	var assigns []*syntax.Assign
	options := true
	for _, a := range s.flatten(c.Args) {
		word := a.Name.Value
		if options && a.Naked && len(word) > 1 && (word[0] == '-' || word[0] == '+') {
			if word == "--" {
				options = false
			} else if variant == "export" && word == "-n" {
				flags.export, flags.off = false, true
			} else if !flags.parse(word) {
				s.status = s.failure(2, "%s: %s: invalid option", variant, word)
				return
			}
			continue
		}
		options = false
		assigns = append(assigns, a)
	}
	if variant == "local" && len(s.frames) == 0 {
		s.status = s.failure(1, "local: not in a function")
		return
	}
	local := variant == "local" || (variant == "declare" || variant == "typeset") && len(s.frames) > 0 && !flags.global
	if len(assigns) == 0 || flags.print {
		s.printDeclared(variant, flags, assigns)
		return
	}
	for _, a := range assigns {
		s.declareOne(variant, a, flags, local)
	}
	if s.status == 0 && s.substStatus > 0 && (variant == "export" || variant == "readonly" || variant == "local") {
		// As in dash and bash: the status is that of the declaration, which succeeded.
		s.status = 0
	}
}

// declareWords is declare for expanded arguments, as after "command".
func (s *shell) declareWords(args []string) int {
	c := &syntax.DeclClause{Variant: &syntax.Lit{Value: args[0]}}
	for _, a := range args[1:] {
		word := &syntax.Word{Parts: []syntax.WordPart{&syntax.SglQuoted{Value: a}}}
		c.Args = append(c.Args, &syntax.Assign{Naked: true, Value: word})
	}
	s.declare(c)
	return s.status
}

// parse parses a word of options.
func (f *declareFlags) parse(word string) bool {
	on := word[0] == '-'
	for _, r := range word[1:] {
		switch r {
		case 'a':
			f.array = on
		case 'A':
			f.dict = on
		case 'i':
			f.integer = on
		case 'l':
			f.lower = on
		case 'u':
			f.upper = on
		case 'n':
			f.ref, f.off = on, f.off || !on
		case 'r':
			f.readonly = on
		case 'x':
			f.export, f.off = on, f.off || !on
		case 'g':
			f.global = on
		case 'p':
			f.print = on
		case 'f', 'F':
			f.funcs = on
		default:
			return false
		}
	}
	return true
}

// flatten converts arguments that are words to assignments.
func (s *shell) flatten(args []*syntax.Assign) []*syntax.Assign {
	var out []*syntax.Assign
	for _, a := range args {
		if a.Name != nil {
			out = append(out, a)
			continue
		}
		for _, field := range s.fields(a.Value) {
			name, value, ok := strings.Cut(field, "=")
			b := &syntax.Assign{Name: &syntax.Lit{Value: name}, Naked: !ok}
			if ok {
				b.Value = &syntax.Word{Parts: []syntax.WordPart{&syntax.SglQuoted{Value: value}}}
			}
			out = append(out, b)
		}
	}
	return out
}

func (s *shell) declareOne(variant string, a *syntax.Assign, f declareFlags, local bool) {
	name := a.Name.Value
	if f.funcs {
		if body := s.funcs[name]; body == nil {
			s.status = 1
		} else if variant != "export" && variant != "readonly" {
			fmt.Fprintf(s.p.stream(1), "%s () %s\n", name, printed(body))
		}
		return
	}
	if !syntax.ValidName(name) {
		s.status = s.failure(2, "%s: %s: bad variable name", variant, name)
		return
	}
	// The value must be expanded before a local variable hides the name.
	value, hasValue := "", !a.Naked && a.Array == nil && a.Index == nil
	if hasValue {
		value = s.assigned(a.Value)
	}
	var v *variable
	if local {
		v = s.local(name)
	} else {
		v = s.vars[name]
		if v == nil || v.ref && !f.ref && !f.off {
			v = s.ownForDeclare(name)
		}
	}
	if v.readonly && (hasValue || a.Array != nil) {
		s.fatal(2, "%s: is read only", name)
	}
	f.apply(v)
	switch {
	case a.Array != nil:
		s.assignArray(name, a, f.dict)
	case a.Index != nil && !a.Naked:
		s.assign(a, false)
	case hasValue && f.ref:
		v.str, v.set, v.ref = value, true, true
	case hasValue:
		if a.Append {
			old, _ := s.get(name)
			value = old + value
		}
		s.setVar(name, value)
	}
	if f.readonly {
		v.readonly = true
	}
}

func (s *shell) ownForDeclare(name string) *variable {
	name = s.target(name)
	if s.vars[name] == nil {
		s.vars[name] = &variable{}
	}
	return s.vars[name]
}

// apply sets the attributes of a variable, except for readonly.
func (f declareFlags) apply(v *variable) {
	if f.off {
		v.exported = v.exported && f.export
		v.ref = v.ref && f.ref
	}
	v.exported = v.exported || f.export
	v.ref = v.ref || f.ref
	v.integer = v.integer || f.integer
	v.lower = v.lower || f.lower
	v.upper = v.upper || f.upper
	if f.dict && v.dict == nil {
		v.dict = map[string]string{}
	}
	if f.array && v.list == nil && v.dict == nil {
		v.list = map[int]string{}
		if v.set {
			v.list[0], v.str = v.str, ""
		}
	}
}

// printDeclared prints variables or functions as commands that define them.
func (s *shell) printDeclared(variant string, f declareFlags, only []*syntax.Assign) {
	out := s.p.stream(1)
	names := slices.Sorted(maps.Keys(s.vars))
	if len(only) > 0 {
		names = nil
		for _, a := range only {
			names = append(names, a.Name.Value)
		}
	}
	if f.funcs && len(only) == 0 {
		for _, name := range slices.Sorted(maps.Keys(s.funcs)) {
			fmt.Fprintf(out, "%s () %s\n", name, printed(s.funcs[name]))
		}
		return
	}
	for _, name := range names {
		v := s.vars[name]
		switch {
		case v == nil:
			s.status = s.failure(1, "%s: %s: not found", variant, name)
		case variant == "export" && v.exported, variant == "readonly" && v.readonly:
			line := variant + " " + name
			if str, ok := v.scalar(); ok {
				line += "=" + singleQuote(str)
			}
			fmt.Fprintln(out, line)
		case variant == "export", variant == "readonly":
		default:
			fmt.Fprintln(out, v.declaration(name))
		}
	}
}
