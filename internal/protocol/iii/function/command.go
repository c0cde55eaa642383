package function

import (
	"strings"
	"unicode"

	"github.com/sandbar-dev/sandbar/internal/protocol/iii/shell"
)

// command has the three ways to name a command.
type command struct {
	cmd        string
	args, argv []string
}

// resolve returns the program and its arguments. raw is the request, for the fix of an ambiguous
// one.
func (c command) resolve(raw request) ([]string, error) {
	blank := strings.ContainsFunc(c.cmd, unicode.IsSpace)
	switch {
	case len(c.argv) > 0 && (c.cmd != "" || len(c.args) > 0):
		e := fail(S001, "argv was given together with cmd or args; use one form: {\"argv\": [\"node\", \"-v\"]}")
		return nil, e.with(raw.fixed(nil, "cmd", "args"), "the same call with argv alone")
	case len(c.argv) > 0:
		return notEmpty(c.argv)
	case blank && len(c.args) > 0:
		return nil, c.ambiguous(raw)
	case blank:
		words, ok := shell.Split(c.cmd)
		if !ok {
			return nil, fail(S001, "cmd has unbalanced quotes or ends in a backslash: %s; to pass words as they are use {\"argv\": [\"node\", \"-v\"]}", quote(c.cmd))
		}
		return notEmpty(words)
	}
	return notEmpty(append([]string{c.cmd}, c.args...))
}

func notEmpty(argv []string) ([]string, error) {
	if len(argv) == 0 || argv[0] == "" {
		return nil, fail(S001, "cmd is empty; say what to run: {\"cmd\": \"node -v\"}, {\"cmd\": \"node\", \"args\": [\"-v\"]} or {\"argv\": [\"node\", \"-v\"]}")
	}
	return argv, nil
}

// ambiguous returns the error for a command line that also has arguments.
func (c command) ambiguous(raw request) error {
	e := fail(S001, "ambiguous: cmd %s has blanks and args are given; put all into cmd, or the program alone into cmd, or all into argv", quote(c.cmd))
	if words, ok := shell.Split(c.cmd); ok && len(words) > 0 {
		return e.with(raw.fixed(map[string]any{"argv": append(words, c.args...)}, "cmd", "args"), "the same call with argv")
	}
	return e
}
