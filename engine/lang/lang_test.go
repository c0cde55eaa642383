package lang

import (
	"slices"
	"testing"
)

// bash is an alias of shell with its own command, and is not listed.
func TestBash(t *testing.T) {
	c, err := New(Default()...)
	if err != nil {
		t.Fatal(err)
	}
	bash, err := c.Find("bash")
	if err != nil || bash.Name != "bash" || bash.Interpreter() != "sh" || !slices.Contains(bash.Command, preferBash) || slices.Contains(c.Names(), "bash") {
		t.Errorf("%+v, %v; listed are %v", bash, err, c.Names())
	}
	for _, name := range []string{"shell", "sh"} {
		if l, err := c.Find(name); err != nil || l.Name != "shell" || !slices.Equal(l.Command, []string{"sh", "{file}"}) {
			t.Errorf("%s: %+v, %v", name, l, err)
		}
	}
	// Allowing the alias allows the language.
	only, err := c.Only("bash")
	if err != nil || !slices.Equal(only.Names(), []string{"shell"}) {
		t.Fatalf("%v, %v", only, err)
	}
	if l, err := only.Find("shell"); err != nil || l.Name != "shell" {
		t.Errorf("%+v, %v", l, err)
	}
	// An operator's own language "bash" replaces the alias.
	own, err := New(append(Default(), Language{Name: "bash", File: "x", Command: []string{"/opt/bash", "{file}"}})...)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := own.Find("bash"); err != nil || l.Interpreter() != "/opt/bash" {
		t.Errorf("%+v, %v", l, err)
	}
	if only, err = own.Only("bash"); err != nil || !slices.Equal(only.Names(), []string{"bash"}) {
		t.Errorf("%v, %v", only.Names(), err)
	}
}
