package shell

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// optionNames are the options of set with their letters; 0 means no letter.
var optionNames = []struct {
	name   string
	letter byte
	field  func(*options) *bool
}{
	{"allexport", 'a', func(o *options) *bool { return &o.allexport }},
	{"errexit", 'e', func(o *options) *bool { return &o.errexit }},
	{"noclobber", 'C', func(o *options) *bool { return &o.noclobber }},
	{"noexec", 'n', func(o *options) *bool { return &o.noexec }},
	{"noglob", 'f', func(o *options) *bool { return &o.noglob }},
	{"nounset", 'u', func(o *options) *bool { return &o.nounset }},
	{"pipefail", 0, func(o *options) *bool { return &o.pipefail }},
	{"verbose", 'v', func(o *options) *bool { return &o.verbose }},
	{"xtrace", 'x', func(o *options) *bool { return &o.xtrace }},
}

// shoptNames are the options of shopt with an effect.
var shoptNames = []struct {
	name  string
	field func(*options) *bool
}{
	{"dotglob", func(o *options) *bool { return &o.dotglob }},
	{"expand_aliases", func(o *options) *bool { return &o.expandAliases }},
	{"extglob", func(o *options) *bool { return &o.extglob }},
	{"failglob", func(o *options) *bool { return &o.failglob }},
	{"globstar", func(o *options) *bool { return &o.globstar }},
	{"nocaseglob", func(o *options) *bool { return &o.nocaseglob }},
	{"nocasematch", func(o *options) *bool { return &o.nocasematch }},
	{"nullglob", func(o *options) *bool { return &o.nullglob }},
}

func (o *options) byName(name string) *bool {
	for _, n := range optionNames {
		if n.name == name {
			return n.field(o)
		}
	}
	return nil
}

func (o *options) byLetter(letter byte) *bool {
	for _, n := range optionNames {
		if n.letter == letter {
			return n.field(o)
		}
	}
	return nil
}

// letters returns the value of $-.
func (o *options) letters() string {
	text := ""
	for _, n := range optionNames {
		if n.letter != 0 && *n.field(o) {
			text += string(n.letter)
		}
	}
	return text
}

// set implements set: options and positional parameters.
func (s *shell) set(args []string) int {
	if len(args) == 1 {
		for _, name := range slices.Sorted(maps.Keys(s.vars)) {
			if v, ok := s.vars[name].scalar(); ok {
				s.out(name + "=" + singleQuote(v) + "\n")
			}
		}
		return 0
	}
	rest, err := s.setOptions(args[1:])
	if err != nil {
		return s.usage("set", "%v", err)
	}
	if rest != nil {
		s.params = rest
	}
	return 0
}

// setOptions parses the options of set and of the shell. It returns the remaining arguments, or nil
// if there are none.
func (s *shell) setOptions(args []string) ([]string, error) {
	for len(args) > 0 {
		a := args[0]
		if a == "--" || a == "-" {
			return append([]string{}, args[1:]...), nil
		}
		if len(a) < 2 || a[0] != '-' && a[0] != '+' {
			return args, nil
		}
		args = args[1:]
		on := a[0] == '-'
		for i := 1; i < len(a); i++ {
			if a[i] == 'o' {
				if len(args) == 0 {
					s.listOptions(on)
					continue
				}
				opt := s.opts.byName(args[0])
				switch {
				case opt != nil:
					*opt = on
				case !slices.Contains([]string{"posix", "monitor", "emacs", "vi", "notify", "ignoreeof", "hashall", "braceexpand", "errtrace", "functrace", "physical"}, args[0]):
					return nil, fmt.Errorf("-o %s: no such option", args[0])
				}
				args = args[1:]
				continue
			}
			opt := s.opts.byLetter(a[i])
			switch {
			case opt != nil:
				*opt = on
			case strings.IndexByte("bhmEPTBi", a[i]) < 0: // accepted without effect
				return nil, fmt.Errorf("-%c: no such option", a[i])
			}
		}
	}
	return nil, nil
}

func (s *shell) listOptions(words bool) {
	for _, n := range optionNames {
		state := "off"
		if *n.field(&s.opts) {
			state = "on"
		}
		if words {
			s.out(fmt.Sprintf("%-15s\t%s\n", n.name, state))
			continue
		}
		s.out("set " + map[string]string{"on": "-o ", "off": "+o "}[state] + n.name + "\n")
	}
}

// shopt implements bash's shopt. It also accepts options that have no effect here.
func (s *shell) shopt(args []string) int {
	mode, quiet := byte(0), false
	args = args[1:]
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		for i := 1; i < len(args[0]); i++ {
			switch c := args[0][i]; c {
			case 's', 'u':
				mode = c
			case 'q':
				quiet = true
			case 'p', 'o':
			default:
				return s.usage("shopt", "-%c: invalid option", c)
			}
		}
		args = args[1:]
	}
	status := 0
	for _, n := range shoptNames {
		opt := n.field(&s.opts)
		if len(args) > 0 && !slices.Contains(args, n.name) {
			continue
		}
		switch {
		case len(args) == 0 && mode == 0, len(args) > 0 && mode == 0 && !quiet:
			s.out(fmt.Sprintf("%-15s\t%s\n", n.name, map[bool]string{true: "on", false: "off"}[*opt]))
			fallthrough
		case mode == 0:
			if !*opt && len(args) > 0 {
				status = 1
			}
		case len(args) > 0:
			*opt = mode == 's'
		}
	}
	return status
}
