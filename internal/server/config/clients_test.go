package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar"
)

func TestClients(t *testing.T) {
	c, err := load(t, "clients:\n  - {name: ci, token_file: /t, max_sandboxes: 2, max_queue: 3, rate: 0.5, burst: 4}\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []Client{{Name: "ci", TokenFile: "/t", MaxSandboxes: 2, MaxQueue: 3, Rate: 0.5, Burst: 4}}
	if diff := cmp.Diff(want, c.Clients); diff != "" {
		t.Error(diff)
	}
	for in, part := range map[string]string{
		"clients: ci":                                                          "is text where a list is needed",
		"clients: [ci]":                                                        "where a client is needed, a map",
		"clients: [{name: ci}]":                                                "needs a name and a token_file",
		"clients: [{token_file: /t}]":                                          "needs a name and a token_file",
		"clients: [{name: a, tokn: /t}]":                                       "token_file",
		"clients: [{name: a, rate: -1}]":                                       "rate",
		"clients: [{name: a, rate: 0}]":                                        "rate",
		"clients: [{name: a, token: x}]":                                       "is not a part of a client",
		"clients: [{name: a b, rate: 1}]":                                      "a b",
		"clients: [{name: a, token_file: /t, burst: 2}]":                       "has a burst without a rate",
		"clients: [{name: a, token_file: /t}, {name: a, token_file: /u}]":      "is the name of two clients",
		"clients: [{name: a, token_file: /t, max_sandboxes: 0, max_queue: 1}]": "max_sandboxes",
	} {
		if _, err := load(t, in, nil); sandbar.CodeOf(err) != sandbar.Invalid || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v, which lacks %q", in, err, part)
		}
	}
}

func TestClientTokens(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a, b, empty := file("a", "battery\n"), file("b", "staple"), file("empty", "")
	with := func(files ...string) *Config {
		c := &Config{}
		for i, f := range files {
			c.Clients = append(c.Clients, Client{Name: string(rune('a' + i)), TokenFile: f})
		}
		return c
	}
	got, err := with(a, b).ClientTokens("own")
	if diff := cmp.Diff(map[string]string{"a": "battery", "b": "staple"}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	for name, c := range map[string]*Config{"twice": with(a, a), "empty": with(empty), "missing": with(filepath.Join(dir, "no"))} {
		if _, err := c.ClientTokens("own"); sandbar.CodeOf(err) != sandbar.Invalid || strings.Contains(err.Error(), "battery") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := with(a).ClientTokens("battery"); sandbar.CodeOf(err) != sandbar.Invalid {
		t.Errorf("the daemon's own: %v", err)
	}
}
