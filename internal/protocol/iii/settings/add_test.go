package settings

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar"
)

// TestAdd tests that the block is appended to any file unchanged, or that the file is refused.
func TestAdd(t *testing.T) {
	indented := "  " + strings.ReplaceAll(strings.TrimSuffix(block, "\n"), "\n", "\n  ") + "\n"
	for name, c := range map[string]struct{ before, after string }{
		"nothing":                {"", "workers:\n" + indented},
		"a comment":              {"# mine\n", "# mine\nworkers:\n" + indented},
		"a list of workers":      {"workers:\n  - name: http # the first\n    config: {port: 1}\n\n", "workers:\n  - name: http # the first\n    config: {port: 1}\n\n" + indented},
		"a list at the margin":   {"port: 1\nworkers:\n- name: http", "port: 1\nworkers:\n- name: http\n" + block},
		"no workers":             {"port: 1\n", "port: 1\nworkers:\n" + indented},
		"a bare list":            {"- name: http\n", "- name: http\n" + block},
		"a bare list, moved in":  {"  - name: http\n", "  - name: http\n" + indented},
		"the worker is there":    {"workers:\n  - name: iii-sandbox\n", ""},
		"as a map":               {"workers: {iii-sandbox: {}}\n", ""},
		"workers not at the end": {"workers:\n  - name: http\nport: 1\n", "error"},
		"workers in one line":    {"workers: [{name: http}]\n", "error"},
		"workers are a map":      {"workers:\n  http: {}\n", "error"},
		"all in one line":        {"{port: 1}\n", "error"},
		"no YAML":                {"a: [\n", "error"},
		"a document that ends":   {"port: 1\n...\n", "error"},
		"a text at the end":      {"port: 1\ntext: |\n  a\n", "port: 1\ntext: |\n  a\nworkers:\n" + indented},
	} {
		t.Run(name, func(t *testing.T) {
			out, added, err := Add([]byte(c.before))
			switch c.after {
			case "error":
				if sandbar.CodeOf(err) != sandbar.Invalid || added {
					t.Errorf("%q, %v, %v", out, added, err)
				}
				return
			case "":
				if err != nil || added || string(out) != c.before {
					t.Errorf("%q, %v, %v", out, added, err)
				}
				return
			}
			if err != nil || !added {
				t.Fatalf("%v, %v", added, err)
			}
			if diff := cmp.Diff(c.after, string(out)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			config, err := Load(out)
			want := Default()
			want.ImageAllowlist = []string{"python", "node"}
			if diff := cmp.Diff(want, config); diff != "" || err != nil {
				t.Errorf("%v; (-want +got):\n%s", err, diff)
			}
			if again, added, err := Add(out); added || err != nil || string(again) != string(out) {
				t.Errorf("a second time: %v, %v, %q", added, err, again)
			}
		})
	}
}
