package worker

import (
	"embed"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/sandbar-dev/sandbar/internal/wasm/memfs"
)

// library is what the interpreters find in the sandbox.
//
//go:embed all:lib
var library embed.FS

// libraryDir is where.
const libraryDir = "/lib/sandbar" // not in /usr, of which Python sees only what is inside its own module

// installLibrary copies it there.
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

// pythonEnv is the environment of a Python program: with our directory on its
// path, whose sitecustomize takes it off again, and the directory to be in,
// since WASI has no notion of one.
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

// pythonScript is the index of the program's file in the arguments of Python, 0
// if it is no file: with -c or -m, or from standard input.
func pythonScript(args []string) int {
	for i := 1; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "-" || a == "":
			return 0
		case !strings.HasPrefix(a, "-"):
			return i
		case a == "-X", a == "-W", a == "--check-hash-based-pycs":
			i++ // its value
		case strings.HasPrefix(a, "--"):
		case strings.ContainsAny(a, "cm"): // also at the end of others, as in -uc
			return 0
		}
	}
	return 0
}

// pythonRun makes the arguments and environment with which Python finds what
// it is to run. It takes a relative name to start at the root, before any of
// our code runs; sitecustomize puts the name back that the program sees.
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
