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

// launch is a program that is ready to be started: every name resolved.
type launch struct {
	path  string   // of the executable, absolute
	args  []string // args[0] as the caller gave it
	env   []string
	mark  string // of this program and all it starts
	dir   string // absolute
	files int64  // limit of open descriptors; 0 leaves it alone
}

// markName is the variable that every program of this driver carries. Its
// value has two words for each sandbox the program is in, one that names the
// sandbox and one that names the program that was started in it: a daemon that
// itself runs inside one adds its own.
const markName = "SANDBAR_LOCAL"

// inherited are the variables a program gets from the daemon: where programs
// are, and which language and time zone people here use. Nothing else, so that
// a token in the daemon's environment stays there.
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

// base is what every program of the sandbox has in its environment.
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

// environment merges; later maps win.
func environment(layers ...map[string]string) map[string]string {
	env := map[string]string{}
	for _, l := range layers {
		for k, v := range l {
			env[k] = v
		}
	}
	return env
}

// envList is the form the operating system takes, with the marks, which nobody
// can override.
func envList(env map[string]string, mark string) []string {
	if outer := os.Getenv(markName); outer != "" {
		mark = outer + " " + mark
	}
	list := make([]string, 0, len(env)+1)
	for k, v := range env {
		if k != markName {
			list = append(list, k+"="+v)
		}
	}
	slices.Sort(list)
	return append(list, markName+"="+mark)
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

// checkDir makes sure the working directory is one. Later it could only be
// told from a missing program by guessing.
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

// lookUp finds the executable: a name with a slash from dir, one without in
// the PATH that the program itself will have.
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

// absolute is path seen from dir. It does not clean "a/../b": where a is a
// link that is another place.
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

// parentOf is the directory that a path lies in. Unlike filepath.Dir it does
// not clean the path.
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

// cutDefaultDir returns what follows sandbar.DefaultDir in path, and whether
// path is that directory or below it.
func cutDefaultDir(path string) (string, bool) {
	rest, ok := strings.CutPrefix(path, sandbar.DefaultDir)
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	return rest, true
}

// startError tells why the operating system did not start a program.
func startError(name string, err error) error {
	code := sandbar.Internal
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		code = sandbar.NotFound // the program, or the interpreter that its first line names
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOEXEC), errors.Is(err, syscall.EISDIR):
		code = sandbar.Denied
	case errors.Is(err, syscall.E2BIG):
		code = sandbar.TooLarge
	case errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		code = sandbar.Exhausted
	}
	return &sandbar.Error{Code: code, Field: "args", Message: "program " + sandbar.Quote(name, 200) + " cannot be started", Err: cause(err)}
}

// cause takes the bare system error out of the wrapping of package os, whose
// text holds paths of the host.
func cause(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}

// contextError is nil while ctx goes on, then Canceled or Timeout.
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
