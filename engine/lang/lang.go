// Package lang is the language catalogue: for each language a name, the name of its source file and
// the command that runs it. It is data; the package starts no program.
package lang

import (
	"slices"
	"sort"
	"strings"

	"github.com/sandbar-dev/sandbar"
)

// Language is one language of the catalogue.
type Language struct {
	// Name is the canonical name, lower case.
	Name string `yaml:"name"`
	// Aliases are further names of the language.
	Aliases []string `yaml:"aliases"`
	// Commands has the commands of those aliases that have one of their own, by alias. Find returns
	// such an alias as Name; Names does not list it.
	Commands map[string][]string `yaml:"-"`
	// File is the name of the source file in sandbar.DefaultDir.
	File string `yaml:"file"`
	// Command runs the source file. An element "{file}" becomes the path of the file. Command[0] is
	// the interpreter, looked up in the sandbox's PATH.
	Command []string `yaml:"command"`
	// Env is added to the program's environment.
	Env map[string]string `yaml:"env"`
}

// Interpreter returns the program that a sandbox needs for this language.
func (l Language) Interpreter() string { return l.Command[0] }

// Argv returns the command for the source file at path, followed by args.
func (l Language) Argv(path string, args []string) []string {
	argv := make([]string, 0, len(l.Command)+len(args))
	for _, a := range l.Command {
		argv = append(argv, strings.ReplaceAll(a, "{file}", path))
	}
	return append(argv, args...)
}

// Default returns the languages of the Fathom protocol (docs/protocols.md, Fathom: "execute — Start
// Code Execution").
func Default() []Language {
	return []Language{
		{Name: "python", Aliases: []string{"python3", "py"}, File: "main.py", Command: []string{"python3", "{file}"},
			// no .pyc files: most sandboxes run one program
			Env: map[string]string{"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}},
		{Name: "javascript", Aliases: []string{"js", "node"}, File: "main.js", Command: []string{"node", "{file}"}},
		{Name: "shell", Aliases: []string{"sh", "bash"}, File: "main.sh", Command: []string{"sh", "{file}"},
			Commands: map[string][]string{"bash": {"sh", "-c", preferBash, "bash", "{file}"}}},
		{Name: "elixir", Aliases: []string{"exs"}, File: "main.exs", Command: []string{"elixir", "{file}"},
			// BEAM warns at every start if the locale is not UTF-8.
			Env: map[string]string{"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}},
	}
}

// preferBash runs its arguments with bash if the sandbox has it, otherwise with sh.
const preferBash = `command -v bash >/dev/null 2>&1 && exec bash "$@"; exec sh "$@"`

// Catalogue finds languages by name. The zero Catalogue is empty.
type Catalogue struct {
	byName map[string]Language
	names  []string
}

// New creates a catalogue. A later entry replaces an earlier one of the same name, so configuration
// can change a default. Invalid: an entry has no name, file or command, or its file is not a plain
// file name.
func New(languages ...Language) (*Catalogue, error) {
	c := &Catalogue{byName: map[string]Language{}}
	for _, l := range languages {
		if err := check(l); err != nil {
			return nil, err
		}
		if !slices.Contains(c.names, l.Name) {
			c.names = append(c.names, l.Name)
		}
		for _, n := range append([]string{l.Name}, l.Aliases...) {
			called := l
			if own := l.Commands[n]; own != nil {
				called.Name, called.Command = n, own
			}
			c.byName[strings.ToLower(n)] = called
		}
	}
	sort.Strings(c.names)
	return c, nil
}

func check(l Language) error {
	bad := func(what string) error {
		return &sandbar.Error{Code: sandbar.Invalid, Field: "languages",
			Message: "language " + sandbar.Quote(l.Name, 40) + ": " + what,
			Fix:     "give name, file (a plain file name) and command (an interpreter and \"{file}\")"}
	}
	switch {
	case l.Name == "" || l.Name != strings.ToLower(l.Name):
		return bad("name must be lower case and not empty")
	case l.File == "" || strings.ContainsAny(l.File, "/\x00") || l.File == "." || l.File == "..":
		return bad("file must be a plain file name")
	case len(l.Command) == 0 || l.Command[0] == "":
		return bad("command is empty")
	}
	return nil
}

// Only returns a catalogue of the languages with these names or aliases. An unknown name is
// Unsupported, as in Find.
func (c *Catalogue) Only(names ...string) (*Catalogue, error) {
	var kept []Language
	for _, n := range names {
		l, err := c.Find(n)
		if err != nil {
			return nil, err
		}
		kept = append(kept, c.byName[c.listed(l)])
	}
	return New(kept...)
}

// listed returns the name under which Names lists a language: for an alias with a command of its
// own, the name of its language.
func (c *Catalogue) listed(l Language) string {
	for _, n := range c.names {
		if n != l.Name && !slices.Contains(c.names, l.Name) && slices.Contains(c.byName[n].Aliases, l.Name) {
			return n
		}
	}
	return l.Name
}

// Names returns the canonical names, sorted.
func (c *Catalogue) Names() []string { return slices.Clone(c.names) }

// Find returns the language with that name or alias. Unsupported: there is none; the error lists
// the available ones.
func (c *Catalogue) Find(name string) (Language, error) {
	if l, ok := c.byName[name]; ok {
		return l, nil
	}
	return Language{}, Unknown(name, c.names)
}

// Unknown is the error for an unknown language. It lists the available ones.
func Unknown(name string, available []string) error {
	return &sandbar.Error{Code: sandbar.Unsupported, Field: "language",
		Message: "language " + sandbar.Quote(name, 40) + " is not available in this sandbox; available are " + strings.Join(available, ", ")}
}
