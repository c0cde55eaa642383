package worker

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/sandbar-dev/sandbar/internal/memfs"
	"github.com/sandbar-dev/sandbar/internal/wasm/call"
	"github.com/sandbar-dev/sandbar/internal/wasmsh/program"
)

// programs is what can be run: the programs that are part of the worker, by
// name, and how files lead to them.
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
	p.addShell()
	return p
}

// names are those of all programs, in order.
func (p *programs) names() []string {
	var names []string
	for n := range p.list {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// defaultPath is where programs are looked for without a PATH.
const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// Limits of a command, as Linux has them.
const (
	maxString  = 128 << 10 // one argument or variable
	maxStrings = 2 << 20   // all of them
)

// find returns the program that args name, and the arguments it gets: a script
// is given to its interpreter. Errors are those of execve(2).
func (p *programs) find(args, env []string, dir string) (program.Program, []string, error) {
	total := 0
	for _, s := range slices.Concat(args, env) {
		total += len(s) + 1
		if len(s) >= maxString || total > maxStrings {
			return nil, nil, syscall.E2BIG
		}
	}
	file, err := p.lookPath(args[0], env, dir)
	if err != nil {
		return nil, nil, err
	}
	return p.load(file, args, dir, 0)
}

// lookPath finds the file of a program as a shell would.
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

// maxScripts is how many interpreters may be scripts themselves.
const maxScripts = 4

// load reads the beginning of a program's file and says what runs it.
func (p *programs) load(file string, args []string, dir string, depth int) (program.Program, []string, error) {
	head, err := p.head(file, dir)
	if err != nil {
		return nil, nil, err
	}
	if name, ok := builtin(head); ok {
		if run := p.list[name]; run != nil {
			return run, args, nil
		}
		return nil, nil, syscall.ENOEXEC
	}
	line, ok := strings.CutPrefix(string(head), "#!")
	if !ok {
		return nil, nil, syscall.ENOEXEC
	}
	if depth == maxScripts {
		return nil, nil, syscall.ELOOP
	}
	line, _, _ = strings.Cut(line, "\n")
	interpreter, option, _ := strings.Cut(strings.TrimSpace(line), " ")
	argv := []string{interpreter}
	if option = strings.TrimSpace(option); option != "" {
		argv = append(argv, option)
	}
	return p.load(interpreter, append(append(argv, file), args[1:]...), dir, depth+1)
}

// head is the first bytes of a file that may be executed.
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
	case !executableMode(i):
		return nil, syscall.EACCES
	}
	head := make([]byte, 256)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return head[:n], nil
}

func executableMode(i *memfs.Info) bool {
	return i.Mode().IsRegular() && i.Mode()&fs.FileMode(0o111) != 0
}

// run runs a program for another one.
func (p *programs) run(ctx context.Context, c *program.Context) int {
	run, args, err := p.find(c.Args, c.Env, c.Dir)
	if err != nil {
		_, _ = io.WriteString(c.Stderr, c.Args[0]+": "+program.ErrorText(err)+"\n") // nobody may read it
		if errors.Is(err, syscall.ENOENT) {
			return 127
		}
		return 126
	}
	with := *c
	with.Args = args
	return run(ctx, &with)
}
