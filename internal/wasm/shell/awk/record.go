package awk

import (
	"strings"
	"unicode/utf8"
)

// setRecord makes text the current record.
func (in *interp) setRecord(text string) {
	in.record, in.split, in.joined = text, false, true
}

// getRecord returns $0.
func (in *interp) getRecord() string {
	if !in.joined {
		parts := make([]string, len(in.fields))
		for i, f := range in.fields {
			parts[i] = f.text(in.convfmt())
		}
		in.record = in.str(strings.Join(parts, in.globals[varOFS].v.s)).s
		in.joined = true
	}
	return in.record
}

// splitRecord splits the record into fields, if necessary.
func (in *interp) splitRecord() {
	if in.split {
		return
	}
	in.split = true
	parts := in.splitText(in.record, in.globals[varFS].v.s, true)
	in.fields = in.fields[:0]
	for _, p := range parts {
		in.fields = append(in.fields, input(p))
	}
}

// splitText splits text at a separator with the meaning of FS. In a record of paragraph mode (RS is
// ""), newlines also separate fields.
func (in *interp) splitText(text, fs string, record bool) []string {
	if text == "" {
		return nil
	}
	paragraph := record && in.globals[varRS].v.s == ""
	switch {
	case fs == " ":
		return strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '\t' || r == '\n' })
	case fs == "":
		return characters(text)
	case utf8.RuneCountInString(fs) == 1 && fs != `\`:
		if paragraph {
			return strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || string(r) == fs })
		}
		return strings.Split(text, fs)
	case paragraph:
		fs = "(" + fs + ")|\n"
	}
	return splitRegex(text, in.dynamic(fs).All(text, -1))
}

func characters(text string) []string {
	out := make([]string, 0, len(text))
	for text != "" {
		_, n := utf8.DecodeRuneInString(text)
		out, text = append(out, text[:n]), text[n:]
	}
	return out
}

// splitRegex splits text at non-empty matches.
func splitRegex(text string, found [][]int) []string {
	var out []string
	at := 0
	for _, m := range found {
		if m[1] > m[0] {
			out = append(out, text[at:m[0]])
			at = m[1]
		}
	}
	return append(out, text[at:])
}

// field returns $n.
func (in *interp) field(n float64) value {
	i := in.fieldIndex(n)
	if i == 0 {
		return input(in.getRecord())
	}
	in.splitRecord()
	if i > len(in.fields) {
		return value{}
	}
	return in.fields[i-1]
}

func (in *interp) fieldIndex(n float64) int {
	if n < 0 || n != n {
		throw("trying to access field %v", n)
	}
	if n > maxFields {
		throw("field %v is too large", n)
	}
	return int(n)
}

func (in *interp) setField(n float64, v value) {
	i := in.fieldIndex(n)
	if i == 0 {
		in.setRecord(v.text(in.convfmt()))
		return
	}
	in.splitRecord()
	for len(in.fields) < i {
		in.fields = append(in.fields, input(""))
	}
	if v.kind == kindNum {
		// A field is a string that compares as a number if it looks like one.
		v = input(v.text(in.convfmt()))
	}
	in.fields[i-1] = v
	in.joined = false
}

func (in *interp) setNF(n float64) {
	i := in.fieldIndex(n)
	in.splitRecord()
	for len(in.fields) < i {
		in.fields = append(in.fields, input(""))
	}
	in.fields = in.fields[:i]
	in.joined = false
}
