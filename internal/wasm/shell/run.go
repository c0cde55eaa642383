package shell

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"mvdan.cc/sh/v3/syntax"

	"github.com/sandbar-dev/sandbar/internal/wasm/memfs"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/program"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/tools"
)

// Program is a program that scripts can run (package program).
type Program = program.Program

// ProgramContext is the environment of a program.
type ProgramContext = program.Context

// DefaultPath is the value of PATH if the environment has none.
const DefaultPath = "/usr/local/bin:/usr/bin:/bin"

// The user that scripts see, and the owner of all files.
const (
	userName = tools.UserName
	userID   = tools.UserID
)

// Config is the configuration of Run.
type Config struct {
	// FS is the file system, prepared by Install. Required.
	FS *memfs.FS
	// Env is the environment, as "NAME=value". HOME, PATH and PWD are added if missing.
	Env []string
	// Dir is the working directory. Default: "/".
	Dir string
	// Umask is the file mode creation mask (umask(2)). Default: 0022; negative: 0.
	Umask int
	// Args is a command with its arguments. It is searched in PATH; "sh" is the shell itself. If
	// Args is empty, Script is run as by sh -c.
	Args   []string
	Script string
	// Stdin is empty if nil. Run does not wait for a blocked Read of it. Stdout and Stderr discard
	// if nil. Calls of both writers are serialized, also if they are the same. A write error ends
	// the writing process like SIGPIPE.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Programs are programs by name besides the shell's utilities. Errors of their streams are
	// returned to them; a utility is ended by such an error.
	Programs map[string]Program
	// Limits bound the script.
	Limits Limits
	// Linger is how long jobs may continue after the first process has ended. Default: 0.
	Linger time.Duration
	// PID is the process id of the first process. Default: 100.
	PID int
	// Signals, by number, are delivered to all processes of the run, as to a process group. Nil:
	// none.
	Signals <-chan int
	// Killed is called before Run returns if a signal has ended the first process. The exit status
	// alone does not distinguish this from an exit with 128 plus the signal.
	Killed func(signal int)
}

// Run runs a command or a script until it ends and returns its exit status: 128 plus the signal for
// a killed process, 127 for a command that does not exist. At the end of ctx, it kills all
// processes and returns the context's error with the status. When Run returns, no goroutine of it
// is left, except for a blocked Read of Stdin.
func Run(ctx context.Context, c Config) (exit int, err error) {
	if c.FS == nil {
		return 0, errors.New("shell: Config.FS is nil")
	}
	sys := newSystem(c)
	own, cancel := context.WithCancel(ctx)
	defer sys.running.Wait()
	defer cancel()
	p, err := sys.newProcess(own, nil, c.streams())
	if err != nil {
		return 0, err
	}
	if c.Signals != nil {
		sys.running.Go(func() { sys.relay(own, c.Signals) })
	}
	status := make(chan int, 1)
	sys.running.Go(func() {
		exit := 70
		defer func() {
			if k, ok := context.Cause(p.ctx).(killed); ok && c.Killed != nil {
				c.Killed(int(k.sig))
			}
			p.end(exit)
			status <- exit
		}()
		exit = sys.main(p, c)
	})
	exit = <-status
	sys.linger(own, c.Linger)
	return exit, ctx.Err()
}

// relay forwards signals to all processes until the end of ctx.
func (sys *system) relay(ctx context.Context, signals <-chan int) {
	for {
		select {
		case <-ctx.Done():
			return
		case n := <-signals:
			sys.mu.Lock()
			all := slices.Collect(maps.Values(sys.live))
			sys.mu.Unlock()
			for _, p := range all {
				p.signal(signal(n))
			}
		}
	}
}

// main runs the first process.
func (sys *system) main(p *process, c Config) int {
	dir := absolute("/", c.Dir)
	umask := fs.FileMode(0o022)
	if c.Umask != 0 {
		umask = fs.FileMode(max(c.Umask, 0)) & 0o777
	}
	pc := &program.Context{Args: c.Args, Env: c.Env, Dir: dir, Umask: umask, FS: sys.fs}
	if len(c.Args) == 0 {
		pc.Args = []string{"sh", "-c", c.Script}
	}
	if _, ok := pc.LookupEnv("PATH"); !ok {
		pc.Env = append(slices.Clone(pc.Env), "PATH="+DefaultPath)
	}
	return sys.exec(p, pc)
}

// linger waits at most d for background jobs.
func (sys *system) linger(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	ended := make(chan struct{})
	go func() {
		sys.running.Wait()
		close(ended)
	}()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	case <-ctx.Done():
	}
}

func newSystem(c Config) *system {
	sys := &system{fs: c.FS, programs: map[string]program.Program{}, own: map[string]bool{}, limits: c.Limits.withDefaults(),
		builtins: builtins(), started: time.Now(), nextPID: cmp.Or(c.PID, firstPID), live: map[int]*process{}}
	for name, p := range tools.Programs() {
		sys.programs[name] = p
		sys.own[name] = true
	}
	for name, p := range c.Programs {
		sys.programs[name] = p
		delete(sys.own, name)
	}
	return sys
}

// streams returns the descriptors of the first process.
func (c Config) streams() descs {
	t := descs{0: newDesc(noHandle{}), 1: newDesc(noHandle{}), 2: newDesc(noHandle{})}
	mu := &sync.Mutex{}
	if c.Stdin != nil {
		t.set(0, newDesc(&inputHandle{r: c.Stdin}))
	}
	if c.Stdout != nil {
		t.set(1, newDesc(outputHandle{c.Stdout, mu}))
	}
	if c.Stderr != nil {
		t.set(2, newDesc(outputHandle{c.Stderr, mu}))
	}
	return t
}

// external runs a program in a new process and waits for it.
func (s *shell) external(args []string) int {
	p, err := s.sys.newProcess(s.p.ctx, s.p, s.p.fds.clone())
	if err != nil {
		s.fatal(2, "Cannot fork: %s", program.ErrorText(err))
	}
	p.ignored = s.ignoredSignals()
	status := 70
	defer func() { p.end(status) }()
	status = s.sys.exec(p, s.programContext(args))
	return status
}

// programContext returns the context for a program of the shell.
func (s *shell) programContext(args []string) *program.Context {
	return &program.Context{Args: args, Env: s.environ(), Dir: s.dir, Umask: s.umask, FS: s.sys.fs}
}

// ignoredSignals returns the signals that programs inherit as ignored.
func (s *shell) ignoredSignals() map[signal]bool {
	ignored := map[signal]bool{}
	for sig, action := range s.traps {
		if action == "" && sig > 0 {
			ignored[sig] = true
		}
	}
	return ignored
}

// maxInterpreters bounds the nesting of scripts whose interpreters are scripts.
const maxInterpreters = 4

// exec makes the process run a command and returns its exit status.
func (sys *system) exec(p *process, c *program.Context) int {
	complain := func(status int, what string) int {
		_, _ = p.fds.write(p, 2, "sh: "+c.Args[0]+": "+what+"\n")
		return status
	}
	if isShell(c.Args[0]) {
		return sys.shell(p, c)
	}
	paths, ok := c.LookupEnv("PATH")
	if !ok {
		paths = DefaultPath
	}
	file := sys.inPath(paths, c.Dir, c.Args[0], true)
	if file == "" {
		return sys.reportCannotRun(c, complain)
	}
	for range maxInterpreters {
		head, err := sys.head(c.Dir, file)
		if err != nil {
			return complain(126, program.ErrorText(err))
		}
		interpreter, arg, ok := shebang(head)
		switch {
		case ok && interpreter == marker:
			return sys.launch(p, c, arg)
		case ok && (isShell(path.Base(interpreter)) || path.Base(interpreter) == "env" && isShell(arg)):
			args := []string{interpreter, file}
			if strings.HasPrefix(arg, "-") {
				args = []string{interpreter, arg, file}
			}
			c.Args = append(args, c.Args[1:]...)
			return sys.shell(p, c)
		case ok:
			args := []string{interpreter}
			if arg != "" {
				args = append(args, arg)
			}
			c.Args = append(append(args, file), c.Args[1:]...)
			file = interpreter
		case bytes.IndexByte(head, 0) >= 0:
			return complain(126, "Exec format error")
		default:
			c.Args = append([]string{"sh", file}, c.Args[1:]...)
			return sys.shell(p, c)
		}
	}
	return complain(126, program.ErrorText(syscall.ELOOP))
}

// reportCannotRun reports why a command cannot be run.
func (sys *system) reportCannotRun(c *program.Context, complain func(int, string) int) int {
	if !strings.Contains(c.Args[0], "/") {
		return complain(127, "not found")
	}
	info, err := sys.fs.Stat(c.Dir, c.Args[0])
	switch {
	case err != nil:
		return complain(127, "not found")
	case info.IsDir():
		return complain(126, "Is a directory")
	}
	return complain(126, "Permission denied")
}

// launch runs a program that is a Go function.
func (sys *system) launch(p *process, c *program.Context, name string) (status int) {
	prog := sys.programs[name]
	if isShell(name) {
		return sys.shell(p, c)
	}
	if prog == nil {
		_, _ = p.fds.write(p, 2, "sh: "+c.Args[0]+": not found\n")
		return 127
	}
	gentle := !sys.own[name]
	in, out, errs := p.stream(0), p.stream(1), p.stream(2)
	in.returnErrors, out.returnErrors, errs.returnErrors = gentle, gentle, gentle
	c.Stdin, c.Stdout, c.Stderr = in, out, errs
	c.Descriptor = func(n int) (io.ReadWriteCloser, error) { return p.descriptor(n, gentle) }
	c.Run = func(ctx context.Context, child *program.Context) int { return sys.run(ctx, p, child) }
	defer func() {
		switch v := recover().(type) {
		case nil:
			if p.ctx.Err() != nil {
				status = 128 + int(p.killedBy().sig)
			}
		case killed:
			status = 128 + int(v.sig)
		default:
			status = 70
			_, _ = p.fds.write(p, 2, path.Base(name)+": internal error\n")
		}
	}()
	return prog(p.ctx, c) & 0xff
}

// run runs a command for a program such as xargs.
func (sys *system) run(ctx context.Context, parent *process, c *program.Context) int {
	fds := parent.fds.clone()
	if d := inputDesc(c.Stdin); d != nil {
		fds.set(0, d)
	}
	if d := outputDesc(c.Stdout); d != nil {
		fds.set(1, d)
	}
	if d := outputDesc(c.Stderr); d != nil {
		fds.set(2, d)
	}
	p, err := sys.newProcess(ctx, parent, fds)
	if err != nil {
		_, _ = parent.fds.write(parent, 2, c.Args[0]+": Cannot fork: "+program.ErrorText(err)+"\n")
		return 126
	}
	status := 70
	defer func() { p.end(status) }()
	copied := *c
	copied.FS = sys.fs
	status = sys.exec(p, &copied)
	return status
}

// inputDesc returns a descriptor for a stream that a program passes to a command; nil: the
// program's own stream.
func inputDesc(r io.Reader) *desc {
	switch r := r.(type) {
	case nil:
		return nil
	case stream:
		return r.d.dup()
	}
	return newDesc(&inputHandle{r: r})
}

// outputDesc is inputDesc for an output.
func outputDesc(w io.Writer) *desc {
	switch w := w.(type) {
	case nil:
		return nil
	case stream:
		return w.d.dup()
	}
	return newDesc(outputHandle{w, &sync.Mutex{}})
}

func isShell(name string) bool {
	return slices.Contains([]string{"sh", "bash", "dash", "ash"}, strings.TrimPrefix(strings.TrimPrefix(name, "/usr"), "/bin/"))
}

// head reads the beginning of an executable file.
func (sys *system) head(dir, file string) ([]byte, error) {
	f, err := sys.fs.OpenFile(dir, file, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	buf := make([]byte, 256)
	n, err := f.Read(buf)
	if err == io.EOF {
		err = nil
	}
	return buf[:n], err
}

// shebang parses a "#!" line.
func shebang(head []byte) (interpreter, arg string, ok bool) {
	line, _, _ := bytes.Cut(head, []byte("\n"))
	text, ok := strings.CutPrefix(string(line), "#!")
	if !ok {
		return "", "", false
	}
	interpreter, arg, _ = strings.Cut(strings.TrimSpace(text), " ")
	return interpreter, strings.TrimSpace(arg), interpreter != ""
}

// inPath searches the directories of PATH for a command, or, if executable is false, for a readable
// file. It returns "" if there is none.
func (sys *system) inPath(paths, dir, name string, executable bool) string {
	usable := func(file string) bool {
		info, err := sys.fs.Stat(dir, file)
		return err == nil && info.Mode().IsRegular() && (!executable || info.Mode().Perm()&0o111 != 0)
	}
	if strings.Contains(name, "/") {
		if usable(name) {
			return name
		}
		return ""
	}
	if name == "" {
		return ""
	}
	for p := range strings.SplitSeq(paths, ":") {
		if p == "" {
			p = "."
		}
		if file := strings.TrimSuffix(p, "/") + "/" + name; usable(file) {
			return file
		}
	}
	return ""
}

// shell runs a shell: sh [options] [-c text | file] [arguments].
func (sys *system) shell(p *process, c *program.Context) int {
	s := &shell{p: p, sys: sys, name: c.Args[0], dir: c.Dir, umask: c.Umask, mainPID: p.pid,
		vars: map[string]*variable{}, funcs: map[string]*syntax.Stmt{}, alias: map[string]string{}, traps: map[signal]string{},
		seed: uint64(time.Now().UnixNano()) + uint64(p.pid)}
	s.importEnv(c.Env)
	return s.run(func() {
		text, what := s.startup(c.Args[1:])
		s.source(text, what)
	})
}

// importEnv sets exported variables from the environment.
func (s *shell) importEnv(env []string) {
	for _, kv := range env {
		if name, value, ok := strings.Cut(kv, "="); ok && syntax.ValidName(name) {
			s.vars[name] = &variable{set: true, str: value, exported: true}
		}
	}
	def := func(name, value string) {
		if s.vars[name] == nil {
			s.vars[name] = &variable{set: true, str: value}
		}
	}
	def("PATH", DefaultPath)
	def("PWD", "")
	def("HOME", tools.Home)
	def("UID", userID)
	def("EUID", userID)
	def("HOSTNAME", tools.HostName)
	def("PS4", "+ ")
	s.vars["IFS"] = &variable{set: true, str: " \t\n"}
	s.vars["OPTIND"] = &variable{set: true, str: "1"}
	s.vars["PWD"].str, s.vars["PWD"].exported = s.dir, true
	s.vars["HOME"].exported, s.vars["PATH"].exported = true, true
}

// startup parses the shell's arguments and returns the script and its name for messages.
func (s *shell) startup(args []string) (text, what string) {
	command, stdin := false, false
	var own []string
	for len(args) > 0 && len(args[0]) > 1 && (args[0][0] == '-' || args[0][0] == '+') {
		a := args[0]
		args = args[1:]
		if a == "--" {
			break
		}
		if strings.HasPrefix(a, "--") { // --norc, --posix, … of bash
			continue
		}
		if a[0] == '-' && strings.Contains(a, "c") {
			command = true
			a = strings.Replace(a, "c", "", 1)
		}
		stdin = stdin || a[0] == '-' && strings.Contains(a, "s")
		a = strings.NewReplacer("s", "", "l", "", "i", "").Replace(a)
		if len(a) > 1 {
			own = append(own, a)
			if strings.HasSuffix(a, "o") && len(args) > 0 {
				own, args = append(own, args[0]), args[1:]
			}
		}
	}
	if _, err := s.setOptions(own); err != nil {
		s.fatal(2, "%v", err)
	}
	switch {
	case command && len(args) == 0:
		s.fatal(2, "-c requires an argument")
	case command:
		if len(args) > 1 {
			s.name, s.params = args[1], args[2:]
		}
		return args[0], s.name
	case len(args) > 0 && stdin:
		s.params = args
	case len(args) > 0:
		s.params = args[1:]
		text, err := s.readScript(args[0])
		if err != nil {
			s.fatal(127, "cannot open %s: %s", args[0], program.ErrorText(err))
		}
		s.name = args[0]
		return text, s.name
	}
	data, err := io.ReadAll(io.LimitReader(s.p.stream(0), int64(s.sys.limits.Bytes)+1))
	if err != nil && err != io.EOF {
		s.fatal(2, "cannot read the script: %s", program.ErrorText(err))
	}
	return string(data), s.name
}
