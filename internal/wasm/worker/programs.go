package worker

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/sandbar-dev/sandbar/internal/wasm/call"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/program"
)

// programs has the interpreters, and finds the files of commands.
type programs struct {
	w    *worker
	list map[string]program.Program
}

func newPrograms(w *worker) *programs {
	p := &programs{w: w, list: map[string]program.Program{}}
	for name, l := range map[string]call.Language{
		"python": call.Python, "python3": call.Python,
		"node": call.JavaScript, "nodejs": call.JavaScript, "qjs": call.JavaScript,
	} {
		p.list[name] = w.interpreter(l)
	}
	return p
}

// defaultPath is the search path without PATH in the environment.
const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// Limits of a command, as in Linux (execve(2)).
const (
	maxString  = 128 << 10 // one argument or variable, in bytes
	maxStrings = 2 << 20   // all of them, in bytes
)

// check returns an error of execve(2) if a command cannot be started.
func (p *programs) check(args, env []string, dir string) error {
	total := 0
	for _, s := range slices.Concat(args, env) {
		total += len(s) + 1
		if len(s) >= maxString || total > maxStrings {
			return syscall.E2BIG
		}
	}
	file, err := p.lookPath(args[0], env, dir)
	if err != nil {
		return err
	}
	return p.checkFile(file, dir, 0)
}

// lookPath finds the file of a program as a shell does.
func (p *programs) lookPath(name string, env []string, dir string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	search := defaultPath
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			search = v
		}
	}
	var denied error = syscall.ENOENT
	for _, d := range strings.Split(search, ":") {
		file := path.Join(dir, d, name)
		if path.IsAbs(d) {
			file = path.Join(d, name)
		}
		i, err := p.w.fs.Stat(dir, file)
		if err != nil || !i.Mode().IsRegular() {
			continue
		}
		if i.Mode()&0o111 != 0 {
			return file, nil
		}
		denied = syscall.EACCES
	}
	return "", denied
}

// maxScripts bounds the nesting of scripts whose interpreters are scripts.
const maxScripts = 4

// marker is the interpreter in the first line of a file that represents a Go function of the shell.
const marker = "program"

// checkFile returns an error if a file cannot be executed. It must be a program of the shell, or a
// script whose interpreter can be executed.
func (p *programs) checkFile(file, dir string, depth int) error {
	head, err := p.head(file, dir)
	if err != nil {
		return err
	}
	line, ok := strings.CutPrefix(string(head), "#!")
	switch {
	case !ok:
		return syscall.ENOEXEC
	case depth == maxScripts:
		return syscall.ELOOP
	}
	line, _, _ = strings.Cut(line, "\n")
	interpreter, _, _ := strings.Cut(strings.TrimSpace(line), " ")
	if interpreter == marker {
		return nil
	}
	return p.checkFile(interpreter, dir, depth+1)
}

// head returns the first bytes of an executable file.
func (p *programs) head(file, dir string) ([]byte, error) {
	f, err := p.w.fs.OpenFile(dir, file, syscall.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	i, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !i.Mode().IsRegular() || i.Mode()&fs.FileMode(0o111) == 0:
		return nil, syscall.EACCES
	}
	head := make([]byte, 256)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return head[:n], nil
}
