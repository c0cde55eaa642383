package config

import (
	"errors"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/sandbar-dev/sandbar"
)

// Templates are the sandboxes that a daemon keeps ready.
type Templates struct {
	Auto bool       // those for the served protocols
	List []Template // if Auto is not set; empty for none
}

// Template is one kind of sandbox that is kept ready. Zero fields are unset.
type Template struct {
	Language string // "": without an interpreter
	Image    string
	Imports  []string
	Min, Max int64
	Memory   int64   // default: limits.default.memory
	CPUs     float64 // default: limits.default.cpus
	Fork     bool    // with a prestarted interpreter that forks
}

// The words of the setting templates.
const (
	templatesAuto = "auto"
	templatesOff  = "off"
)

var templateKeys = []string{"language", "image", "warm_imports", "min", "max", "memory", "cpus", "fork"}

func (c *Config) templateFields() []field {
	return []field{
		{path: "templates", value: c.templatesTree(), initial: templatesAuto,
			allowed: "auto, off, or a list of maps with language, image, warm_imports, min, max, memory, cpus and fork, all of which may be missing",
			doc: "Sandboxes that the daemon creates before a job needs them, each with a prestarted interpreter. Their number follows the peak of " +
				"concurrent requests, at least min (0) and at most max (8). auto suits the served protocols. A job gets one with its image and " +
				"limits; a template without language serves new sandboxes, and programs for which the driver has no cheaper sandbox. With " +
				"fork: false each sandbox starts an interpreter of its own: {language: python, warm_imports: [numpy], min: 2, max: 16}."},
		measure("templates_memory", &c.TemplatesMemory, size, bounds[int64]{lo: 1 << 20, hi: maxSize}, "512MiB",
			"Memory of all ready sandboxes together, beyond the min of each template."),
	}
}

// templatesTree reads the setting templates: a word or a list.
func (c *Config) templatesTree() tree {
	return tree{
		clear: func() { c.Templates = Templates{} },
		show:  c.Templates.show,
		read: func(n *yaml.Node) error {
			if n.Kind == yaml.ScalarNode {
				return c.Templates.word(n)
			}
			if n.Kind != yaml.SequenceNode {
				return &fault{line: n.Line, why: "is " + kindName(n) + " where auto, off or a list is needed"}
			}
			for _, item := range n.Content {
				t, err := readTemplate(item)
				if err != nil {
					return err
				}
				c.Templates.List = append(c.Templates.List, t)
			}
			return nil
		},
	}
}

// word reads auto and off. YAML also parses off as false.
func (t *Templates) word(n *yaml.Node) error {
	switch n.Value {
	case templatesAuto:
		t.Auto = true
	case templatesOff, "false":
	default:
		return &fault{line: n.Line, got: sandbar.Quote(n.Value, 60), why: "is neither auto nor off nor a list"}
	}
	return nil
}

// show returns the value for yaml.Dump: a word, or the set fields of each template.
func (t *Templates) show() any {
	switch {
	case t.Auto:
		return templatesAuto
	case len(t.List) == 0:
		return templatesOff
	}
	var out []any
	for _, one := range t.List {
		m := map[string]any{}
		set := func(key string, v any, is bool) {
			if is {
				m[key] = v
			}
		}
		set("language", one.Language, one.Language != "")
		set("image", one.Image, one.Image != "")
		set("warm_imports", one.Imports, len(one.Imports) > 0)
		set("min", one.Min, one.Min != 0)
		set("max", one.Max, one.Max != 0)
		set("memory", FormatSize(one.Memory), one.Memory != 0)
		set("cpus", one.CPUs, one.CPUs != 0)
		set("fork", one.Fork, !one.Fork)
		out = append(out, m)
	}
	return out
}

func readTemplate(n *yaml.Node) (Template, error) {
	t := Template{Fork: true}
	counts := bounds[int64]{hi: 100000}
	targets := map[string]value{
		"language":     text(&t.Language, checkName),
		"image":        text(&t.Image, anyText),
		"warm_imports": list{&t.Imports, checkModule},
		"min":          measure("min", &t.Min, count, counts, "0", "").value,
		"max":          measure("max", &t.Max, count, counts, "0", "").value,
		"memory":       measure("memory", &t.Memory, size, bounds[int64]{lo: 1 << 20, hi: maxSize}, "", "").value,
		"cpus":         measure("cpus", &t.CPUs, cpus, bounds[float64]{lo: 0.01, hi: 4096}, "", "").value,
		"fork":         boolean(&t.Fork),
	}
	err := readParts(n, "a template", templateKeys, targets)
	if err == nil && t.Max != 0 && t.Min > t.Max {
		err = &fault{line: n.Line, why: "has a min above its max"}
	}
	return t, err
}

// readParts reads one element of a list of maps, whose keys are names of targets.
func readParts(n *yaml.Node, what string, keys []string, targets map[string]value) error {
	if n.Kind != yaml.MappingNode {
		return &fault{line: n.Line, why: "holds " + kindName(n) + " where " + what + " is needed, a map"}
	}
	return pairs(n, func(key, v *yaml.Node) error {
		target, ok := targets[key.Value]
		if !ok {
			return &fault{line: key.Line, got: sandbar.Quote(key.Value, 60), why: "is not a part of " + what + didYouMean(key.Value, keys)}
		}
		err := target.load(v)
		if f, ok := errors.AsType[*fault](err); ok {
			return f
		} else if err != nil {
			return &fault{line: v.Line, got: sandbar.Quote(v.Value, 60), why: err.Error()}
		}
		return nil
	})
}

// checkModule accepts the name of a module, which becomes part of a program's text.
func checkModule(s string) error {
	plain := func(r rune) bool {
		return r == '_' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	}
	if s == "" || len(s) > 200 || slices.ContainsFunc([]rune(s), func(r rune) bool { return !plain(r) }) {
		return errors.New("is not the name of a module")
	}
	return nil
}
