// Package lang is the language catalogue: for each language a name, the file
// its source goes into and the command that runs it. It is data; nothing here
// starts a program.
package lang

import (
	"slices"
	"sort"
	"strings"

	"github.com/sandbar-dev/sandbar"
)

// Language says how source text of one language is run.
type Language struct {
	// Name is the canonical name, lower case.
	Name string `yaml:"name"`
	// Aliases are other names it answers to.
	Aliases []string `yaml:"aliases"`
	// Commands are commands of some of the aliases, by alias, in the place of
	// Command. Such an alias is the Name of what Find returns, and is not listed.
	Commands map[string][]string `yaml:"-"`
	// File is the name of the source file in sandbar.DefaultDir.
	File string `yaml:"file"`
	// Command runs it; an element "{file}" becomes the path of the source
	// file. Command[0] is the interpreter, looked up in the sandbox's PATH.
	Command []string `yaml:"command"`
	// Env is added to the program's environment.
	Env map[string]string `yaml:"env"`
}

// Interpreter is the program a host needs for this language.
func (l Language) Interpreter() string { return l.Command[0] }

// Argv is the command for the source file at path, followed by args.
func (l Language) Argv(path string, args []string) []string {
	argv := make([]string, 0, len(l.Command)+len(args))
	for _, a := range l.Command {
		argv = append(argv, strings.ReplaceAll(a, "{file}", path))
	}
	return append(argv, args...)
}

// Default is the languages of the Fathom protocol (docs/protocols.md, Fathom:
// "execute — Start Code Execution").
func Default() []Language {
	return []Language{
		{Name: "python", Aliases: []string{"python3", "py"}, File: "main.py", Command: []string{"python3", "{file}"},
			// The file system of a sandbox lives for one program: no byte code is kept.
			Env: map[string]string{"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}},
		{Name: "javascript", Aliases: []string{"js", "node"}, File: "main.js", Command: []string{"node", "{file}"}},
		{Name: "shell", Aliases: []string{"sh", "bash"}, File: "main.sh", Command: []string{"sh", "{file}"},
			Commands: map[string][]string{"bash": {"sh", "-c", preferBash, "bash", "{file}"}}},
		{Name: "elixir", Aliases: []string{"exs"}, File: "main.exs", Command: []string{"elixir", "{file}"},
			// BEAM warns on every start when the locale is not UTF-8.
			Env: map[string]string{"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}},
	}
}

// preferBash runs its arguments with bash where the sandbox has one, and else with
// sh.
const preferBash = `command -v bash >/dev/null 2>&1 && exec bash "$@"; exec sh "$@"`

// Catalogue finds languages by name. The zero Catalogue is empty.
type Catalogue struct {
	byName map[string]Language
	names  []string
}

// New makes a catalogue. A later entry replaces an earlier one of the same
// name, so configuration can change a default. An entry without name, file or
// command, or whose file is not a plain name, is an Invalid error.
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

// Only returns a catalogue of those languages alone, called by any of their
// names. A name that no language has is Unsupported, as from Find.
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

// listed is the name under which a language is listed: that of the language whose
// alias it is, if it is one with a command of its own.
func (c *Catalogue) listed(l Language) string {
	for _, n := range c.names {
		if n != l.Name && !slices.Contains(c.names, l.Name) && slices.Contains(c.byName[n].Aliases, l.Name) {
			return n
		}
	}
	return l.Name
}

// Names are the canonical names, sorted.
func (c *Catalogue) Names() []string { return slices.Clone(c.names) }

// Find returns the language called name, or Unsupported naming those there are.
func (c *Catalogue) Find(name string) (Language, error) {
	if l, ok := c.byName[name]; ok {
		return l, nil
	}
	return Language{}, Unknown(name, c.names)
}

// Unknown is the refusal of a name that no language has, which names those there are.
func Unknown(name string, available []string) error {
	return &sandbar.Error{Code: sandbar.Unsupported, Field: "language",
		Message: "language " + sandbar.Quote(name, 40) + " is not available in this sandbox; available are " + strings.Join(available, ", ")}
}
