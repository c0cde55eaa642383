package shell

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"runtime"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/sandbar-dev/sandbar/internal/wasm/shell/program"
)

// shell is the state of one shell or subshell. One goroutine uses it.
type shell struct {
	p   *process
	sys *system

	name   string // $0
	params []string
	dir    string
	umask  fs.FileMode
	vars   map[string]*variable
	funcs  map[string]*syntax.Stmt
	alias  map[string]string
	opts   options
	traps  map[signal]string
	// outerTraps are the traps of the parent shell of a command substitution, until it sets its
	// own.
	outerTraps map[signal]string
	trapStatus int  // $? at the start of a trap's action, for exit without a status
	last       bool // the next simple command is the last of the process
	jobs       []*job
	others     []*job // jobs of the parent shell, for the builtin jobs

	status      int
	pipeStatus  []int
	substStatus int   // status of the last command substitution; -1: none
	procSubsts  []int // descriptors of process substitutions
	mainPID     int   // $$, which subshells keep
	lastBG      int   // $!
	lastArg     string
	line        int
	seed        uint64
	optPos      int // position of getopts in a group of options

	frames    []*frame
	funcNames []string
	sourced   int // nesting of sourced files
	loops     int
	flow      flow
	flowCount int // number of loops to leave
	condition int // > 0 in a condition, where -e does not apply
	depth     int
	inTrap    bool
}

// options are the options of set and shopt.
type options struct {
	allexport, errexit, noclobber, noexec, noglob, nounset, pipefail, verbose, xtrace      bool
	dotglob, extglob, globstar, nocaseglob, nocasematch, nullglob, failglob, expandAliases bool
}

// flow is a pending break, continue or return.
type flow uint8

const (
	flowNone flow = iota
	flowBreak
	flowContinue
	flowReturn
)

// exited is the panic value that ends a shell, by exit or by a fatal error.
type exited struct{ status int }

// fatal writes a message and ends the shell.
func (s *shell) fatal(status int, format string, args ...any) {
	s.errorf(format, args...)
	panic(exited{status})
}

// errorf writes a message to the shell's standard error.
func (s *shell) errorf(format string, args ...any) {
	prefix := s.name + ": "
	if s.line > 0 {
		prefix = fmt.Sprintf("%s: %d: ", s.name, s.line)
	}
	_, _ = io.WriteString(s.p.stream(2), prefix+fmt.Sprintf(format, args...)+"\n")
}

// fork returns a subshell: a new process with a copy of the shell's state.
func (s *shell) fork() (*shell, error) {
	p, err := s.sys.newProcess(s.p.ctx, s.p, s.p.fds.clone())
	if err != nil {
		return nil, err
	}
	sub := *s
	sub.p = p
	sub.vars = make(map[string]*variable, len(s.vars))
	for name, v := range s.vars {
		sub.vars[name] = v.clone()
	}
	sub.funcs, sub.alias = maps.Clone(s.funcs), maps.Clone(s.alias)
	sub.frames = nil
	for range s.frames {
		// "local" and "return" must work in the subshell; its variables need not be restored.
		sub.frames = append(sub.frames, &frame{hidden: map[string]*variable{}})
	}
	sub.jobs, sub.procSubsts = nil, nil
	sub.others = s.jobs
	sub.random()
	sub.last = false
	sub.traps = map[signal]string{}
	p.ignored = map[signal]bool{}
	for sig, action := range s.traps {
		if action == "" {
			sub.traps[sig] = ""
			p.ignored[sig] = true
		}
	}
	return &sub, nil
}

// mustFork is fork, but ends the shell on an error.
func (s *shell) mustFork() *shell {
	sub, err := s.fork()
	if err != nil {
		s.fatal(2, "Cannot fork: %s", program.ErrorText(err))
	}
	return sub
}

// run executes f in the shell's process and then the EXIT trap. It returns the exit status.
func (s *shell) run(f func()) int {
	ok := s.guard(func() {
		f()
		s.runTraps()
	})
	if action := s.traps[sigEXIT]; action != "" && ok {
		delete(s.traps, sigEXIT)
		status := s.status
		s.guard(func() {
			s.inTrap, s.trapStatus = true, status
			s.flow = flowNone
			s.source(action, "trap")
			s.status = status
		})
	}
	return s.status & 0xff
}

// guard executes f and recovers the panics that end a shell. alive is false if the shell was
// killed.
func (s *shell) guard(f func()) (alive bool) {
	defer func() {
		switch v := recover().(type) {
		case nil:
			alive = true
		case exited:
			s.status, alive = v.status, true
		case killed:
			s.status = 128 + int(v.sig)
		default:
			// An internal error ends this process only.
			s.status = 70
			_, _ = s.p.fds.write(s.p, 2, fmt.Sprintf("%s: internal error: %v\n", s.name, v))
		}
	}()
	f()
	return true
}

// write writes to a descriptor. An error does not end the process.
func (t descs) write(p *process, n int, text string) (int, error) {
	if t[n] == nil {
		return 0, nil
	}
	return t[n].write(p.ctx, []byte(text))
}

// start runs f in the shell's process in the background.
func (s *shell) start(f func()) {
	s.sys.running.Go(func() {
		status := 0
		defer func() { s.p.end(status) }()
		status = s.run(f)
	})
}

// wait runs f in the shell's process and waits for it.
func (s *shell) wait(f func()) int {
	status := 0
	defer func() { s.p.end(status) }()
	status = s.run(f)
	return status
}

// job is a background process of a shell.
type job struct {
	p        *process
	text     string
	reported bool // its end has been reported to the user
}

// maxFrames bounds the stack frames of the parser, which is recursive.
const maxFrames = 60_000

// guardedText passes text to the parser in small parts, and fails if the text so far is nested too
// deeply.
type guardedText struct{ text string }

var errNesting = fmt.Errorf("nested too deeply")

func (g *guardedText) Read(p []byte) (int, error) {
	if g.text == "" {
		return 0, io.EOF
	}
	var pc [1]uintptr
	if runtime.Callers(maxFrames, pc[:]) > 0 {
		return 0, errNesting
	}
	n := copy(p[:min(len(p), 512)], g.text)
	g.text = g.text[n:]
	return n, nil
}

func newParser() *syntax.Parser { return syntax.NewParser(syntax.Variant(syntax.LangBash)) }

// source parses and executes text line by line, so that lines before a syntax error are executed. A
// line is executed when the next one begins, because here-documents follow it.
func (s *shell) source(text, what string) {
	s.bound(len(text))
	var line []*syntax.Stmt
	for st, err := range newParser().StmtsSeq(&guardedText{text}) {
		if err == nil {
			err = nameless(st)
		}
		if n := len(line); n > 0 && (err != nil || st.Pos().Line() > line[n-1].End().Line()) {
			if err == nil || errorLine(err) > line[n-1].End().Line() {
				s.stmts(line)
			}
			if line = nil; s.flow != flowNone {
				return
			}
		}
		if err != nil {
			s.line = 0
			if what != s.name {
				s.fatal(2, "%s: %s", what, syntaxError(err))
			}
			s.fatal(2, "%s", syntaxError(err))
		}
		line = append(line, st)
	}
	s.stmts(line)
}

// nameless returns the error for a function without a name, which the parser accepts before a
// digit.
func nameless(st *syntax.Stmt) (err error) {
	syntax.Walk(st, func(n syntax.Node) bool {
		if f, ok := n.(*syntax.FuncDecl); ok && f.Name == nil {
			err = syntax.ParseError{Pos: f.Pos(), Text: "a function has no name"}
		}
		return err == nil
	})
	return err
}

// errorLine returns the line of a syntax error, or 0.
func errorLine(err error) uint {
	switch e := err.(type) {
	case syntax.ParseError:
		return e.Pos.Line()
	case syntax.LangError:
		return e.Pos.Line()
	}
	return 0
}

func syntaxError(err error) string {
	if p, ok := err.(syntax.ParseError); ok {
		return fmt.Sprintf("line %d: syntax error: %s", p.Pos.Line(), p.Text)
	}
	if l, ok := err.(syntax.LangError); ok {
		return fmt.Sprintf("line %d: syntax error: %s", l.Pos.Line(), l.Feature)
	}
	return "syntax error: " + strings.TrimPrefix(err.Error(), "reading ")
}
