package shell

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// variable is a shell variable: a string, an indexed array or an associative array.
type variable struct {
	set      bool
	str      string
	list     map[int]string
	dict     map[string]string
	exported bool
	readonly bool
	integer  bool
	lower    bool
	upper    bool
	ref      bool // str is the name of another variable
}

func (v *variable) isArray() bool { return v.list != nil || v.dict != nil }

func (v *variable) clone() *variable {
	c := *v
	c.list, c.dict = maps.Clone(v.list), maps.Clone(v.dict)
	return &c
}

// keys returns the sorted indices of an array.
func (v *variable) keys() []string {
	if v.dict != nil {
		return slices.Sorted(maps.Keys(v.dict))
	}
	var keys []string
	for _, k := range slices.Sorted(maps.Keys(v.list)) {
		keys = append(keys, strconv.Itoa(k))
	}
	if !v.isArray() && v.set {
		keys = []string{"0"}
	}
	return keys
}

// values returns the elements of an array in the order of keys.
func (v *variable) values() []string {
	switch {
	case v.dict != nil:
		var values []string
		for _, k := range v.keys() {
			values = append(values, v.dict[k])
		}
		return values
	case v.list != nil:
		var values []string
		for _, k := range slices.Sorted(maps.Keys(v.list)) {
			values = append(values, v.list[k])
		}
		return values
	case v.set:
		return []string{v.str}
	}
	return nil
}

// scalar returns the value as a string; for an array, its first element.
func (v *variable) scalar() (string, bool) {
	switch {
	case v.dict != nil:
		s, ok := v.dict["0"]
		return s, ok
	case v.list != nil:
		s, ok := v.list[0]
		return s, ok
	}
	return v.str, v.set
}

// frame is a function call. It has the variables that local variables hide.
type frame struct {
	hidden map[string]*variable // nil if none existed
}

// target follows name references to the name of a variable.
func (s *shell) target(name string) string {
	for range 10 {
		v := s.vars[name]
		if v == nil || !v.ref || v.str == "" {
			return name
		}
		name = v.str
	}
	return name
}

// get returns the value of a variable, or of one that is computed.
func (s *shell) get(name string) (string, bool) {
	name = s.target(name)
	if v := s.vars[name]; v != nil {
		return v.scalar()
	}
	switch name {
	case "RANDOM":
		return strconv.Itoa(s.random()), true
	case "SECONDS":
		return strconv.Itoa(int(time.Since(s.sys.started).Seconds())), true
	case "LINENO":
		return strconv.Itoa(s.line), true
	case "EPOCHSECONDS":
		return strconv.FormatInt(time.Now().Unix(), 10), true
	case "BASHPID":
		return strconv.Itoa(s.p.pid), true
	case "PIPESTATUS":
		if len(s.pipeStatus) > 0 {
			return strconv.Itoa(s.pipeStatus[0]), true
		}
	case "FUNCNAME":
		if n := len(s.funcNames); n > 0 {
			return s.funcNames[n-1], true
		}
	}
	return "", false
}

// random returns the next value of RANDOM. The generator is not cryptographic.
func (s *shell) random() int {
	s.seed = s.seed*6364136223846793005 + 1442695040888963407
	return int(s.seed >> 49)
}

func (s *shell) getOr(name, def string) string {
	if v, ok := s.get(name); ok {
		return v
	}
	return def
}

// writable returns the variable for modification. It ends the shell if the variable is readonly.
func (s *shell) writable(name string) *variable {
	name = s.target(name)
	v := s.vars[name]
	if v == nil {
		v = &variable{}
		s.vars[name] = v
	}
	if v.readonly {
		s.fatal(2, "%s: is read only", name)
	}
	return v
}

// setVar assigns a string to a variable.
func (s *shell) setVar(name, value string) {
	s.bound(len(value))
	v := s.writable(name)
	value = s.applyAttributes(v, value)
	switch {
	case v.dict != nil:
		v.dict["0"] = value
	case v.list != nil:
		v.list[0] = value
	default:
		v.str = value
	}
	v.set = true
	if s.opts.allexport {
		v.exported = true
	}
	s.assignmentEffects(name, value)
}

// applyAttributes applies a variable's attributes (integer, upper case, lower case) to a new value.
func (s *shell) applyAttributes(v *variable, value string) string {
	switch {
	case v.integer:
		return strconv.FormatInt(s.arithText(value), 10)
	case v.lower:
		return strings.ToLower(value)
	case v.upper:
		return strings.ToUpper(value)
	}
	return value
}

// assignmentEffects applies side effects of an assignment to the shell's state.
func (s *shell) assignmentEffects(name, value string) {
	switch name {
	case "OPTIND":
		s.optPos = 0
	case "RANDOM":
		n, _ := strconv.Atoi(value)
		s.seed = uint64(n)
		delete(s.vars, "RANDOM")
	}
}

// setElem assigns an element of an array.
func (s *shell) setElem(name, key, value string) {
	s.bound(len(value))
	v := s.writable(name)
	value = s.applyAttributes(v, value)
	v.set = true
	if v.dict != nil {
		v.dict[key] = value
		return
	}
	i := int(s.arithText(key))
	if v.list == nil {
		v.list = map[int]string{}
		if v.str != "" {
			v.list[0], v.str = v.str, ""
		}
	}
	if i < 0 {
		i += v.next()
	}
	if i < 0 {
		s.fatal(1, "%s[%s]: bad array subscript", name, key)
	}
	v.list[i] = value
}

// next returns the largest index plus one.
func (v *variable) next() int {
	n := 0
	for k := range v.list {
		n = max(n, k+1)
	}
	return n
}

// unset removes a variable.
func (s *shell) unset(name string) {
	name = s.target(name)
	v := s.vars[name]
	if v == nil {
		return
	}
	if v.readonly {
		s.fatal(2, "%s: is read only", name)
	}
	delete(s.vars, name)
}

// unsetElem removes an element of an array.
func (s *shell) unsetElem(name, key string) {
	v := s.writable(name)
	switch {
	case v.dict != nil:
		delete(v.dict, key)
	case v.list != nil:
		i := int(s.arithText(key))
		if i < 0 {
			i += v.next()
		}
		delete(v.list, i)
	}
}

// local creates a local variable, which hides one of the same name until the function returns.
func (s *shell) local(name string) *variable {
	f := s.frames[len(s.frames)-1]
	_, hidden := f.hidden[name]
	if !hidden {
		f.hidden[name] = s.vars[name]
	}
	if !hidden || s.vars[name] == nil {
		v := &variable{}
		if old := s.vars[name]; old != nil {
			v.exported = old.exported
		}
		s.vars[name] = v
	}
	return s.vars[name]
}

// leave restores the variables that local variables have hidden.
func (s *shell) leave(f *frame) {
	for name, old := range f.hidden {
		if old == nil {
			delete(s.vars, name)
		} else {
			s.vars[name] = old
		}
	}
}

// environ returns the environment of programs.
func (s *shell) environ() []string {
	var env []string
	for name, v := range s.vars {
		if str, ok := v.scalar(); v.exported && ok && !v.ref {
			env = append(env, name+"="+str)
		}
	}
	slices.Sort(env)
	return env
}

// bound ends the shell if a value is longer than the limit.
func (s *shell) bound(n int) {
	if n > s.sys.limits.Bytes {
		s.fatal(2, "a value of %d bytes is longer than the limit of %d", n, s.sys.limits.Bytes)
	}
}

// declaration returns a command that declares the variable.
func (v *variable) declaration(name string) string {
	flags := "-"
	add := func(on bool, f string) {
		if on {
			flags += f
		}
	}
	add(v.list != nil, "a")
	add(v.dict != nil, "A")
	add(v.integer, "i")
	add(v.lower, "l")
	add(v.ref, "n")
	add(v.readonly, "r")
	add(v.upper, "u")
	add(v.exported, "x")
	if flags == "-" {
		flags = "--"
	}
	if v.isArray() {
		var items []string
		for i, k := range v.keys() {
			items = append(items, fmt.Sprintf("[%s]=%s", k, doubleQuote(v.values()[i])))
		}
		return fmt.Sprintf("declare %s %s=(%s)", flags, name, strings.Join(items, " "))
	}
	if !v.set {
		return fmt.Sprintf("declare %s %s", flags, name)
	}
	return fmt.Sprintf("declare %s %s=%s", flags, name, doubleQuote(v.str))
}

// quote quotes s so that a shell reads it as one word.
func quote(s string) string {
	if s == "" {
		return "''"
	}
	plain := true
	for _, r := range s {
		if r < ' ' || r == 0x7f {
			return dollarQuote(s)
		}
		if !isNameRune(r) && !strings.ContainsRune("%+,-./:=@^", r) && r < 0x80 {
			plain = false
		}
	}
	if plain {
		return s
	}
	return singleQuote(s)
}

func isNameRune(r rune) bool {
	return r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}

func singleQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func doubleQuote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `$`, `\$`, "`", "\\`").Replace(s) + `"`
}

func dollarQuote(s string) string {
	var b strings.Builder
	b.WriteString("$'")
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\t':
			b.WriteString(`\t`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\'' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String() + "'"
}
