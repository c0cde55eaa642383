package local

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/sandbar-dev/sandbar"
)

// launch has the resolved parameters of a program to start.
type launch struct {
	path  string   // of the executable, absolute
	args  []string // args[0] as the caller gave it
	env   []string
	tag   string // of this program and its descendants
	dir   string // absolute
	files int64  // RLIMIT_NOFILE; 0 leaves it unchanged
}

// tagVariable is the environment variable that tags every program of this driver. Its value has two
// words per sandbox, one for the sandbox and one for the program that was started in it: a daemon
// inside a sandbox adds its own.
const tagVariable = "SANDBAR_LOCAL"

// inherited are the variables that programs inherit from the daemon: paths, language and time zone.
// All others may contain secrets.
var inherited = []string{"PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_COLLATE", "LC_MESSAGES", "LC_MONETARY", "LC_NUMERIC", "LC_TIME", "TZ"}

func inheritedEnv() map[string]string {
	env := map[string]string{}
	for _, name := range slices.Concat(inherited, inheritedBySystem) {
		if v, ok := os.LookupEnv(name); ok {
			env[name] = v
		}
	}
	if env["PATH"] == "" {
		env["PATH"] = defaultPath
	}
	return env
}

// base returns the environment of every program of the sandbox.
func (s *sandbox) base() map[string]string {
	env := map[string]string{}
	for _, name := range homeNames {
		env[name] = s.home
	}
	for _, name := range tmpNames {
		env[name] = s.tmp
	}
	return env
}

// environment merges maps; later ones win.
func environment(layers ...map[string]string) map[string]string {
	env := map[string]string{}
	for _, l := range layers {
		for k, v := range l {
			env[k] = v
		}
	}
	return env
}

// envList returns the environment as a list, with the tags, which cannot be overridden.
func envList(env map[string]string, tag string) []string {
	if outer := os.Getenv(tagVariable); outer != "" {
		tag = outer + " " + tag
	}
	list := make([]string, 0, len(env)+1)
	for k, v := range env {
		if k != tagVariable {
			list = append(list, k+"="+v)
		}
	}
	slices.Sort(list)
	return append(list, tagVariable+"="+tag)
}

func checkCmd(c sandbar.Cmd) error {
	if len(c.Args) == 0 || c.Args[0] == "" {
		return &sandbar.Error{Code: sandbar.Invalid, Field: "args", Message: "there is no program to start: args is empty"}
	}
	for _, a := range c.Args {
		if strings.ContainsRune(a, 0) {
			return &sandbar.Error{Code: sandbar.Invalid, Field: "args", Message: "an argument contains a NUL byte"}
		}
	}
	if strings.ContainsRune(c.Dir, 0) {
		return &sandbar.Error{Code: sandbar.Invalid, Field: "dir", Message: "the directory's name contains a NUL byte"}
	}
	return sandbar.CheckEnv(c.Env)
}

// checkDir checks the working directory. After a failed start it could not be distinguished from a
// missing program.
func checkDir(dir, asked string) error {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err == nil {
		return nil
	}
	code := sandbar.NotFound
	if errors.Is(err, fs.ErrPermission) {
		code = sandbar.Denied
	}
	return &sandbar.Error{Code: code, Field: "dir",
		Message: "the working directory " + sandbar.Quote(asked, 200) + " cannot be entered", Err: cause(err)}
}

// lookUp finds the executable: a name with a slash relative to dir, one without in the program's
// own PATH.
func lookUp(name, dir string, env map[string]string) (string, error) {
	var candidates []string
	if strings.ContainsRune(name, '/') || strings.ContainsRune(name, filepath.Separator) {
		candidates = []string{absolute(name, dir)}
	} else {
		for _, p := range filepath.SplitList(env["PATH"]) {
			if p != "" {
				candidates = append(candidates, absolute(filepath.Join(p, name), dir))
			}
		}
	}
	refused := ""
	for _, c := range candidates {
		path, err := executable(c)
		if err == nil {
			return path, nil
		}
		if refused == "" && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			refused = c
		}
	}
	if refused != "" {
		return "", &sandbar.Error{Code: sandbar.Denied, Field: "args", Message: "program " + sandbar.Quote(name, 200) + " may not be executed"}
	}
	return "", &sandbar.Error{Code: sandbar.NotFound, Field: "args", Message: "there is no program " + sandbar.Quote(name, 200)}
}

// absolute returns path relative to dir as an absolute path. It does not clean "a/../b", which is
// another directory if a is a link.
func absolute(path, dir string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return joinKeeping(dir, path)
}

// joinKeeping joins without cleaning.
func joinKeeping(dir, path string) string {
	if path == "" {
		return dir
	}
	return dir + string(filepath.Separator) + path
}

// parentOf returns the parent directory of a path. Unlike filepath.Dir it does not clean the path.
func parentOf(path string) string {
	dir, _ := splitLast(path)
	return dir
}

// splitLast splits an absolute path before its last name, without cleaning.
func splitLast(path string) (dir, name string) {
	for len(path) > 1 && os.IsPathSeparator(path[len(path)-1]) {
		path = path[:len(path)-1]
	}
	i := len(path) - 1
	for i >= 0 && !os.IsPathSeparator(path[i]) {
		i--
	}
	return path[:i+1], path[i+1:]
}

// cutDefaultDir returns the part of path after sandbar.DefaultDir, and whether path is that
// directory or below it.
func cutDefaultDir(path string) (string, bool) {
	rest, ok := strings.CutPrefix(path, sandbar.DefaultDir)
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	return rest, true
}

// startError converts the error of a failed start.
func startError(name string, err error) error {
	code := sandbar.Internal
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		code = sandbar.NotFound // the program, or the interpreter of its first line
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOEXEC), errors.Is(err, syscall.EISDIR):
		code = sandbar.Denied
	case errors.Is(err, syscall.E2BIG):
		code = sandbar.TooLarge
	case errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		code = sandbar.Exhausted
	}
	return &sandbar.Error{Code: code, Field: "args", Message: "program " + sandbar.Quote(name, 200) + " cannot be started", Err: cause(err)}
}

// cause returns the errno in an error of package os, whose text contains paths of the host.
func cause(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}

// contextError returns nil while ctx continues, then Canceled or Timeout.
func contextError(ctx context.Context) error {
	switch err := ctx.Err(); {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return &sandbar.Error{Code: sandbar.Timeout, Message: "the caller's time ran out", Err: err}
	default:
		return &sandbar.Error{Code: sandbar.Canceled, Message: "the caller withdrew", Err: err}
	}
}
