package worker

import (
	"embed"
	"io/fs"
	"strings"

	"github.com/sandbar-dev/sandbar/internal/memfs"
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
	path := libraryDir + "/python"
	for _, kv := range env {
		if own, ok := strings.CutPrefix(kv, "PYTHONPATH="); ok {
			if own != "" {
				path += ":" + own
			}
			continue
		}
		out = append(out, kv)
	}
	return append(out, "PYTHONPATH="+path, "SANDBAR_DIR="+dir)
}
