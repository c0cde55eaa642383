package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/sandbar-dev/sandbar"
)

// value is the place of one setting and its format. Errors of set and load are reasons such as "is
// not a size"; the caller adds the origin, the text and the allowed values.
type value interface {
	set(text string) error   // from a flag or an environment variable
	load(n *yaml.Node) error // from the file
	String() string          // in the format of set
	yaml(indent string) string
}

// A fault is a reason with a line and a text of its own, from a setting with several parts.
type fault struct {
	line int
	got  string // quoted; "" to leave it out
	why  string
}

func (f *fault) Error() string { return f.why }

// scalar is a setting that is one YAML scalar.
type scalar[T any] struct {
	at     *T
	read   func(string) (T, error)
	show   func(T) string
	tags   []string // the YAML tags that are accepted
	quoted bool     // YAML needs quotes around it
}

func (s scalar[T]) set(text string) error {
	v, err := s.read(text)
	if err != nil {
		return err
	}
	*s.at = v
	return nil
}

func (s scalar[T]) load(n *yaml.Node) error {
	if err := checkScalar(n, s.tags); err != nil {
		return err
	}
	return s.set(n.Value)
}

func (s scalar[T]) String() string { return s.show(*s.at) }

func (s scalar[T]) yaml(string) string {
	if s.quoted {
		return strconv.Quote(s.String())
	}
	return s.String()
}

var (
	textTags   = []string{"!!str"}
	numberTags = []string{"!!str", "!!int", "!!float"}
	boolTags   = []string{"!!bool"}
)

func checkScalar(n *yaml.Node, tags []string) error {
	if n.Kind != yaml.ScalarNode {
		return &fault{line: n.Line, why: "is " + kindName(n) + " where one value is needed"}
	}
	tag := n.ShortTag()
	switch {
	case slices.Contains(tags, tag):
		return nil
	case tag == "!!null":
		return &fault{line: n.Line, why: "is missing; remove the line to have the default"}
	case slices.Equal(tags, textTags):
		return errors.New("is not text; put it in quotes if text is meant")
	}
	return errors.New("is " + kindName(n))
}

// kindName returns a readable name of a node's kind.
func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a map"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	switch n.ShortTag() {
	case "!!str":
		return "text"
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "true or false"
	case "!!null":
		return "empty"
	case "!!timestamp":
		return "a date"
	}
	return "a value of the kind " + sandbar.Quote(n.ShortTag(), 40)
}

// quantity is a type with an order: a count, a size, a duration, CPUs.
type quantity interface {
	~int64 | ~float64
}

// bounds are the smallest and the largest value of a quantity, and the words for values outside of
// them, if any.
type bounds[T quantity] struct {
	lo, hi T
	words  []word[T]
}

type word[T quantity] struct {
	name  string
	means T
}

// unit parses and formats one kind of quantity.
type unit[T quantity] struct {
	noun    string
	example string
	parse   func(string) (T, error)
	format  func(T) string
}

var (
	size      = unit[int64]{"a size", "256MiB", ParseSize, FormatSize}
	count     = unit[int64]{"a whole number", "100", ParseCount, FormatCount}
	cpus      = unit[float64]{"a number", "0.5", ParseCPUs, FormatCPUs}
	ratio     = unit[float64]{"a number", "0.1", parseRatio, formatRatio}
	wallClock = unit[time.Duration]{"a duration", "30s", ParseDuration, FormatDuration}
)

// read parses a quantity or one of the words.
func (b bounds[T]) read(u unit[T], s string) (T, error) {
	for _, w := range b.words {
		if s == w.name {
			return w.means, nil
		}
	}
	v, err := u.parse(s)
	if err == nil && (v < b.lo || v > b.hi) {
		err = errors.New("is out of range")
	}
	return v, err
}

func (b bounds[T]) show(u unit[T], v T) string {
	for _, w := range b.words {
		if v == w.means {
			return w.name
		}
	}
	return u.format(v)
}

// allowed returns the range in words: "a size from 1B to 64MiB, such as 1MiB".
func (b bounds[T]) allowed(u unit[T]) string {
	s := u.noun + " from " + u.format(b.lo) + " to " + u.format(b.hi)
	if v, err := u.parse(u.example); err == nil && v >= b.lo && v <= b.hi {
		s += ", such as " + u.example
	}
	for _, w := range b.words {
		s += ", or " + w.name
	}
	return s
}

// measure returns the field of a setting that is a quantity.
func measure[T quantity](path string, at *T, u unit[T], b bounds[T], initial, doc string) field {
	return field{path: path, initial: initial, allowed: b.allowed(u), doc: doc, value: scalar[T]{
		at:   at,
		read: func(s string) (T, error) { return b.read(u, s) },
		show: func(v T) string { return b.show(u, v) },
		tags: numberTags,
	}}
}

func text(at *string, check func(string) error) value {
	read := func(s string) (string, error) {
		if err := checkText(s); err != nil {
			return "", err
		}
		return s, check(s)
	}
	return scalar[string]{at: at, read: read, show: func(s string) string { return s }, tags: textTags, quoted: true}
}

// checkText refuses control characters and overlong texts.
func checkText(s string) error {
	if !utf8.ValidString(s) {
		return errors.New("is not UTF-8")
	}
	if strings.ContainsFunc(s, unicode.IsControl) {
		return errors.New("has control characters")
	}
	if len(s) > 4096 {
		return errors.New("is longer than 4096 bytes")
	}
	return nil
}

func anyText(string) error { return nil }

func oneOf(at *string, words ...string) value {
	read := func(s string) (string, error) {
		if slices.Contains(words, s) {
			return s, nil
		}
		return "", errors.New("is not known")
	}
	return scalar[string]{at: at, read: read, show: func(s string) string { return s }, tags: textTags}
}

func boolean(at *bool) value {
	read := func(s string) (bool, error) {
		switch s {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
		return false, errors.New("is neither true nor false")
	}
	return scalar[bool]{at: at, read: read, show: strconv.FormatBool, tags: boolTags}
}

// list is a setting that is a list of strings. In a variable, commas separate them.
type list struct {
	at    *[]string
	check func(string) error
}

func (l list) set(s string) error {
	if strings.TrimSpace(s) == "" {
		*l.at = nil
		return nil
	}
	var items []string
	for item := range strings.SplitSeq(s, ",") {
		items = append(items, strings.TrimSpace(item))
	}
	return l.store(items, func(int) int { return 0 })
}

func (l list) load(n *yaml.Node) error {
	if n.Kind != yaml.SequenceNode {
		return &fault{line: n.Line, why: "is " + kindName(n) + " where a list is needed"}
	}
	var items []string
	for _, c := range n.Content {
		if err := checkScalar(c, textTags); err != nil {
			return &fault{line: c.Line, got: sandbar.Quote(c.Value, 60), why: err.Error()}
		}
		items = append(items, c.Value)
	}
	return l.store(items, func(i int) int { return n.Content[i].Line })
}

func (l list) store(items []string, line func(int) int) error {
	for i, item := range items {
		err := checkText(item)
		if err == nil {
			err = l.check(item)
		}
		if err != nil {
			return &fault{line: line(i), got: sandbar.Quote(item, 60), why: err.Error()}
		}
	}
	*l.at = items
	return nil
}

func (l list) String() string { return strings.Join(*l.at, ",") }

func (l list) yaml(string) string {
	quoted := make([]string, len(*l.at))
	for i, s := range *l.at {
		quoted[i] = strconv.Quote(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// tree is a setting with a structure. In a variable it is YAML or JSON.
type tree struct {
	read  func(n *yaml.Node) error // checks and stores
	clear func()
	show  func() any // the stored value; an empty slice or map prints as such
}

func (t tree) set(s string) error {
	n, err := parseYAML([]byte(s))
	if err != nil {
		return &fault{got: sandbar.Quote(s, 60), why: "is not YAML: " + err.Error()}
	}
	if n == nil {
		t.clear()
		return nil
	}
	return withoutLine(t.load(n))
}

// withoutLine removes the line of a fault, which is meaningless in a variable.
func withoutLine(err error) error {
	if f, ok := errors.AsType[*fault](err); ok {
		return &fault{got: f.got, why: f.why}
	}
	return err
}

func (t tree) load(n *yaml.Node) error {
	t.clear()
	return t.read(n)
}

func (t tree) String() string { return strings.TrimSpace(t.yaml("")) }

func (t tree) yaml(indent string) string {
	shown := t.show()
	out, err := yaml.Dump(shown)
	if err != nil {
		// Not possible: only strings, lists and maps are stored.
		panic(fmt.Sprintf("config: cannot print: %v", err))
	}
	body := strings.TrimRight(string(out), "\n")
	if _, word := shown.(string); word || body == "[]" || body == "{}" {
		return body
	}
	return "\n" + indent + "  " + strings.ReplaceAll(body, "\n", "\n"+indent+"  ")
}
