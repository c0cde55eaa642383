package shell

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"mvdan.cc/sh/v3/syntax"

	"github.com/sandbar-dev/sandbar/internal/wasm/shell/glob"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/program"
)

func (s *shell) stmts(list []*syntax.Stmt) {
	for _, st := range list {
		s.stmt(st)
		if s.flow != flowNone {
			return
		}
	}
}

// runCondition runs a condition: a list whose failure does not end the shell under -e.
func (s *shell) runCondition(list []*syntax.Stmt) bool {
	s.condition++
	defer func() { s.condition-- }()
	s.stmts(list)
	return s.status == 0
}

// nest increments the depth of evaluation and returns the function that decrements it.
func (s *shell) nest() func() {
	s.depth++
	if s.depth > s.sys.limits.Depth {
		s.fatal(2, "maximum nesting level exceeded (%d)", s.sys.limits.Depth)
	}
	return func() { s.depth-- }
}

func (s *shell) stmt(st *syntax.Stmt) {
	s.p.check()
	defer s.nest()()
	s.runTraps()
	if s.flow != flowNone {
		return
	}
	s.line = int(st.Pos().Line())
	if s.opts.noexec {
		return
	}
	switch {
	case st.Background || st.Disown:
		s.background(st)
		s.status = 0
		return
	case st.Coprocess:
		s.fatal(2, "coprocesses are not supported")
	}
	if st.Negated {
		s.condition++
	}
	s.command(st)
	if st.Negated {
		s.condition--
		s.status = oneIf(s.status == 0)
		return
	}
	if s.status != 0 && s.condition == 0 && s.flow == flowNone && failsShell(st.Cmd) {
		s.failed()
	}
}

// failsShell reports whether -e applies to a command's status. The status of other commands is that
// of an inner command, to which -e was applied.
func failsShell(c syntax.Command) bool {
	switch c := c.(type) {
	case nil, *syntax.CallExpr, *syntax.Subshell, *syntax.TestClause, *syntax.ArithmCmd, *syntax.DeclClause, *syntax.LetClause:
		return true
	case *syntax.BinaryCmd:
		return c.Op == syntax.Pipe || c.Op == syntax.PipeAll
	}
	return false
}

// failed handles the failure of a command: the ERR trap and -e.
func (s *shell) failed() {
	if action := s.traps[sigERR]; action != "" && !s.inTrap {
		s.trapAction(action)
	}
	if s.opts.errexit {
		panic(exited{s.status})
	}
}

func oneIf(b bool) int {
	if b {
		return 1
	}
	return 0
}

// background starts a statement as a job.
func (s *shell) background(st *syntax.Stmt) {
	sub := s.mustFork()
	if sub.p.fds[0] == nil || !redirectsInput(st) {
		sub.p.fds.set(0, newDesc(noHandle{}))
	}
	copied := *st
	copied.Background, copied.Disown = false, false
	s.jobs = append(s.jobs, &job{p: sub.p, text: printed(&copied)})
	s.lastBG = sub.p.pid
	sub.start(func() { sub.job(&copied) })
}

// job runs a statement in the subshell that was created for it. A subshell or a program that is the
// whole job runs in the same process, so that signals for the job reach it.
func (s *shell) job(st *syntax.Stmt) {
	inner, ok := st.Cmd.(*syntax.Subshell)
	if !ok || st.Negated {
		_, s.last = st.Cmd.(*syntax.CallExpr)
		s.last = s.last && !st.Negated
		s.stmt(st)
		return
	}
	undo, ok := s.redirect(st.Redirs)
	defer undo()
	if !ok {
		s.status = 1
		return
	}
	s.stmts(inner.Stmts)
}

func redirectsInput(st *syntax.Stmt) bool {
	return slices.ContainsFunc(st.Redirs, func(r *syntax.Redirect) bool {
		return r.Op == syntax.RdrIn || r.Op == syntax.Hdoc || r.Op == syntax.DashHdoc || r.Op == syntax.WordHdoc || r.Op == syntax.DplIn
	})
}

// printed returns the source of a node on one line.
func printed(n syntax.Node) string {
	var b strings.Builder
	if err := syntax.NewPrinter(syntax.SingleLine(true)).Print(&b, n); err != nil {
		return "?"
	}
	return strings.TrimSpace(b.String())
}

// command runs a statement's command with its redirections.
func (s *shell) command(st *syntax.Stmt) {
	if c, ok := st.Cmd.(*syntax.CallExpr); ok {
		s.call(c, st.Redirs)
		return
	}
	undo, ok := s.redirect(st.Redirs)
	defer undo()
	if !ok {
		s.status = 2
		return
	}
	switch c := st.Cmd.(type) {
	case nil:
		s.status = 0
	case *syntax.Block:
		s.stmts(c.Stmts)
	case *syntax.Subshell:
		sub := s.mustFork()
		s.status = sub.wait(func() { sub.stmts(c.Stmts) })
		s.p.check()
	case *syntax.BinaryCmd:
		s.binary(c)
	case *syntax.IfClause:
		s.ifClause(c)
	case *syntax.WhileClause:
		s.while(c)
	case *syntax.ForClause:
		s.forClause(c)
	case *syntax.CaseClause:
		s.caseClause(c)
	case *syntax.FuncDecl:
		s.funcs[c.Name.Value] = c.Body
		s.status = 0
	case *syntax.ArithmCmd:
		s.status = oneIf(s.arith(c.X) == 0)
	case *syntax.LetClause:
		for _, x := range c.Exprs {
			s.status = oneIf(s.arith(x) == 0)
		}
	case *syntax.TestClause:
		s.status = s.testClause(c.X)
	case *syntax.DeclClause:
		s.declare(c)
	case *syntax.TimeClause:
		s.timeClause(c)
	default:
		s.fatal(2, "syntax error: %s is not supported", strings.TrimPrefix(fmt.Sprintf("%T", c), "*syntax."))
	}
}

func (s *shell) binary(c *syntax.BinaryCmd) {
	switch c.Op {
	case syntax.AndStmt, syntax.OrStmt:
		s.condition++
		s.stmt(c.X)
		s.condition--
		if s.flow == flowNone && (s.status == 0) == (c.Op == syntax.AndStmt) {
			s.stmt(c.Y)
		}
	default:
		s.pipeline(c)
	}
}

// pipeline runs all parts concurrently, each in a subshell.
func (s *shell) pipeline(c *syntax.BinaryCmd) {
	var parts []*syntax.Stmt
	var both []bool // standard error is also piped (|&)
	for {
		parts = append(parts, c.Y)
		both = append(both, c.Op == syntax.PipeAll)
		x, ok := c.X.Cmd.(*syntax.BinaryCmd)
		if !ok || (x.Op != syntax.Pipe && x.Op != syntax.PipeAll) || len(c.X.Redirs) > 0 || c.X.Negated {
			parts = append(parts, c.X)
			break
		}
		c = x
	}
	slices.Reverse(parts)
	slices.Reverse(both)
	var procs []*process
	var in *desc
	for i, st := range parts {
		sub, err := s.fork()
		if err != nil {
			if in != nil {
				in.release()
			}
			s.fatal(2, "Cannot fork: %s", program.ErrorText(err))
		}
		if in != nil {
			sub.p.fds.set(0, in)
			in = nil
		}
		if i < len(parts)-1 {
			r, w := newPipe()
			if both[i] {
				sub.p.fds.set(2, w.dup())
			}
			sub.p.fds.set(1, w)
			in = r
		}
		procs = append(procs, sub.p)
		sub.start(func() { sub.stmt(st) })
	}
	s.pipeStatus = s.pipeStatus[:0:0]
	failed := 0
	for _, p := range procs {
		<-p.done
		s.pipeStatus = append(s.pipeStatus, p.status)
		if p.status != 0 {
			failed = p.status
		}
	}
	s.p.check()
	s.status = procs[len(procs)-1].status
	if s.opts.pipefail {
		s.status = failed
	}
}

func (s *shell) ifClause(c *syntax.IfClause) {
	for ; c != nil; c = c.Else {
		// An else has no condition.
		if len(c.Cond) == 0 || s.runCondition(c.Cond) {
			if s.flow == flowNone {
				s.stmts(c.Then)
			}
			return
		}
		if s.flow != flowNone {
			return
		}
	}
	s.status = 0
}

func (s *shell) while(c *syntax.WhileClause) {
	s.loops++
	defer func() { s.loops-- }()
	status := 0
	for {
		s.p.check()
		ok := s.runCondition(c.Cond)
		if s.flow != flowNone {
			if s.leaveLoop() {
				break
			}
			continue
		}
		if ok == c.Until {
			break
		}
		s.stmts(c.Do)
		status = s.status
		if s.flow != flowNone && s.leaveLoop() {
			break
		}
	}
	if s.flow != flowReturn {
		s.status = status
	}
}

// leaveLoop processes break, continue and return in the body of a loop and reports whether the loop
// ends.
func (s *shell) leaveLoop() bool {
	switch {
	case s.flow == flowReturn:
		return true
	case s.flowCount > 1:
		s.flowCount--
		return true
	}
	ends := s.flow == flowBreak
	s.flow = flowNone
	return ends
}

func (s *shell) forClause(c *syntax.ForClause) {
	s.loops++
	defer func() { s.loops-- }()
	switch loop := c.Loop.(type) {
	case *syntax.WordIter:
		items := s.params
		if loop.InPos.IsValid() {
			items = s.fields(loop.Items...)
		}
		if len(items) == 0 {
			s.status = 0
		}
		if c.Select {
			s.selectLoop(loop.Name.Value, items, c.Do)
			return
		}
		for _, item := range items {
			s.p.check()
			s.setVar(loop.Name.Value, item)
			s.stmts(c.Do)
			if s.flow != flowNone && s.leaveLoop() {
				return
			}
		}
	case *syntax.CStyleLoop:
		s.status = 0
		if loop.Init != nil {
			s.arith(loop.Init)
		}
		for loop.Cond == nil || s.arith(loop.Cond) != 0 {
			s.p.check()
			s.stmts(c.Do)
			if s.flow != flowNone && s.leaveLoop() {
				return
			}
			if loop.Post != nil {
				s.arith(loop.Post)
			}
		}
	}
}

// selectLoop implements select: it prints a menu and runs the body for each answer.
func (s *shell) selectLoop(name string, items []string, body []*syntax.Stmt) {
	menu := true
	for {
		if menu {
			for i, item := range items {
				fmt.Fprintf(s.p.stream(2), "%d) %s\n", i+1, item)
			}
		}
		_, _ = io.WriteString(s.p.stream(2), s.getOr("PS3", "#? "))
		line, ok := s.readLine('\n', false, -1)
		if !ok {
			s.status = 1
			return
		}
		s.setVar("REPLY", string(line))
		if menu = len(line) == 0; menu {
			continue
		}
		choice := ""
		if n := s.number(string(line)); n >= 1 && n <= len(items) {
			choice = items[n-1]
		}
		s.setVar(name, choice)
		s.stmts(body)
		if s.flow != flowNone && s.leaveLoop() {
			return
		}
	}
}

func (s *shell) caseClause(c *syntax.CaseClause) {
	word := s.literal(c.Word)
	through, ran := false, false
	defer func() {
		if !ran {
			s.status = 0
		}
	}()
	for _, item := range c.Items {
		if !through && !slices.ContainsFunc(item.Patterns, func(w *syntax.Word) bool { return s.matches(s.pattern(w), word) }) {
			continue
		}
		ran = ran || len(item.Stmts) > 0
		s.stmts(item.Stmts)
		if s.flow != flowNone {
			return
		}
		switch item.Op {
		case syntax.Fallthrough:
			through = true
		case syntax.Resume:
			through = false
		default:
			return
		}
	}
}

// matches reports whether a pattern matches a word.
func (s *shell) matches(pattern, word string) bool {
	return glob.Compile(pattern, glob.Options{Extended: true, Fold: s.opts.nocasematch}).Match(word)
}

func (s *shell) timeClause(c *syntax.TimeClause) {
	start := time.Now()
	if c.Stmt != nil {
		s.stmt(c.Stmt)
	}
	took := time.Since(start)
	if c.PosixFormat {
		fmt.Fprintf(s.p.stream(2), "real %.2f\nuser 0.00\nsys 0.00\n", took.Seconds())
		return
	}
	minutes := int(took.Minutes())
	fmt.Fprintf(s.p.stream(2), "\nreal\t%dm%.3fs\nuser\t0m0.000s\nsys\t0m0.000s\n", minutes, took.Seconds()-float64(minutes)*60)
}

// call runs a simple command: assignments only, a function, a builtin or a program.
func (s *shell) call(c *syntax.CallExpr, redirs []*syntax.Redirect) {
	s.substStatus = -1
	defer s.closeSubsts(len(s.procSubsts))
	args := s.fields(s.aliased(c.Args)...)
	if len(args) == 0 {
		undo, ok := s.redirect(redirs)
		undo()
		for _, a := range c.Assigns {
			s.assign(a, false)
			s.trace("", a)
		}
		switch {
		case !ok:
			s.status = 2
		case s.substStatus >= 0:
			s.status = s.substStatus
		default:
			s.status = 0
		}
		return
	}
	s.trace(strings.Join(quoteAll(args), " "), c.Assigns...)
	if args[0] == "exec" && s.funcs["exec"] == nil {
		s.exec(args[1:], c.Assigns, redirs)
		return
	}
	undo, ok := s.redirect(redirs)
	defer undo()
	if !ok {
		s.status = 2
		return
	}
	s.withAssigns(c.Assigns, func() { s.dispatch(args) })
	s.lastArg = args[len(args)-1]
}

// closeSubsts closes the streams of all process substitutions after the first n.
func (s *shell) closeSubsts(n int) {
	for _, fd := range s.procSubsts[n:] {
		s.p.fds.unset(fd)
	}
	s.procSubsts = s.procSubsts[:n]
}

// dispatch runs a command by its name.
func (s *shell) dispatch(args []string) {
	last := s.last
	s.last = false
	if body := s.funcs[args[0]]; body != nil {
		s.callFunc(args, body)
		return
	}
	if b := s.sys.builtins[args[0]]; b != nil {
		s.status = b(s, args)
		return
	}
	if last {
		s.replaceWith(args)
	}
	s.status = s.external(args)
	s.p.check()
}

// replaceWith replaces the shell by a program in the same process. It does not return.
func (s *shell) replaceWith(args []string) {
	s.p.sigMu.Lock()
	s.p.handled, s.p.pending, s.p.ignored = nil, nil, s.ignoredSignals()
	s.p.sigMu.Unlock()
	s.status = s.sys.exec(s.p, s.programContext(args))
	s.traps = nil
	panic(exited{s.status})
}

// withAssigns runs f with exported variables, and restores them afterwards.
func (s *shell) withAssigns(assigns []*syntax.Assign, f func()) {
	if len(assigns) == 0 {
		f()
		return
	}
	fr := &frame{hidden: map[string]*variable{}}
	defer s.leave(fr)
	for _, a := range assigns {
		name := s.target(a.Name.Value)
		old := s.vars[name]
		if old != nil && old.readonly {
			s.fatal(2, "%s: is read only", name)
		}
		if _, seen := fr.hidden[name]; !seen {
			fr.hidden[name] = old
			v := &variable{}
			if old != nil {
				v = old.clone()
			}
			s.vars[name] = v
		}
		s.assign(a, true)
	}
	f()
}

func (s *shell) callFunc(args []string, body *syntax.Stmt) {
	fr := &frame{hidden: map[string]*variable{}}
	params, loops := s.params, s.loops
	s.frames = append(s.frames, fr)
	s.funcNames = append(s.funcNames, args[0])
	s.params, s.loops = args[1:], 0
	defer func() {
		s.params, s.loops = params, loops
		s.frames = s.frames[:len(s.frames)-1]
		s.funcNames = s.funcNames[:len(s.funcNames)-1]
		s.leave(fr)
	}()
	s.stmt(body)
	if s.flow == flowReturn {
		s.flow = flowNone
	}
}

// trace prints a command before it runs (set -x).
func (s *shell) trace(text string, assigns ...*syntax.Assign) {
	if !s.opts.xtrace {
		return
	}
	for i := len(assigns) - 1; i >= 0; i-- {
		text = printed(&syntax.CallExpr{Assigns: assigns[i : i+1]}) + " " + text
	}
	_, _ = io.WriteString(s.p.stream(2), "+ "+strings.TrimRight(text, " ")+"\n")
}

func quoteAll(args []string) []string {
	q := make([]string, len(args))
	for i, a := range args {
		q[i] = quote(a)
	}
	return q
}

// aliased replaces aliases at the beginning of a command.
func (s *shell) aliased(words []*syntax.Word) []*syntax.Word {
	if len(s.alias) == 0 {
		return words
	}
	seen := map[string]bool{}
	for len(words) > 0 {
		name := words[0].Lit()
		value, ok := s.alias[name]
		if !ok || seen[name] {
			break
		}
		seen[name] = true
		var head []*syntax.Word
		for w, err := range newParser().WordsSeq(&guardedText{value}) {
			if err != nil {
				return words
			}
			head = append(head, w)
		}
		words = append(head, words[1:]...)
	}
	return words
}

// runTraps runs the traps of pending signals.
func (s *shell) runTraps() {
	if s.inTrap {
		return
	}
	for _, sig := range s.p.takePending() {
		s.trapAction(s.traps[sig])
	}
}

// trapAction runs the action of a trap and preserves the status.
func (s *shell) trapAction(action string) {
	status := s.status
	s.inTrap, s.trapStatus = true, status
	defer func() { s.inTrap = false }()
	s.source(action, "trap")
	s.status = status
}
