package function

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sandbar-dev/sandbar/internal/protocol/iii/bus"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/channel"
)

// The decoder refuses what the original's does, in its words, because clients show them to language
// models that have learned them. A wrong type is reported before a missing field, in the order of
// the names. Unknown fields are ignored.

// field is one field of a request.
type field struct {
	name     string
	required bool
	// into stores a value; its error is the decoder's message.
	into func(raw json.RawMessage) error
}

// must makes a field required.
func must(f field) field { f.required = true; return f }

// request is a decoded payload, kept for fixes that change one field.
type request map[string]json.RawMessage

// decode decodes a payload. name is the name of the struct in errors.
func decode(data json.RawMessage, name string, fields ...field) (request, error) {
	r, err := decodeStruct(data, name, fields)
	if err != nil {
		return nil, &bus.Error{Code: bus.CodeFailed, Message: "serialization error: " + err.Error()}
	}
	return r, nil
}

func decodeStruct(data json.RawMessage, name string, fields []field) (request, error) {
	var r request
	if kindOf(data) != '{' || json.Unmarshal(data, &r) != nil {
		return nil, wrongType(data, "struct "+name)
	}
	sorted := slices.SortedFunc(slices.Values(fields), func(a, b field) int { return strings.Compare(a.name, b.name) })
	for _, f := range sorted {
		if raw, ok := r[f.name]; ok {
			if err := f.into(raw); err != nil {
				return nil, err
			}
		}
	}
	for _, f := range fields {
		if _, ok := r[f.name]; f.required && !ok {
			return nil, fmt.Errorf("missing field `%s`", f.name)
		}
	}
	return r, nil
}

// maxFix is the largest payload in a fix, in bytes.
const maxFix = 64 << 10

// next is a suggested payload, and the names of its fields that are too large to be sent back.
type next struct {
	payload map[string]any
	without []string // sorted
}

// fixed returns the request with some fields changed and some left out.
func (r request) fixed(change map[string]any, without ...string) next {
	n, size := next{payload: map[string]any{}}, 0
	sizes := map[string]int{}
	add := func(name string, v any, bytes int) {
		n.payload[name], sizes[name] = v, bytes
		size += bytes
	}
	for name, raw := range r {
		if _, changed := change[name]; !changed && name != "_caller_worker_id" && !slices.Contains(without, name) {
			add(name, raw, len(raw))
		}
	}
	for name, v := range change {
		raw, err := json.Marshal(v)
		if err != nil {
			continue // always encodable
		}
		add(name, v, len(raw))
	}
	for size > maxFix {
		largest := slices.MaxFunc(slices.Sorted(maps.Keys(sizes)), func(a, b string) int { return sizes[a] - sizes[b] })
		size -= sizes[largest]
		delete(sizes, largest)
		delete(n.payload, largest)
		n.without = append(n.without, largest)
	}
	slices.Sort(n.without)
	return n
}

// note returns the text of a fix, with the fields it leaves out.
func (n next) note(text string) string {
	if len(n.without) > 0 {
		text += "; `fix` is without `" + strings.Join(n.without, "` and `") + "`, too large to be sent back: take it from the original request"
	}
	return text
}

// kindOf returns the first byte of a JSON value, which identifies its type.
func kindOf(raw json.RawMessage) byte {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	if len(raw) == 0 {
		return 'n' // no value is null
	}
	return raw[0]
}

// wrongType is the decoder's error for a value of another type.
func wrongType(raw json.RawMessage, want string) error {
	return fmt.Errorf("invalid type: %s, expected %s", describe(raw), want)
}

func describe(raw json.RawMessage) string {
	text := string(bytes.TrimSpace(raw))
	switch kindOf(raw) {
	case 'n':
		return "null"
	case 't', 'f':
		return "boolean `" + text + "`"
	case '"':
		var s string
		_ = json.Unmarshal(raw, &s) // already validated
		return "string " + strconv.Quote(clip(s))
	case '[':
		return "sequence"
	case '{':
		return "map"
	}
	if strings.ContainsAny(text, ".eE") {
		return "floating point `" + clip(text) + "`"
	}
	return "integer `" + clip(text) + "`"
}

// text is a string field.
func text(name string, v *string) field {
	return field{name: name, into: func(raw json.RawMessage) error {
		if kindOf(raw) != '"' {
			return wrongType(raw, "a string")
		}
		return json.Unmarshal(raw, v)
	}}
}

// optional is a field that may also be null.
func optional[T any](of func(string, *T) field, name string, v **T) field {
	return field{name: name, into: func(raw json.RawMessage) error {
		if kindOf(raw) == 'n' {
			return nil
		}
		var t T
		if err := of(name, &t).into(raw); err != nil {
			return err
		}
		*v = &t
		return nil
	}}
}

// boolean is a boolean.
func boolean(name string, v *bool) field {
	return field{name: name, into: func(raw json.RawMessage) error {
		if k := kindOf(raw); k != 't' && k != 'f' {
			return wrongType(raw, "a boolean")
		}
		return json.Unmarshal(raw, v)
	}}
}

// number is an integer field, from 0 to the maximum of T.
func number[T uint32 | uint64](name string, v *T) field {
	bits := 64
	if T(0)-1 == T(^uint32(0)) {
		bits = 32
	}
	return field{name: name, into: func(raw json.RawMessage) error {
		want := "u" + strconv.Itoa(bits)
		s := string(bytes.TrimSpace(raw))
		switch k := kindOf(raw); {
		case k != '-' && (k < '0' || k > '9'), strings.ContainsAny(s, ".eE"):
			return wrongType(raw, want)
		}
		n, err := strconv.ParseUint(s, 10, bits)
		if err != nil && s != "-0" {
			return fmt.Errorf("invalid value: %s, expected %s", describe(raw), want)
		}
		*v = T(n)
		return nil
	}}
}

// stringList is a list of strings.
func stringList(name string, v *[]string) field {
	return field{name: name, into: func(raw json.RawMessage) error {
		items, err := list(raw)
		if err != nil {
			return err
		}
		out := make([]string, len(items))
		for i, item := range items {
			if err := text(name, &out[i]).into(item); err != nil {
				return err
			}
		}
		*v = out
		return nil
	}}
}

func list(raw json.RawMessage) ([]json.RawMessage, error) {
	var items []json.RawMessage
	if kindOf(raw) != '[' || json.Unmarshal(raw, &items) != nil {
		return nil, wrongType(raw, "a sequence")
	}
	return items, nil
}

// environment is the variables of a request, in either of two forms.
type environment struct {
	pairs map[string]string
	bad   []string // invalid names of the object form
}

// variables decodes an environment: a list of "NAME=value", in which entries without "=" are
// ignored and later ones win, or an object.
func variables(name string, v *environment) field {
	return field{name: name, into: func(raw json.RawMessage) error {
		var entries []string
		if stringList(name, &entries).into(raw) == nil {
			v.pairs = map[string]string{}
			for _, e := range entries {
				if k, value, ok := strings.Cut(e, "="); ok {
					v.pairs[k] = value
				}
			}
			return nil
		}
		var object map[string]*string
		if kindOf(raw) != '{' || json.Unmarshal(raw, &object) != nil {
			return fmt.Errorf("data did not match any variant of untagged enum EnvShape")
		}
		v.pairs = map[string]string{}
		for _, k := range slices.Sorted(maps.Keys(object)) {
			if object[k] == nil {
				return fmt.Errorf("data did not match any variant of untagged enum EnvShape")
			}
			if !variableName(k) {
				v.bad = append(v.bad, k)
			}
			v.pairs[k] = *object[k]
		}
		return nil
	}}
}

// variableName reports whether s is a valid name: [A-Za-z_][A-Za-z0-9_]*.
func variableName(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// check refuses invalid names.
func (e environment) check() error {
	if len(e.bad) == 0 {
		return nil
	}
	names, _ := json.Marshal(e.bad[:min(len(e.bad), 20)])
	return fail(S001, "env contains invalid variable name(s): %s. Names must match [A-Za-z_][A-Za-z0-9_]*; "+
		"an environment looks like {\"FOO\": \"bar\"} or [\"FOO=bar\"]", names)
}

// content is the body of a write: a text or a channel.
type content struct {
	text *string
	ref  *channel.Ref
}

func body(name string, v *content) field {
	return field{name: name, into: func(raw json.RawMessage) error {
		switch kindOf(raw) {
		case 'n':
			return nil
		case '"':
			v.text = new(string)
			return json.Unmarshal(raw, v.text)
		}
		var ref struct {
			AccessKey, ChannelID *string
			Direction            *channel.Direction
		}
		_, err := decodeStruct(raw, "StreamChannelRef", []field{
			must(optional(text, "access_key", &ref.AccessKey)), must(optional(text, "channel_id", &ref.ChannelID)),
			must(optional(direction, "direction", &ref.Direction))})
		if err != nil || ref.AccessKey == nil || ref.ChannelID == nil || ref.Direction == nil {
			return fmt.Errorf("data did not match any variant of untagged enum WriteContent")
		}
		v.ref = &channel.Ref{AccessKey: *ref.AccessKey, ChannelID: *ref.ChannelID, Direction: *ref.Direction}
		return nil
	}}
}

func direction(name string, v *channel.Direction) field {
	return field{name: name, into: func(raw json.RawMessage) error {
		if err := json.Unmarshal(raw, v); err != nil || (*v != channel.Read && *v != channel.Write) {
			return wrongType(raw, "`read` or `write`")
		}
		return nil
	}}
}

// runFile is a file of a run.
type runFile struct{ path, content string }

func runFiles(name string, v *[]runFile) field {
	return field{name: name, into: func(raw json.RawMessage) error {
		items, err := list(raw)
		if err != nil {
			return err
		}
		for _, item := range items {
			var f runFile
			if _, err := decodeStruct(item, "RunFile", []field{must(text("path", &f.path)), must(text("content", &f.content))}); err != nil {
				return err
			}
			*v = append(*v, f)
		}
		return nil
	}}
}
