package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTemplates(t *testing.T) {
	for _, c := range []struct {
		file string
		want Templates
	}{
		{"", Templates{Auto: true}},
		{"templates: auto", Templates{Auto: true}},
		{"templates: off", Templates{}},
		{"templates: false", Templates{}},
		{"templates: \"off\"", Templates{}},
		{"templates: []", Templates{}},
		{"templates: [{}]", Templates{List: []Template{{Fork: true}}}},
		{"templates: [{language: python, image: i, warm_imports: [numpy, a.b_1], min: 1, max: 3, memory: 1GiB, cpus: 1.5, fork: false}, {language: shell}]",
			Templates{List: []Template{{Language: "python", Image: "i", Imports: []string{"numpy", "a.b_1"}, Min: 1, Max: 3, Memory: 1 << 30, CPUs: 1.5},
				{Language: "shell", Fork: true}}}},
	} {
		t.Run(c.file, func(t *testing.T) {
			got, err := load(t, c.file, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got.Templates); diff != "" {
				t.Error(diff)
			}
			again, err := load(t, got.YAML(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, again.Templates); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestBadTemplates(t *testing.T) {
	for _, c := range []struct{ value, want string }{
		{"on", "neither auto nor off nor a list"},
		{"{}", "is a map where auto, off or a list is needed"},
		{"[python]", "where a template is needed"},
		{"[{langauge: python}]", "did you mean \"language\"?"},
		{"[{min: 3, max: 2}]", "min above its max"},
		{"[{min: -1}]", "-1"},
		{"[{max: many}]", "many"},
		{"[{memory: 1B}]", "out of range"},
		{"[{warm_imports: [\"os; import x\"]}]", "is not the name of a module"},
		{"[{warm_imports: numpy}]", "warm_imports"},
		{"[{fork: 3}]", "3"},
	} {
		t.Run(c.value, func(t *testing.T) {
			_, err := load(t, "templates: "+c.value, nil)
			if err == nil || !strings.Contains(err.Error(), "templates") || !strings.Contains(err.Error(), c.want) && c.want != "warm_imports" {
				t.Errorf("got %v, want an error of templates with %q", err, c.want)
			}
		})
	}
}
