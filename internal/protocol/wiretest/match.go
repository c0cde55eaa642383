package wiretest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"strings"
	"time"
)

// template is an expected line: JSON with placeholders, or an event.
type template struct {
	event string // "" for JSON
	value any
}

func newTemplate(line string) (template, error) {
	if strings.HasPrefix(line, "@") {
		return template{event: line}, nil
	}
	v, err := parseJSON(line)
	if err != nil {
		return template{}, fmt.Errorf("an expected message is not JSON: %w: %s", err, line)
	}
	return template{value: v}, checkPlaceholders(v)
}

// parseJSON parses one JSON value and keeps the notation of numbers.
func parseJSON(s string) (any, error) {
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("there is something after the JSON value")
	}
	return v, nil
}

// checkPlaceholders finds unknown placeholders, which would match nothing or be taken for text.
func checkPlaceholders(v any) error {
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			if err := checkPlaceholders(e); err != nil {
				return err
			}
		}
	case []any:
		for _, e := range v {
			if err := checkPlaceholders(e); err != nil {
				return err
			}
		}
	case string:
		if strings.HasPrefix(v, "$") {
			_, err := placeholder(v)
			return err
		}
	}
	return nil
}

// placeholder returns the matcher of a string that begins with "$".
func placeholder(s string) (func(got any) bool, error) {
	switch {
	case s == "$any":
		return func(any) bool { return true }, nil
	case s == "$int":
		return func(got any) bool {
			n, ok := got.(json.Number)
			i, err := n.Int64()
			return ok && err == nil && i >= 0
		}, nil
	case s == "$time":
		return isTime, nil
	case strings.HasPrefix(s, "$$"):
		return func(got any) bool { return got == s[1:] }, nil
	case strings.HasPrefix(s, "$like "):
		re, err := regexp.Compile(`\A(?s:` + s[len("$like "):] + `)\z`)
		if err != nil {
			return nil, err
		}
		return func(got any) bool { g, ok := got.(string); return ok && re.MatchString(g) }, nil
	}
	return nil, fmt.Errorf("there is no placeholder %s", s)
}

func isTime(got any) bool {
	s, ok := got.(string)
	if !ok {
		return false
	}
	const form = "2006-01-02T15:04:05.000Z"
	at, err := time.Parse(form, s)
	return err == nil && at.Format(form) == s
}

// matches compares an expected value with a received one.
func matches(want, got any) bool {
	switch want := want.(type) {
	case string:
		if strings.HasPrefix(want, "$") {
			match, err := placeholder(want)
			return err == nil && match(got)
		}
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok || len(g) != len(want) {
			return false
		}
		for name, w := range want {
			if v, ok := g[name]; !ok || !matches(w, v) {
				return false
			}
		}
		return true
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(want) {
			return false
		}
		for i := range want {
			if !matches(want[i], g[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(want, got)
}

// expectation is an expected line and the part of it that has arrived.
type expectation struct {
	line  string
	want  template
	field string // its string may arrive in parts; "" if none
	rest  string // rest of that string
	whole bool   // all has arrived
}

func newExpectation(line string, want template, split func(map[string]any) string) *expectation {
	e := &expectation{line: line, want: want}
	m, ok := want.value.(map[string]any)
	if !ok || split == nil {
		return e
	}
	if s, ok := m[split(m)].(string); ok && s != "" && !strings.HasPrefix(s, "$") {
		e.field, e.rest = split(m), s
	}
	return e
}

func (e *expectation) done() bool { return e.whole }

// take reports whether line is the expected one, or its next part.
func (e *expectation) take(line string) bool {
	if e.want.event != "" || strings.HasPrefix(line, "@") {
		e.whole = line == e.want.event
		return e.whole
	}
	got, err := parseJSON(line)
	if err != nil {
		return false
	}
	if e.field == "" {
		e.whole = matches(e.want.value, got)
		return e.whole
	}
	g, _ := got.(map[string]any)
	part, ok := g[e.field].(string)
	if !ok || !strings.HasPrefix(e.rest, part) {
		return false
	}
	want := maps.Clone(e.want.value.(map[string]any))
	want[e.field] = "$any"
	if !matches(want, got) {
		return false
	}
	e.rest = e.rest[len(part):]
	e.whole = e.rest == ""
	return true
}
