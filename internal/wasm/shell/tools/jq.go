package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/itchyny/gojq"

	"github.com/sandbar-dev/sandbar/internal/wasm/shell/program"
)

// jqOptions are the options of jq.
type jqOptions struct {
	raw, join, compact, null, slurp, rawInput, exit, tab, ascii bool
	indent                                                      int
	names                                                       []string
	values                                                      []any
	named                                                       map[string]any
	args                                                        []any
}

func jq(t *cmd) {
	o := jqOptions{indent: 2, named: map[string]any{}}
	operands := t.jqOptions(&o)
	if len(operands) == 0 {
		t.fatal(2, "no filter was given")
	}
	query, err := gojq.Parse(operands[0])
	if err != nil {
		t.fatal(3, "error: %v", err)
	}
	o.names, o.values = append(o.names, "$ARGS"), append(o.values, map[string]any{"positional": append([]any{}, o.args...), "named": o.named})
	in := &jqInput{t: t, o: o, files: operands[1:]}
	if len(in.files) == 0 {
		in.files = []string{"-"}
	}
	code, err := gojq.Compile(query, gojq.WithVariables(o.names), gojq.WithEnvironLoader(func() []string { return t.Env }), gojq.WithInputIter(in))
	if err != nil {
		t.fatal(3, "error: %v", err)
	}
	last := any(nil)
	some := false
	run := func(v any) {
		iter := code.RunWithContext(t.ctx, v, o.values...)
		for {
			r, ok := iter.Next()
			if !ok {
				return
			}
			t.check()
			if err, ok := r.(error); ok {
				if halt, ok := errors.AsType[*gojq.HaltError](err); ok {
					t.jqHalt(o, halt)
				}
				t.warnStatus(5, "error: %v", err)
				return
			}
			last, some = r, true
			t.jqPrint(o, r)
		}
	}
	if o.null {
		run(nil)
	} else {
		for {
			v, ok := in.Next()
			if !ok {
				break
			}
			if err, ok := v.(error); ok {
				t.warnStatus(2, "error: %v", err)
				break
			}
			run(v)
		}
	}
	if o.exit && t.status == 0 {
		switch {
		case !some:
			t.status = 4
		case last == nil || last == false:
			t.status = 1
		}
	}
}

func (t *cmd) jqHalt(o jqOptions, halt *gojq.HaltError) {
	if v := halt.Value(); v != nil {
		if s, ok := v.(string); ok {
			_, _ = io.WriteString(t.Stderr, s)
		} else if b, err := gojq.Marshal(v); err == nil {
			_, _ = t.Stderr.Write(append(b, '\n'))
		}
	}
	panic(ended{halt.ExitCode()})
}

// jqOptions parses the options, some of which take two values.
func (t *cmd) jqOptions(o *jqOptions) (operands []string) {
	args := t.Args[1:]
	take := func(what string) string {
		if len(args) == 0 {
			t.fatal(2, "%s takes another argument", what)
		}
		a := args[0]
		args = args[1:]
		return a
	}
	define := func(name string, v any) {
		o.names, o.values = append(o.names, "$"+name), append(o.values, v)
		o.named[name] = v
	}
	rest := byte(0) // s: strings, j: JSON
	file := false
	for len(args) > 0 {
		a := take("")
		switch {
		case a == "--arg":
			name := take(a)
			define(name, take(a))
		case a == "--argjson":
			name := take(a)
			define(name, t.jqJSON(take(a)))
		case a == "--slurpfile" || a == "--rawfile":
			name, path := take(a), take(a)
			define(name, t.jqFile(path, a == "--rawfile"))
		case a == "--args":
			rest = 's'
		case a == "--jsonargs":
			rest = 'j'
		case a == "--indent":
			o.indent = t.number("indentation", take(a))
		case a == "--":
			operands, args = append(operands, args...), nil
		case strings.HasPrefix(a, "--"):
			if !o.long(a[2:], &file) {
				t.fatal(2, "Unknown arguments: %s", a)
			}
		case len(a) > 1 && a[0] == '-':
			for i := 1; i < len(a); i++ {
				if !o.short(a[i], &file) {
					t.fatal(2, "Unknown arguments: -%c", a[i])
				}
			}
		case rest == 's' && len(operands) > 0:
			o.args = append(o.args, a)
		case rest == 'j' && len(operands) > 0:
			o.args = append(o.args, t.jqJSON(a))
		default:
			operands = append(operands, a)
		}
	}
	if file && len(operands) > 0 {
		data, err := t.FS.ReadFile(t.Dir, operands[0])
		t.must(err, 2, "error: Could not open %s", operands[0])
		operands[0] = string(data)
	}
	return operands
}

func (o *jqOptions) long(name string, file *bool) bool {
	c, ok := map[string]byte{"raw-output": 'r', "join-output": 'j', "compact-output": 'c', "null-input": 'n', "slurp": 's', "raw-input": 'R',
		"exit-status": 'e', "sort-keys": 'S', "tab": 'T', "ascii-output": 'a', "from-file": 'f', "color-output": 'C', "monochrome-output": 'M', "unbuffered": 'M'}[name]
	return ok && o.short(c, file)
}

func (o *jqOptions) short(c byte, file *bool) bool {
	switch c {
	case 'r':
		o.raw = true
	case 'j':
		o.raw, o.join = true, true
	case 'c':
		o.compact = true
	case 'n':
		o.null = true
	case 's':
		o.slurp = true
	case 'R':
		o.rawInput = true
	case 'e':
		o.exit = true
	case 'T':
		o.tab = true
	case 'a':
		o.ascii = true
	case 'f':
		*file = true
	case 'S', 'C', 'M': // keys are always sorted, and output has no colours
	default:
		return false
	}
	return true
}

func (t *cmd) jqJSON(text string) any {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.fatal(2, "Invalid JSON text: %s", text)
	}
	return v
}

func (t *cmd) jqFile(name string, raw bool) any {
	data, err := t.FS.ReadFile(t.Dir, name)
	t.must(err, 2, "Bad JSON in file %s", name)
	if raw {
		return string(data)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	list := []any{}
	for {
		var v any
		if err := d.Decode(&v); err == io.EOF {
			return list
		} else if err != nil {
			t.fatal(2, "Bad JSON in file %s", name)
		}
		list = append(list, v)
	}
}

// jqInput iterates over the values of the input, also for the function input.
type jqInput struct {
	t     *cmd
	o     jqOptions
	files []string
	open  io.Closer
	json  *json.Decoder
	all   []any
	done  bool
}

// Next returns the next value, or an error as a value.
func (in *jqInput) Next() (any, bool) {
	in.t.check()
	if in.o.slurp {
		if in.done {
			return nil, false
		}
		in.done = true
		return in.slurp()
	}
	if in.o.rawInput {
		return in.nextLine()
	}
	return in.nextJSON()
}

func (in *jqInput) nextJSON() (any, bool) {
	for {
		if in.json == nil {
			r, ok := in.nextFile()
			if !ok {
				return nil, false
			}
			in.json = json.NewDecoder(r)
			in.json.UseNumber()
		}
		var v any
		err := in.json.Decode(&v)
		if err == nil {
			return v, true
		}
		in.json = nil
		in.open.Close()
		if err != io.EOF {
			in.files = nil
			return jsonError(err), true
		}
	}
}

func jsonError(err error) error {
	if err == io.ErrUnexpectedEOF {
		return errors.New("unfinished JSON term")
	}
	return err
}

func (in *jqInput) nextFile() (io.Reader, bool) {
	for len(in.files) > 0 {
		name := in.files[0]
		in.files = in.files[1:]
		r, err := in.t.open(name)
		if err == nil {
			in.open = r
			return r, true
		}
		in.t.warn("error: Could not open %s: %s", name, program.ErrorText(err))
		in.t.status = 2
	}
	return nil, false
}

func (in *jqInput) nextLine() (any, bool) {
	if in.all == nil {
		in.all = []any{}
		for {
			r, ok := in.nextFile()
			if !ok {
				break
			}
			for line := range in.t.lines("-", r, '\n') {
				in.all = append(in.all, string(line))
			}
		}
	}
	if len(in.all) == 0 {
		return nil, false
	}
	v := in.all[0]
	in.all = in.all[1:]
	return v, true
}

func (in *jqInput) slurp() (any, bool) {
	if in.o.rawInput {
		var b strings.Builder
		for {
			r, ok := in.nextFile()
			if !ok {
				return b.String(), true
			}
			b.Write(in.t.readAll("-", r))
		}
	}
	list := []any{}
	for {
		v, ok := in.nextJSON()
		if !ok {
			return list, true
		}
		if err, ok := v.(error); ok {
			return err, true
		}
		list = append(list, v)
	}
}

func (t *cmd) jqPrint(o jqOptions, v any) {
	if s, ok := v.(string); ok && o.raw {
		t.out.WriteString(s)
	} else {
		b, err := gojq.Marshal(v)
		if err != nil {
			t.fatal(5, "error: %v", err)
		}
		if !o.compact && (o.indent > 0 || o.tab) {
			b = indentJSON(b, o)
		}
		if o.ascii {
			b = asciiJSON(b)
		}
		t.out.Write(b)
	}
	if !o.join {
		t.out.WriteByte('\n')
	}
}

// indentJSON indents a value, except for "[]" and "{}".
func indentJSON(b []byte, o jqOptions) []byte {
	indent := strings.Repeat(" ", min(o.indent, 7))
	if o.tab {
		indent = "\t"
	}
	var out bytes.Buffer
	if err := json.Indent(&out, b, "", indent); err != nil {
		return b
	}
	return out.Bytes()
}

func asciiJSON(b []byte) []byte {
	var out bytes.Buffer
	for _, r := range string(b) {
		if r < 0x80 {
			out.WriteByte(byte(r))
			continue
		}
		writeEscape(&out, r)
	}
	return out.Bytes()
}

func writeEscape(out *bytes.Buffer, r rune) {
	const hex = "0123456789abcdef"
	unit := func(u rune) {
		out.WriteString(`\u`)
		for s := 12; s >= 0; s -= 4 {
			out.WriteByte(hex[u>>s&0xf])
		}
	}
	if r >= 0x10000 {
		r -= 0x10000
		unit(0xd800 + r>>10)
		unit(0xdc00 + r&0x3ff)
		return
	}
	unit(r)
}
