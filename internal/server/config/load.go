package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/text/suggest"
)

// maxFile is the largest configuration file that is read.
const maxFile = 1 << 20

// fileVariable names the configuration file; it is not a setting itself.
const fileVariable = envPrefix + "CONFIG"

// Input is what Load reads.
type Input struct {
	// File is the configuration file; it must exist. If empty, the variable
	// SANDBAR_CONFIG names it, and if that is unset too, the file at
	// DefaultFile is read if there is one.
	File string
	// Environ is the environment, as os.Environ gives it.
	Environ []string
	// Flags are the settings given on the command line.
	Flags []Flag
	// Foreign reads a file that is no configuration of Sandbar. It returns nil
	// unless the file configures the iii-sandbox worker, and otherwise the
	// settings below "iii" that the worker has too; then nothing else in the
	// file is looked at.
	Foreign func(data []byte) (*III, error)
	// Drivers are those of this build. If not nil, a driver or an option that
	// is not among them is an error.
	Drivers []Driver
}

// Flag is a setting given on the command line.
type Flag struct {
	Path  string // of the setting, such as "listen"
	Name  string // of the flag, such as "--listen"
	Value string
}

// Driver is a driver as far as settings go.
type Driver struct {
	Name    string
	Summary string
	Options map[string]string // name → what it is for
}

// Load reads the settings. Every error in them is a *sandbar.Error with code
// Invalid; if there are several they come joined, in the order of file,
// variables, flags.
func Load(in Input) (*Config, error) {
	c := &Config{origins: map[string]string{}}
	l := loader{config: c, fields: map[string]field{}}
	for _, f := range c.fields() {
		l.fields[f.path] = f
		l.setDefault(f)
	}
	environ := variables(in.Environ)
	l.file(in, environ)
	l.environ(environ)
	l.abstraction(environ, in.Drivers)
	l.flags(in.Flags)
	l.dockerDefaults(environ)
	if len(l.errs) == 0 {
		l.contradictions(in.Drivers)
	}
	if len(l.errs) > 0 {
		return nil, errors.Join(l.errs...)
	}
	c.resolve(environ)
	return c, nil
}

// resolve fills in what depends on this machine.
func (c *Config) resolve(environ map[string]string) {
	if c.RuntimeDir == "" {
		c.RuntimeDir = defaultRuntimeDir(environ)
	}
	if c.StateDir == "" {
		c.StateDir = defaultStateDir(environ)
	}
}

// loader collects errors while it fills a Config.
type loader struct {
	config *Config
	fields map[string]field
	errs   []error
}

func (l *loader) fail(e *sandbar.Error) { l.errs = append(l.errs, e) }

func (l *loader) setDefault(f field) {
	// A text may be unset even where it may not be set to nothing.
	if _, ok := f.value.(scalar[string]); ok && f.initial == "" {
		return
	}
	if err := f.value.set(f.initial); err != nil {
		panic(fmt.Sprintf("config: default of %s: %v", f.path, err)) // a fault of the table, met by every test
	}
}

// invalid is the error for a setting's text: where it stands, what it is, what
// is wrong with it and what is allowed.
func (f field) invalid(where, got string, err error) *sandbar.Error {
	if ft, ok := errors.AsType[*fault](err); ok && ft.got != "" {
		got = ft.got
	}
	if got != "" && !f.secret {
		where += ": " + got
	} else {
		where += ": the value"
	}
	return &sandbar.Error{Code: sandbar.Invalid, Field: f.path, Message: where + " " + err.Error(), Fix: "allowed: " + f.allowed}
}

// variables are the SANDBAR_ ones and those that tell where directories are.
func variables(environ []string) map[string]string {
	vars := map[string]string{}
	for _, e := range environ {
		if name, value, ok := strings.Cut(e, "="); ok {
			vars[name] = value
		}
	}
	return vars
}

// notSettings matches variables that begin like settings and were never meant
// as such: what Kubernetes sets in every container for a service that is
// called "sandbar", and the mark of a program that runs in a sandbox of the
// driver local, which may well be sandbar again.
var notSettings = regexp.MustCompile(`^SANDBAR_(SERVICE_(HOST|PORT(_.*)?)|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?|LOCAL)$`)

func (l *loader) environ(vars map[string]string) {
	byEnv := map[string]field{}
	known := []string{fileVariable}
	for _, f := range l.fields {
		byEnv[f.env()] = f
		known = append(known, f.env())
	}
	slices.Sort(known)
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		if !strings.HasPrefix(name, envPrefix) || name == fileVariable || notSettings.MatchString(name) {
			continue
		}
		f, ok := byEnv[name]
		if !ok {
			l.fail(&sandbar.Error{Code: sandbar.Invalid, Field: printable(name),
				Message: "environment variable " + printable(name) + " is not a setting of Sandbar",
				Fix:     unknownFix(name, known, "unset it; \"sandbar serve --print-config\" lists all there are")})
			continue
		}
		if err := f.value.set(vars[name]); err != nil {
			l.fail(f.invalid(name, sandbar.Quote(vars[name], 60), err))
			continue
		}
		l.config.origins[f.path] = name
	}
}

func unknownFix(name string, known []string, otherwise string) string {
	if meant := suggest.Name(name, known); meant != "" {
		return "did you mean " + meant + "?"
	}
	return otherwise
}

func (l *loader) flags(flags []Flag) {
	for _, flag := range flags {
		f := l.fields[flag.Path]
		if err := f.value.set(flag.Value); err != nil {
			l.fail(f.invalid(flag.Name, sandbar.Quote(flag.Value, 60), err))
			continue
		}
		l.config.origins[f.path] = flag.Name
	}
}

// file reads the configuration file, if there is one.
func (l *loader) file(in Input, vars map[string]string) {
	path, where, required := in.File, "--config", true
	if path == "" {
		path, required = vars[fileVariable]
		where = fileVariable
		if required && path == "" {
			l.fail(&sandbar.Error{Code: sandbar.Invalid, Field: fileVariable, Message: fileVariable + " is set but empty",
				Fix: "name a file, or unset it"})
			return
		}
	}
	if path == "" {
		path = defaultFile(vars)
	}
	if path == "" {
		return
	}
	data, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) && !required {
		return
	}
	if err != nil {
		l.fail(&sandbar.Error{Code: sandbar.Invalid, Field: where, Message: "configuration file " + printable(path) + ": " + reason(err),
			Fix: "name a YAML file of at most 1 MiB that can be read", Err: silent(err)})
		return
	}
	root, err := parseYAML(data)
	if in.Foreign != nil && !l.ours(root) && l.foreign(in, path, data) {
		return
	}
	if err != nil {
		l.failAt(path, err)
	} else if root != nil {
		l.section(path, "", root)
	}
}

// foreign reads a file that is another program's; it reports whether it is.
func (l *loader) foreign(in Input, path string, data []byte) bool {
	settings, err := in.Foreign(data)
	if err != nil {
		e := *sandbar.AsError(err)
		e.Message = printable(path) + ": " + e.Message
		l.fail(&e)
		return true
	}
	if settings != nil {
		l.take(settings, printable(path))
	}
	return settings != nil
}

// readFile reads a file that is not too large. It takes anything that can be
// read to its end: a configuration may come through a pipe.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = errors.New("is larger than 1 MiB")
	}
	return data, err
}

// reason is an error's text without the operation and path that the caller
// names already.
func reason(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}

// silent keeps err for errors.Is; its text stands in the message already.
func silent(err error) error { return &cause{err} }

type cause struct{ err error }

func (c *cause) Error() string { return "" }
func (c *cause) Unwrap() error { return c.err }

// failAt reports a fault of the file's form.
func (l *loader) failAt(path string, err error) {
	f, ok := errors.AsType[*fault](err)
	if !ok {
		f = &fault{why: err.Error()}
	}
	message := place(path, f.line) + ": "
	if f.got != "" {
		message += f.got + " "
	}
	l.fail(&sandbar.Error{Code: sandbar.Invalid, Message: message + f.why,
		Fix: "a configuration is one YAML document; \"sandbar serve --print-config\" prints a complete one"})
}

// place is "file:line", or the file alone if the line is not known.
func place(path string, line int) string {
	if line == 0 {
		return printable(path)
	}
	return printable(path) + ":" + strconv.Itoa(line)
}

// printable is a name as it is if it cannot harm a terminal, else in quotes.
func printable(name string) string {
	if q := strconv.QuoteToGraphic(name); len(name) > 200 || q != `"`+name+`"` {
		return sandbar.Quote(name, 200)
	}
	return name
}

// section reads a map of settings, below the path prefix ("" or "limits.").
func (l *loader) section(file, prefix string, n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return // a section whose lines are all commented out
	}
	if n.Kind != yaml.MappingNode {
		what := "the document"
		if prefix != "" {
			what = sandbar.Quote(strings.TrimSuffix(prefix, "."), 60)
		}
		l.failAt(file, &fault{line: n.Line, got: what, why: "is " + kindName(n) + " where a map of settings is needed"})
		return
	}
	err := pairs(n, func(key, v *yaml.Node) error {
		l.setting(file, prefix, key, v)
		return nil
	})
	if err != nil {
		l.failAt(file, err)
	}
}

func (l *loader) setting(file, prefix string, key, v *yaml.Node) {
	path := prefix + key.Value
	if f, ok := l.fields[path]; ok {
		where := place(file, key.Line)
		if err := f.value.load(v); err != nil {
			if ft, ok := errors.AsType[*fault](err); ok && ft.line != 0 {
				where = place(file, ft.line)
			}
			got := ""
			if v.Kind == yaml.ScalarNode && v.ShortTag() != "!!null" {
				got = sandbar.Quote(v.Value, 60)
			}
			l.fail(f.invalid(where+": "+path, got, err))
			return
		}
		l.config.origins[path] = where
		return
	}
	below := l.namesBelow(prefix)
	if slices.Contains(below, key.Value) {
		l.section(file, path+".", v)
		return
	}
	name := sandbar.Quote(path, 80)
	l.fail(&sandbar.Error{Code: sandbar.Invalid, Field: path,
		Message: place(file, key.Line) + ": " + name + " is not a setting",
		Fix:     unknownFix(key.Value, below, "here can stand "+strings.Join(below, ", "))})
}

// namesBelow are the settings and sections directly below a prefix, sorted.
func (l *loader) namesBelow(prefix string) []string {
	names := map[string]bool{}
	for path := range l.fields {
		if rest, ok := strings.CutPrefix(path, prefix); ok {
			name, _, _ := strings.Cut(rest, ".")
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// SetLimit sets the limit called name in the file ("memory", "cpu_shares") in
// l from the text of a flag, with the forms, words and widest range that
// limits.default has. The error is as Load's for a flag. A name that is no
// limit is Internal.
func SetLimit(l *sandbar.Limits, name, flag, text string) error {
	d := defaultLimits()
	d.disk = unlimitedWord // who wants half the memory does not say
	for _, f := range limitFields("limits", l, d) {
		if f.path != "limits."+name {
			continue
		}
		if err := f.value.set(text); err != nil {
			f.path = flag
			return f.invalid(flag, sandbar.Quote(text, 60), err)
		}
		return nil
	}
	return sandbar.Errorf(sandbar.Internal, "no limit is called %q", name)
}
