package worker

import (
	"embed"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/sandbar-dev/sandbar/internal/wasm/memfs"
)

// library has the files that the interpreters need in the sandbox.
//
//go:embed all:lib
var library embed.FS

// libraryDir is the directory of the library in the sandbox.
const libraryDir = "/lib/sandbar" // outside /usr, of which Python's WASI build sees only its embedded files

// installLibrary copies the library into the sandbox.
func installLibrary(f *memfs.FS) error {
	return fs.WalkDir(library, "lib", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		at := libraryDir + name[len("lib"):]
		if d.IsDir() {
			return f.Mkdir("/", at, 0o755)
		}
		b, err := library.ReadFile(name)
		if err != nil {
			return err
		}
		return f.WriteFile("/", at, b, 0o644)
	})
}

// pythonEnv returns the environment of a Python program. PYTHONPATH begins with the library's
// directory, whose sitecustomize removes it again. SANDBAR_DIR is the working directory, which WASI
// does not have.
func pythonEnv(env []string, dir string) []string {
	out := make([]string, 0, len(env)+2)
	search := libraryDir + "/python"
	for _, kv := range env {
		if own, ok := strings.CutPrefix(kv, "PYTHONPATH="); ok {
			if own != "" {
				search += ":" + own
			}
			continue
		}
		out = append(out, kv)
	}
	return append(out, "PYTHONPATH="+search, "SANDBAR_DIR="+dir)
}

// pythonScript returns the index of the script's file in the arguments of Python. It returns 0 if
// the program is not a file, but an argument of -c or -m or standard input.
func pythonScript(args []string) int {
	for i := 1; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "-" || a == "":
			return 0
		case !strings.HasPrefix(a, "-"):
			return i
		case a == "-X", a == "-W", a == "--check-hash-based-pycs":
			i++ // skip the option's value
		case strings.HasPrefix(a, "--"):
		case strings.ContainsAny(a, "cm"): // also at the end of a group, as in -uc
			return 0
		}
	}
	return 0
}

// pythonRun returns the arguments and environment for Python. WASI's Python resolves a relative
// script name at the root directory before sitecustomize runs. So the name is made absolute, and
// sitecustomize restores sys.argv[0] from SANDBAR_ARGV0.
func pythonRun(args, env []string, dir string) (argv, environ []string) {
	environ = pythonEnv(env, dir)
	i := pythonScript(args)
	if i == 0 || path.IsAbs(args[i]) {
		return args, environ
	}
	argv = slices.Clone(args)
	argv[i] = path.Join(dir, args[i])
	return argv, append(environ, "SANDBAR_ARGV0="+args[i])
}
