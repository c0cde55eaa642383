package tools

import "strings"

// option is one option of a utility.
type option struct {
	names    []string // letters and long names
	takes    bool     // the option takes a value
	optional bool     // the value is optional, and in the same argument
	set      func(value string)
}

// options parses the options of a utility, also after operands, like getopt_long(3), and returns
// the operands. specs are pairs of a name and a target.
//
// The name has letters and long names. ":" after the first of them means that the option takes a
// value, "::" that the value is optional.
//
// The target is set by the option: a *bool to true, a *string to the value, a *[]string gets the
// value appended, a func(string) is called with the value, a func(byte) with the first letter, and
// nil is an option without effect. Options take effect in the order of the arguments. An unknown
// option ends the utility.
func (t *cmd) options(specs ...any) (operands []string) {
	return t.optionsOf(t.Args[1:], true, specs...)
}

// leading is options for utilities that run another command: the first operand ends the options.
func (t *cmd) leading(specs ...any) (operands []string) {
	return t.optionsOf(t.Args[1:], false, specs...)
}

func (t *cmd) optionsOf(args []string, permute bool, specs ...any) (operands []string) {
	p := optionParser{t: t, args: args}
	for i := 0; i < len(specs); i += 2 {
		p.add(specs[i].(string), specs[i+1])
	}
	for len(p.args) > 0 {
		a := p.args[0]
		p.args = p.args[1:]
		switch {
		case a == "--":
			return append(operands, p.args...)
		case strings.HasPrefix(a, "--"):
			p.long(a[2:])
		case len(a) > 1 && a[0] == '-':
			p.short(a[1:])
		case permute:
			operands = append(operands, a)
		default:
			return append([]string{a}, p.args...)
		}
	}
	return operands
}

// letters returns specs for single letters, each of which calls f.
func letters(list string, f func(byte)) []any {
	var specs []any
	for i := range list {
		specs = append(specs, list[i:i+1], f)
	}
	return specs
}

type optionParser struct {
	t     *cmd
	args  []string // those that are not read yet
	known []option
}

// add adds a pair of specs.
func (p *optionParser) add(spec string, target any) {
	o := option{names: strings.Fields(spec)}
	if name, ok := strings.CutSuffix(o.names[0], ":"); ok {
		o.takes = true
		o.names[0], o.optional = strings.CutSuffix(name, ":")
	}
	switch target := target.(type) {
	case nil:
		o.set = func(string) {}
	case *bool:
		o.set = func(string) { *target = true }
	case *string:
		o.set = func(v string) { *target = v }
	case func(byte): // of its first letter
		letter := o.names[0][0]
		o.set = func(string) { target(letter) }
	case *[]string:
		o.set = func(v string) { *target = append(*target, v) }
	default:
		o.set = target.(func(string))
	}
	p.known = append(p.known, o)
}

// short parses the letters of one argument.
func (p *optionParser) short(letters string) {
	for letters != "" {
		name := letters[:1]
		letters = letters[1:]
		o, _ := p.find(name, false)
		switch {
		case o == nil:
			p.t.fatal(usageStatus(p.t.name), "invalid option -- '%s'", name)
		case !o.takes:
			o.set("")
		case letters == "" && !o.optional:
			o.set(p.next("option requires an argument -- '%s'", name))
		default:
			o.set(letters)
			return
		}
	}
}

// long parses a long option, which may be abbreviated.
func (p *optionParser) long(text string) {
	name, value, has := strings.Cut(text, "=")
	o, found := p.find(name, true)
	switch {
	case found != 1:
		p.t.fatal(usageStatus(p.t.name), "unrecognized option '--%s'", name)
	case has && !o.takes:
		p.t.fatal(usageStatus(p.t.name), "option '--%s' doesn't allow an argument", name)
	case o.takes && !o.optional && !has:
		value = p.next("option '--%s' requires an argument", name)
	}
	o.set(value)
}

// find returns the option with a name, and the number of options of which name is a prefix.
func (p *optionParser) find(name string, long bool) (o *option, found int) {
	for i := range p.known {
		for _, n := range p.known[i].names {
			switch {
			case n == name && (len(n) > 1) == long:
				return &p.known[i], 1
			case long && len(n) > 1 && strings.HasPrefix(n, name) && o != &p.known[i]:
				o = &p.known[i]
				found++
			}
		}
	}
	return o, found
}

// next returns the next argument as an option's value.
func (p *optionParser) next(problem, name string) string {
	if len(p.args) == 0 {
		p.t.fatal(usageStatus(p.t.name), problem, name)
	}
	value := p.args[0]
	p.args = p.args[1:]
	return value
}

// set returns a target that sets *p to v.
func set[T any](p *T, v T) func(string) { return func(string) { *p = v } }

// integer returns a target that parses a decimal number into *p. what names it in messages.
func (t *cmd) integer(what string, p *int) func(string) {
	return func(v string) { *p = t.number(what, v) }
}

// amount returns a target that parses a number with a suffix such as k into *p.
func (t *cmd) amount(what string, p *int64) func(string) {
	return func(v string) { *p = t.size(what, v) }
}
