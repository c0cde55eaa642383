// Package pycorpus is a corpus of Python programs, for tests that run each program in two
// ways and compare the results. The directory programs has one archive per topic.
package pycorpus

import (
	"embed"
	"io/fs"
	"path"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

//go:embed programs/*.txtar
var archives embed.FS

// Program is one program. Lines at its top that begin with "#args", "#env" and "#stdin"
// set its arguments, environment and input; the default input is empty.
type Program struct {
	Name, Code string
	Args       []string
	Env        map[string]string
	Stdin      *string
}

// Programs returns all programs of the corpus.
func Programs(t testing.TB) (all []Program) {
	t.Helper()
	names, err := fs.Glob(archives, "programs/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatalf("no programs: %v", err)
	}
	for _, name := range names {
		b, err := archives.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		topic := strings.TrimSuffix(path.Base(name), ".txtar")
		for _, f := range txtar.Parse(b).Files {
			all = append(all, parse(topic+"/"+f.Name, string(f.Data)))
		}
	}
	return all
}

func parse(name, code string) Program {
	p := Program{Name: name, Code: code, Env: map[string]string{}}
	for line := range strings.Lines(code) {
		word, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch word {
		case "#args":
			p.Args = strings.Fields(rest)
		case "#env":
			k, v, _ := strings.Cut(rest, "=")
			p.Env[k] = v
		case "#stdin":
			text := strings.ReplaceAll(rest, `\n`, "\n")
			p.Stdin = &text
		default:
			return p
		}
	}
	return p
}
