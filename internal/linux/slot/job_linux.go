package slot

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/linux/slot/interp"
)

// Job is one program of a sandbox.
type Job struct {
	// Args, Env and Dir are as in wire.Start.
	Args, Env []string
	Dir       string
	// File, if not "", is a new file of the default directory, with Code, written before the
	// program starts. It is a name without directories.
	File, Code string
}

// jobList is the list of a job. It begins where the list of its Program ends.
type jobList struct {
	*list
	word    uint64
	results []uint64 // words with the results of system calls that look for the program
}

// compile writes the list of a job. It does what the agent does when it starts a program (package
// agent, fork), with the rights of the program.
func (p *Program) compile(j *Job) *jobList {
	l := &jobList{list: &list{at: jobAt, data: jobDataAt}}
	l.fail = l.label()
	l.word = l.words(0, 0)
	l.set(interp.Base+interp.FailedAt, 0)
	dir := j.Dir
	switch {
	case dir == "":
		dir = p.cwd
	case dir[0] != '/':
		dir = p.cwd + "/" + dir
	}
	if j.File != "" {
		l.writeFile(p.cwd+"/"+j.File, j.Code)
	}
	l.open(stepDir, dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC)
	l.call(stepDir, unix.SYS_FCHDIR, loaded(l.word))
	l.exec(j.Args, agent.MergeEnv(p.env, j.Env), dir)
	l.place(l.fail)
	l.call("", interp.Store, 1).optional().save(p.failed)
	l.call("", unix.SYS_EXIT_GROUP, 127).optional()
	return l
}

// The names of steps whose failure has a meaning to the caller.
const (
	stepDir  = "enter the working directory"
	stepCode = "write the code"
)

func (l *jobList) writeFile(name, text string) {
	l.call(stepCode, unix.SYS_OPENAT, cwd, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o644).save(l.word)
	if text != "" {
		whole := l.label()
		l.call(stepCode, unix.SYS_WRITE, loaded(l.word), l.str(text), len(text)).save(l.word + 8)
		l.equal(loaded(l.word+8), len(text), whole)
		// The rest does not fit. The next call fails with the reason.
		l.call(stepCode, unix.SYS_PWRITE64, loaded(l.word), l.str("x"), 1, len(text)-1)
		l.jump(l.fail)
		l.place(whole)
	}
	l.call(stepCode, unix.SYS_CLOSE, loaded(l.word))
}

// open opens a path without magic links (openat2(2)).
func (l *jobList) open(name, path string, flags uint64) *step {
	how := l.words(flags, 0, unix.RESOLVE_NO_MAGICLINKS) // struct open_how
	return l.call(name, unix.SYS_OPENAT2, cwd, path, how, unix.SizeofOpenHow).save(l.word)
}

// result makes a word for a result.
func (l *jobList) result() uint64 {
	addr := l.words(0)
	l.results = append(l.results, addr)
	return addr
}

// negative is the lower half of a result that is an error.
func negative(e unix.Errno) int { return int(uint32(-int32(e))) }

// exec executes the program, which it looks for in the PATH of its environment.
func (l *jobList) exec(args, env []string, dir string) {
	argv, envp, name := l.vector(args), l.vector(env), args[0]
	if strings.Contains(name, "/") {
		r := l.result()
		l.open("", name, unix.O_PATH|unix.O_CLOEXEC).save(r).optional()
		l.equal(loaded(r), negative(unix.ELOOP), l.fail)
		l.call("start the program", unix.SYS_EXECVE, name, argv, envp).save(l.result())
		return
	}
	path := agent.DefaultPath
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	for d := range strings.SplitSeq(path, ":") {
		if d == "" || d[0] != '/' {
			d = dir + "/" + d
		}
		next, r := l.label(), l.result()
		full := d + "/" + name
		l.open("", full, unix.O_PATH|unix.O_CLOEXEC).failTo(next)
		l.call("start the program", unix.SYS_EXECVE, full, argv, envp).save(r).optional()
		// a directory, or a file without permission, as in a shell
		l.equal(loaded(r), negative(unix.EACCES), next)
		l.jump(l.fail)
		l.place(next)
	}
}
