package shell

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"mvdan.cc/sh/v3/syntax"

	"github.com/sandbar-dev/sandbar/internal/wasm/shell/format"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/modes"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/program"
)

// builtin is a command that runs in the shell's process.
type builtin func(s *shell, args []string) int

// builtins returns the builtins by name. The parser treats export, readonly, local, declare,
// typeset and let as part of the language, and call executes exec.
func builtins() map[string]builtin {
	return map[string]builtin{
		":":         func(*shell, []string) int { return 0 },
		"true":      func(*shell, []string) int { return 0 },
		"false":     func(*shell, []string) int { return 1 },
		".":         (*shell).sourceFile,
		"source":    (*shell).sourceFile,
		"[":         (*shell).bracket,
		"test":      func(s *shell, args []string) int { return s.classicTest(args[1:]) },
		"alias":     (*shell).aliasCmd,
		"unalias":   (*shell).unalias,
		"break":     (*shell).breakLoop,
		"continue":  (*shell).breakLoop,
		"builtin":   (*shell).builtinCmd,
		"cd":        (*shell).cd,
		"command":   (*shell).commandCmd,
		"declare":   (*shell).declareWords,
		"export":    (*shell).declareWords,
		"local":     (*shell).declareWords,
		"readonly":  (*shell).declareWords,
		"typeset":   (*shell).declareWords,
		"disown":    func(*shell, []string) int { return 0 },
		"echo":      (*shell).echo,
		"eval":      (*shell).eval,
		"exit":      (*shell).exit,
		"getopts":   (*shell).getopts,
		"hash":      func(*shell, []string) int { return 0 },
		"jobs":      (*shell).jobsCmd,
		"kill":      (*shell).kill,
		"mapfile":   (*shell).mapfile,
		"readarray": (*shell).mapfile,
		"printf":    (*shell).printf,
		"pwd":       (*shell).pwd,
		"read":      (*shell).read,
		"return":    (*shell).returnCmd,
		"set":       (*shell).set,
		"shift":     (*shell).shift,
		"shopt":     (*shell).shopt,
		"times":     (*shell).times,
		"trap":      (*shell).trap,
		"type":      (*shell).typeCmd,
		"ulimit":    (*shell).ulimit,
		"umask":     (*shell).umaskCmd,
		"unset":     (*shell).unsetCmd,
		"wait":      (*shell).waitCmd,
	}
}

// usage reports wrong arguments of a builtin.
func (s *shell) usage(name, format string, args ...any) int {
	return s.failure(2, "%s: %s", name, fmt.Sprintf(format, args...))
}

// failure writes a message and returns status.
func (s *shell) failure(status int, format string, args ...any) int {
	s.errorf(format, args...)
	return status
}

func (s *shell) out(text string) int {
	if _, err := io.WriteString(s.p.stream(1), text); err != nil {
		return s.failure(1, "write error: %s", program.ErrorText(err))
	}
	return 0
}

func (s *shell) bracket(args []string) int {
	if args[len(args)-1] != "]" {
		return s.usage("[", "missing ]")
	}
	return s.classicTest(args[1 : len(args)-1])
}

// echo is bash's: it interprets backslashes with -e only.
func (s *shell) echo(args []string) int {
	args = args[1:]
	newline, escapes := true, false
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' && strings.Trim(args[0][1:], "neE") == "" {
		for _, r := range args[0][1:] {
			switch r {
			case 'n':
				newline = false
			case 'e':
				escapes = true
			case 'E':
				escapes = false
			}
		}
		args = args[1:]
	}
	text := strings.Join(args, " ")
	if escapes {
		var stop bool
		if text, stop = format.Echo(text); stop {
			newline = false
		}
	}
	if newline {
		text += "\n"
	}
	return s.out(text)
}

func (s *shell) eval(args []string) int {
	if len(args) == 1 {
		return 0
	}
	defer s.nest()()
	s.status = 0
	s.source(strings.Join(args[1:], " "), "eval")
	return s.status
}

func (s *shell) exit(args []string) int {
	status := s.status
	if s.inTrap {
		status = s.trapStatus
	}
	if len(args) > 1 {
		n, err := strconv.Atoi(args[1])
		if err != nil {
			s.fatal(2, "exit: Illegal number: %s", args[1])
		}
		status = n & 0xff
	}
	panic(exited{status})
}

func (s *shell) returnCmd(args []string) int {
	if len(s.frames) == 0 && s.sourced == 0 {
		return s.exit(args)
	}
	status := s.status
	if len(args) > 1 {
		n, err := strconv.Atoi(args[1])
		if err != nil {
			s.fatal(2, "return: Illegal number: %s", args[1])
		}
		status = n & 0xff
	}
	s.flow = flowReturn
	return status
}

func (s *shell) breakLoop(args []string) int {
	n := 1
	if len(args) > 1 {
		n = s.number(args[1])
		if n < 1 {
			s.fatal(2, "%s: Illegal number: %s", args[0], args[1])
		}
	}
	if s.loops == 0 {
		return 0
	}
	s.flow, s.flowCount = flowBreak, min(n, s.loops)
	if args[0] == "continue" {
		s.flow = flowContinue
	}
	return 0
}

// sourceFile implements "." and "source".
func (s *shell) sourceFile(args []string) int {
	if len(args) < 2 {
		return s.usage(args[0], "filename argument required")
	}
	defer s.nest()()
	name := args[1]
	if !strings.Contains(name, "/") {
		name = s.sys.inPath(s.getOr("PATH", ""), s.dir, name, false)
		if name == "" {
			name = args[1]
		}
	}
	text, err := s.readScript(name)
	if err != nil {
		return s.failure(1, "%s: cannot open %s: %s", args[0], args[1], program.ErrorText(err))
	}
	if len(args) > 2 {
		old := s.params
		s.params = args[2:]
		defer func() { s.params = old }()
	}
	s.sourced++
	defer func() { s.sourced-- }()
	s.status = 0
	s.source(text, args[1])
	if s.flow == flowReturn {
		s.flow = flowNone
	}
	return s.status
}

// readScript reads a script to execute.
func (s *shell) readScript(name string) (string, error) {
	d, err := s.p.open(s.dir, name, os.O_RDONLY, 0)
	if err != nil {
		return "", err
	}
	defer d.release()
	data, err := io.ReadAll(io.LimitReader(stream{p: s.p, d: d}, int64(s.sys.limits.Bytes)+1))
	s.bound(len(data))
	return string(data), err
}

func (s *shell) aliasCmd(args []string) int {
	status := 0
	if len(args) == 1 {
		for _, name := range slices.Sorted(maps.Keys(s.alias)) {
			s.out(name + "=" + singleQuote(s.alias[name]) + "\n")
		}
	}
	for _, a := range args[1:] {
		name, value, ok := strings.Cut(a, "=")
		switch {
		case ok:
			s.alias[name] = value
		case s.alias[name] != "":
			s.out(name + "=" + singleQuote(s.alias[name]) + "\n")
		default:
			s.errorf("alias: %s not found", name)
			status = 1
		}
	}
	return status
}

func (s *shell) unalias(args []string) int {
	for _, a := range args[1:] {
		if a == "-a" {
			clear(s.alias)
		}
		delete(s.alias, a)
	}
	return 0
}

// cd changes the working directory. Without -P, PWD keeps symbolic links.
func (s *shell) cd(args []string) int {
	physical, args := cdOptions(args)
	dir, show := "", false
	switch {
	case len(args) > 1:
		return s.usage("cd", "too many arguments")
	case len(args) == 0:
		dir = s.getOr("HOME", "")
		if dir == "" {
			return s.usage("cd", "HOME not set")
		}
	case args[0] == "-":
		dir, show = s.getOr("OLDPWD", ""), true
		if dir == "" {
			return s.usage("cd", "OLDPWD not set")
		}
	default:
		dir = args[0]
	}
	to, viaPath := s.cdTarget(dir)
	if err := s.chdir(to, physical); err != nil {
		return s.failure(2, "cd: can't cd to %s: %s", dir, program.ErrorText(err))
	}
	if show || viaPath {
		return s.out(s.dir + "\n")
	}
	return 0
}

func cdOptions(args []string) (physical bool, rest []string) {
	rest = args[1:]
	for len(rest) > 0 && len(rest[0]) > 1 && rest[0][0] == '-' {
		if rest[0] == "--" {
			return physical, rest[1:]
		}
		if strings.Trim(rest[0][1:], "LPe@") != "" {
			break
		}
		physical = strings.Contains(rest[0], "P")
		rest = rest[1:]
	}
	return physical, rest
}

// cdTarget searches CDPATH for a relative directory.
func (s *shell) cdTarget(dir string) (string, bool) {
	paths, ok := s.get("CDPATH")
	if ok && dir != "" && dir[0] != '/' && dir != "." && dir != ".." && !strings.HasPrefix(dir, "./") && !strings.HasPrefix(dir, "../") {
		for _, p := range strings.Split(paths, ":") {
			if p != "" && s.isDir(p+"/"+dir) {
				return p + "/" + dir, true
			}
		}
	}
	return dir, false
}

func (s *shell) chdir(dir string, physical bool) error {
	if dir == "" {
		dir = "."
	}
	if _, err := s.sys.fs.ReadDir(s.dir, dir); err != nil {
		return err
	}
	to := absolute(s.dir, dir)
	if physical || !s.isDir(to) {
		var err error
		if to, err = s.sys.fs.Realpath(s.dir, dir); err != nil {
			return err
		}
	}
	s.setVar("OLDPWD", s.dir)
	s.dir = to
	s.setVar("PWD", to)
	return nil
}

func (s *shell) pwd(args []string) int {
	dir := s.dir
	if len(args) > 1 && strings.HasSuffix(args[1], "P") {
		real, err := s.sys.fs.Realpath("/", dir)
		if err != nil {
			return s.failure(1, "pwd: %s", program.ErrorText(err))
		}
		dir = real
	}
	return s.out(dir + "\n")
}

func (s *shell) builtinCmd(args []string) int {
	if len(args) == 1 {
		return 0
	}
	b := s.sys.builtins[args[1]]
	if b == nil {
		return s.failure(1, "builtin: %s: not a shell builtin", args[1])
	}
	return b(s, args[1:])
}

// commandCmd implements command: it runs a command that is not a function, or describes a name (-v,
// -V).
func (s *shell) commandCmd(args []string) int {
	args = args[1:]
	show := byte(0)
	path := s.getOr("PATH", "")
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		opt := args[0]
		args = args[1:]
		if opt == "--" {
			break
		}
		for i := 1; i < len(opt); i++ {
			switch opt[i] {
			case 'v', 'V':
				show = opt[i]
			case 'p':
				path = DefaultPath
			default:
				return s.usage("command", "Illegal option -%c", opt[i])
			}
		}
	}
	if len(args) == 0 {
		return 0
	}
	if show != 0 {
		status := 127
		for _, name := range args {
			if s.describe(name, show == 'V', path) {
				status = 0
			}
		}
		return status
	}
	if b := s.sys.builtins[args[0]]; b != nil {
		return b(s, args)
	}
	return s.external(args)
}

// describe describes a name as a command (type, command -v).
func (s *shell) describe(name string, words bool, path string) bool {
	meaning, file := "", ""
	switch {
	case s.alias[name] != "":
		s.out("alias " + name + "=" + singleQuote(s.alias[name]) + "\n")
		return true
	case syntax.IsKeyword(name):
		meaning = "is a shell keyword"
	case s.funcs[name] != nil:
		meaning = "is a shell function"
	case s.sys.builtins[name] != nil || slices.Contains([]string{"export", "readonly", "local", "declare", "typeset", "let", "exec"}, name):
		meaning = "is a shell builtin"
	default:
		if file = s.sys.inPath(path, s.dir, name, true); file == "" {
			if words {
				s.out(name + ": not found\n")
			}
			return false
		}
		meaning = "is " + file
	}
	switch {
	case words:
		s.out(name + " " + meaning + "\n")
	case file != "":
		s.out(file + "\n")
	default:
		s.out(name + "\n")
	}
	return true
}

func (s *shell) typeCmd(args []string) int {
	args = args[1:]
	mode := ""
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		mode, args = args[0], args[1:]
	}
	status := 0
	for _, name := range args {
		file := s.sys.inPath(s.getOr("PATH", ""), s.dir, name, true)
		ok := true
		switch {
		case mode == "-t":
			ok = s.typeWord(name, file)
		case mode == "-p" && (s.funcs[name] != nil || s.sys.builtins[name] != nil):
		case mode == "-p" || mode == "-P":
			if ok = file != ""; ok {
				s.out(file + "\n")
			}
		default:
			ok = s.describe(name, true, s.getOr("PATH", ""))
		}
		if !ok {
			status = 127
			if mode != "" {
				status = 1
			}
		}
	}
	return status
}

func (s *shell) typeWord(name, file string) bool {
	word := ""
	switch {
	case s.alias[name] != "":
		word = "alias"
	case syntax.IsKeyword(name):
		word = "keyword"
	case s.funcs[name] != nil:
		word = "function"
	case s.sys.builtins[name] != nil:
		word = "builtin"
	case file != "":
		word = "file"
	default:
		return false
	}
	s.out(word + "\n")
	return true
}

func (s *shell) shift(args []string) int {
	n := 1
	if len(args) > 1 {
		n = s.number(args[1])
	}
	if n < 0 || n > len(s.params) {
		return s.failure(1, "shift: can't shift that many")
	}
	s.params = s.params[n:]
	return 0
}

func (s *shell) times([]string) int {
	t := time.Since(s.sys.started).Seconds()
	return s.out(fmt.Sprintf("%dm%.6fs 0m0.000000s\n0m0.000000s 0m0.000000s\n", int(t)/60, t-float64(int(t)/60*60)))
}

func (s *shell) ulimit(args []string) int {
	for _, a := range args[1:] {
		switch a {
		case "-n":
			return s.out(strconv.Itoa(s.sys.limits.Descriptors) + "\n")
		case "-u", "-p":
			return s.out(strconv.Itoa(s.sys.limits.Processes) + "\n")
		}
		if !strings.HasPrefix(a, "-") && a != "unlimited" {
			return s.failure(1, "ulimit: limits are set by whoever runs the sandbox")
		}
	}
	return s.out("unlimited\n")
}

func (s *shell) umaskCmd(args []string) int {
	args = args[1:]
	symbolic := false
	if len(args) > 0 && args[0] == "-S" {
		symbolic, args = true, args[1:]
	}
	if len(args) == 0 {
		if !symbolic {
			return s.out(fmt.Sprintf("%04o\n", s.umask))
		}
		allowed := ^s.umask & 0o777
		show := func(shift uint) string {
			text := ""
			for i, r := range "rwx" {
				if allowed>>shift&(4>>i) != 0 {
					text += string(r)
				}
			}
			return text
		}
		return s.out(fmt.Sprintf("u=%s,g=%s,o=%s\n", show(6), show(3), show(0)))
	}
	if n, err := strconv.ParseUint(args[0], 8, 16); err == nil && n <= 0o777 {
		s.umask = os.FileMode(n)
		return 0
	}
	mode, err := modes.Parse(args[0], ^s.umask&0o777, false, 0)
	if err != nil {
		return s.usage("umask", "Illegal mode: %s", args[0])
	}
	s.umask = ^mode & 0o777
	return 0
}

func (s *shell) unsetCmd(args []string) int {
	funcs, vars := false, false
	for _, a := range args[1:] {
		switch {
		case a == "-f":
			funcs = true
		case a == "-v":
			vars = true
		case funcs:
			delete(s.funcs, a)
		default:
			if name, key, ok := strings.Cut(strings.TrimSuffix(a, "]"), "["); ok {
				if s.vars[s.target(name)] != nil {
					s.unsetElem(name, key)
				}
				continue
			}
			if s.vars[a] == nil && !vars {
				delete(s.funcs, a)
				continue
			}
			s.unset(a)
		}
	}
	return 0
}

// exec replaces the shell by a program. Without a program, it applies redirections to the shell.
func (s *shell) exec(args []string, assigns []*syntax.Assign, redirs []*syntax.Redirect) {
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		if args[0] == "-a" && len(args) > 1 {
			args = args[1:]
		}
		args = args[1:]
	}
	undo, ok := s.redirect(redirs)
	if !ok {
		undo()
		s.status = 2
		panic(exited{2})
	}
	s.status = 0
	if len(args) == 0 {
		for _, a := range assigns {
			s.assign(a, false)
		}
		return
	}
	s.withAssigns(assigns, func() { s.replaceWith(args) })
}
