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

// maxFile is the size of the largest configuration file, in bytes.
const maxFile = 1 << 20

// fileVariable names the configuration file. It is not a setting itself.
const fileVariable = envPrefix + "CONFIG"

// Input is the input of Load.
type Input struct {
	// File is the configuration file; it must exist. If it is empty, the variable SANDBAR_CONFIG
	// names the file. Without the variable, the file at DefaultFile is read if it exists.
	File string
	// Environ is the environment, in the format of os.Environ.
	Environ []string
	// Flags are the settings of the command line.
	Flags []Flag
	// Foreign reads a file that is not a configuration of Sandbar. If the file configures the
	// iii-sandbox worker, it returns the settings below "iii" that the worker has too, and the rest
	// of the file is ignored; otherwise it returns nil.
	Foreign func(data []byte) (*III, error)
	// Drivers are the drivers of this build. If it is not nil, any other driver or option is an
	// error.
	Drivers []Driver
}

// Flag is a setting of the command line.
type Flag struct {
	Path  string // of the setting, such as "listen"
	Name  string // of the flag, such as "--listen"
	Value string
}

// Driver describes a driver's settings.
type Driver struct {
	Name    string
	Summary string
	Options map[string]string // documentation, by name
}

// Load reads the settings. Every mistake is a *sandbar.Error of code Invalid. Several are joined,
// in the order of file, variables, flags.
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

// resolve sets the values that depend on this machine.
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
	// A string may be unset even if its value "" is not allowed.
	if _, ok := f.value.(scalar[string]); ok && f.initial == "" {
		return
	}
	if err := f.value.set(f.initial); err != nil {
		// a bug in the table, which every test would meet
		panic(fmt.Sprintf("config: default of %s: %v", f.path, err))
	}
}

// invalid returns the error for a setting's text: its origin, the text, the reason and the allowed
// values.
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

// variables returns the SANDBAR_ variables and those that name directories.
func variables(environ []string) map[string]string {
	vars := map[string]string{}
	for _, e := range environ {
		if name, value, ok := strings.Cut(e, "="); ok {
			vars[name] = value
		}
	}
	return vars
}

// notSettings matches variables with Sandbar's prefix that are not settings: those that Kubernetes
// sets in every container for a service "sandbar", and the one that marks programs in a sandbox of
// the driver local, which may be sandbar itself.
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
				Fix:     unknownFix(name, known, "unset it; \"sandbar serve --print-config\" lists all settings")})
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

// foreign reads a file of another program, and reports whether it is one.
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

// readFile reads a file of at most maxFile bytes. It need not be a regular file: a configuration
// may come through a pipe.
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

// reason returns an error's text without the operation and path, which the caller's message has
// already.
func reason(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}

// silent keeps err for errors.Is. The message has its text already.
func silent(err error) error { return &cause{err} }

type cause struct{ err error }

func (c *cause) Error() string { return "" }
func (c *cause) Unwrap() error { return c.err }

// failAt reports a malformed file.
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

// place returns "file:line", or the file alone if the line is unknown.
func place(path string, line int) string {
	if line == 0 {
		return printable(path)
	}
	return printable(path) + ":" + strconv.Itoa(line)
}

// printable returns a name unchanged if it is safe for a terminal, otherwise quoted.
func printable(name string) string {
	if q := strconv.QuoteToGraphic(name); len(name) > 200 || q != `"`+name+`"` {
		return sandbar.Quote(name, 200)
	}
	return name
}

// section reads a map of settings below the path prefix ("" or "limits.").
func (l *loader) section(file, prefix string, n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return // a section with only commented lines
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
		Fix:     unknownFix(key.Value, below, "valid here: "+strings.Join(below, ", "))})
}

// namesBelow returns the settings and sections directly below a prefix, sorted.
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

// SetLimit sets the limit with that name in the file ("memory", "cpu_shares") in l from a flag's
// text, with the formats, words and widest range of limits.default. Errors are as in Load for a
// flag. An unknown name is Internal.
func SetLimit(l *sandbar.Limits, name, flag, text string) error {
	d := defaultLimits()
	d.disk = unlimitedWord // a flag has no default
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
