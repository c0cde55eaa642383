// Package strictjson reads JSON objects strictly, finds escapes that UTF-8 text cannot represent,
// and writes bytes into JSON strings.
//
// Object reads an object like a configuration file: an unknown member, a duplicate member, a wrong
// type, or text after the object is an error. The error names the member, the valid names, and the
// most similar one. Errors are *sandbar.Error of code Invalid and contain no values.
//
// AppendASCII, AppendEscape, PlainPrefix and Subpart write the output of programs, which may be any
// bytes, into JSON strings.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/text/suggest"
)

// Field is a member that an object may have.
type Field struct {
	Name string
	// Set receives the value's JSON, never null, and returns an error such as "must be a string". A
	// *sandbar.Error is returned unchanged.
	Set func(raw json.RawMessage) error
}

// Object reads one object. what names it in errors, such as "the body". A member that is null
// counts as missing.
func Object(what string, raw []byte, fields ...Field) error {
	return reader{what: what}.read(raw, fields)
}

// Member reads an object that is member name of another object.
func Member(name string, raw []byte, fields ...Field) error {
	return reader{what: name, prefix: name + ".", name: name}.read(raw, fields)
}

// reader is the position of an object.
type reader struct {
	what   string
	prefix string // path of the object, as a prefix of its members' names
	name   string // "" for the top-level object
}

func (r reader) read(raw []byte, fields []Field) error {
	if !utf8.Valid(raw) {
		return invalid(r.name, r.what+" is not valid UTF-8", "")
	}
	if at := UnpairedSurrogate(raw); at > 0 {
		return invalid(r.name, fmt.Sprintf("%s has an unpaired surrogate in a string at byte %d", r.what, at), "send text")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return r.notJSON(err)
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return r.notJSON(err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return r.notJSON(err)
		}
		if seen[name] {
			return invalid(r.prefix+name, sandbar.Quote(r.prefix+name, 80)+" is given twice", "give it once")
		}
		seen[name] = true
		if err := r.set(name, value, fields); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil { // "}"
		return r.notJSON(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return invalid(r.name, r.what+" has something after its JSON object", "send one JSON object")
	}
	return nil
}

func (r reader) notJSON(err error) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return invalid("", fmt.Sprintf("%s is not valid JSON at byte %d", r.what, syntax.Offset), "send one JSON object")
	}
	return invalid(r.name, r.what+" is not a JSON object", "send one JSON object")
}

func (r reader) set(name string, value json.RawMessage, fields []Field) error {
	var names []string
	for _, f := range fields {
		if f.Name != name {
			names = append(names, f.Name)
			continue
		}
		if string(value) == "null" {
			return nil
		}
		err := f.Set(value)
		if _, ok := errors.AsType[*sandbar.Error](err); ok || err == nil {
			return err
		}
		return invalid(r.prefix+name, r.prefix+name+" "+err.Error(), "")
	}
	fix := "known are " + strings.Join(names, ", ")
	if meant := suggest.Name(name, names); meant != "" {
		fix = "did you mean " + r.prefix + meant + "?"
	}
	return invalid(r.prefix+name, sandbar.Quote(r.prefix+name, 80)+" is not known", fix)
}

// Value is a field that encoding/json decodes. must is its type in errors, such as "a number".
func Value[T any](name, must string, at *T) Field {
	return Field{name, func(raw json.RawMessage) error {
		if json.Unmarshal(raw, at) != nil {
			return errors.New("must be " + must)
		}
		return nil
	}}
}

// Text is a field that is a string.
func Text(name string, at *string) Field { return Value(name, "a string", at) }

// Truth is a field that is true or false.
func Truth(name string, at *bool) Field { return Value(name, "true or false", at) }

// List is a field that is a list of strings.
func List(name string, at *[]string) Field { return Value(name, "a list of strings", at) }

// Texts is a field that maps names to strings.
func Texts(name string, at *map[string]string) Field {
	return Field{name, func(raw json.RawMessage) error {
		m := map[string]string{}
		// Not a Go map decode: it would drop one of two duplicate names.
		return decodeMap(name, raw, m, at)
	}}
}

func decodeMap(name string, raw json.RawMessage, m map[string]string, at *map[string]string) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errors.New("must be an object of strings")
	}
	for d.More() {
		t, err := d.Token()
		key, ok := t.(string)
		var v any
		if err != nil || !ok || d.Decode(&v) != nil {
			return errors.New("must be an object of strings")
		}
		s, ok := v.(string)
		if !ok {
			return invalid(name, name+"."+sandbar.Quote(key, 40)+" must be a string", "")
		}
		if _, twice := m[key]; twice {
			return invalid(name, name+"."+sandbar.Quote(key, 40)+" is given twice", "give it once")
		}
		m[key] = s
	}
	*at = m
	return nil
}

// invalid is the error for a field.
func invalid(field, message, fix string) error {
	return &sandbar.Error{Code: sandbar.Invalid, Field: field, Message: message, Fix: fix}
}
