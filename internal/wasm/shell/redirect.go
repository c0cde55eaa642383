package shell

import (
	"os"
	"strconv"
	"strings"
	"syscall"

	"mvdan.cc/sh/v3/syntax"

	"github.com/sandbar-dev/sandbar/internal/wasm/shell/program"
)

// redirect applies redirections in order. undo restores the descriptors; it must be called even if
// ok is false. Errors have been reported then.
func (s *shell) redirect(list []*syntax.Redirect) (undo func(), ok bool) {
	if len(list) == 0 {
		return func() {}, true
	}
	saved := map[int]*desc{}
	undo = func() {
		for n, d := range saved {
			if d == nil {
				s.p.fds.unset(n)
			} else {
				s.p.fds.set(n, d)
			}
		}
	}
	for _, r := range list {
		if err := s.redirectOne(r, saved); err != nil {
			s.errorf("%v", err)
			return undo, false
		}
	}
	return undo, true
}

// redirError is the error of a redirection.
type redirError struct {
	what string
	err  error
}

func (e redirError) Error() string {
	if e.err == nil {
		return e.what
	}
	return e.what + ": " + program.ErrorText(e.err)
}

func (s *shell) redirectOne(r *syntax.Redirect, saved map[int]*desc) error {
	n := 1
	switch r.Op {
	case syntax.RdrIn, syntax.RdrInOut, syntax.DplIn, syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
		n = 0
	}
	if r.N != nil {
		var err error
		if n, err = s.descriptorNumber(r.N.Value); err != nil {
			return err
		}
	}
	d, err := s.redirectTarget(r)
	if err != nil {
		return err
	}
	if r.N != nil && strings.HasPrefix(r.N.Value, "{") && d != nil {
		s.p.fds.set(n, d) // exec: it stays open after the command
		return nil
	}
	s.replace(n, d, saved)
	if r.Op == syntax.RdrAll || r.Op == syntax.AppAll {
		s.replace(2, d.dup(), saved)
	}
	return nil
}

// descriptorNumber returns the descriptor before a redirection. For {name} it returns a free one
// and stores its number in the variable.
func (s *shell) descriptorNumber(text string) (int, error) {
	if name, ok := strings.CutPrefix(text, "{"); ok {
		name = strings.TrimSuffix(name, "}")
		n := 10
		for s.p.fds[n] != nil {
			n++
		}
		s.setVar(name, strconv.Itoa(n))
		return n, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n >= s.sys.limits.Descriptors {
		return 0, redirError{text, syscall.EBADF}
	}
	return n, nil
}

// replace makes d descriptor n, or closes n if d is nil. It stores the previous descriptor in
// saved, unless one is stored for n.
func (s *shell) replace(n int, d *desc, saved map[int]*desc) {
	if _, seen := saved[n]; !seen {
		saved[n] = s.p.fds[n]
		delete(s.p.fds, n)
	}
	if d == nil {
		s.p.fds.unset(n)
		return
	}
	s.p.fds.set(n, d)
}

// redirectTarget opens the target of a redirection. nil: the descriptor is to be closed.
func (s *shell) redirectTarget(r *syntax.Redirect) (*desc, error) {
	switch r.Op {
	case syntax.Hdoc, syntax.DashHdoc:
		return s.text(s.hereDoc(r)), nil
	case syntax.WordHdoc:
		return s.text(s.literal(r.Word) + "\n"), nil
	}
	words := s.fieldsNoSplit(r.Word)
	if len(words) != 1 {
		return nil, redirError{what: "ambiguous redirect"}
	}
	word := words[0]
	switch r.Op {
	case syntax.DplIn, syntax.DplOut:
		return s.duplicate(r, word)
	case syntax.RdrIn:
		return s.open(word, os.O_RDONLY)
	case syntax.RdrInOut:
		return s.open(word, os.O_RDWR|os.O_CREATE)
	case syntax.AppOut, syntax.AppAll:
		return s.open(word, os.O_WRONLY|os.O_CREATE|os.O_APPEND)
	case syntax.RdrOut, syntax.RdrAll:
		if s.opts.noclobber {
			if info, err := s.sys.fs.Stat(s.dir, word); err == nil && info.Mode().IsRegular() {
				return nil, redirError{"cannot create " + word, syscall.EEXIST}
			}
		}
		return s.open(word, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	case syntax.RdrClob:
		return s.open(word, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	}
	return nil, redirError{what: "redirection " + r.Op.String() + " is not supported"}
}

func (s *shell) text(text string) *desc {
	s.bound(len(text))
	return newDesc(&textHandle{text: []byte(text)})
}

func (s *shell) duplicate(r *syntax.Redirect, word string) (*desc, error) {
	if word == "-" {
		return nil, nil
	}
	word = strings.TrimSuffix(word, "-")
	n, err := strconv.Atoi(word)
	if err != nil {
		if r.Op == syntax.DplOut && r.N == nil { // >&file
			return s.open(word, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
		}
		return nil, redirError{word, syscall.EBADF}
	}
	d := s.p.fds[n]
	if d == nil {
		return nil, redirError{word, syscall.EBADF}
	}
	return d.dup(), nil
}

func (s *shell) open(name string, flag int) (*desc, error) {
	if len(s.p.fds) >= s.sys.limits.Descriptors {
		return nil, redirError{name, syscall.EMFILE}
	}
	d, err := s.p.open(s.dir, name, flag, 0o666&^s.umask)
	if err != nil {
		verb := "cannot open "
		if flag&os.O_CREATE != 0 {
			verb = "cannot create "
		}
		return nil, redirError{verb + name, err}
	}
	return d, nil
}

// hereDoc returns the content of a here-document.
func (s *shell) hereDoc(r *syntax.Redirect) string {
	if r.Hdoc == nil {
		return ""
	}
	quoted := false
	for _, part := range r.Word.Parts {
		lit, ok := part.(*syntax.Lit)
		quoted = quoted || !ok || strings.Contains(lit.Value, `\`)
	}
	word := r.Hdoc
	if r.Op == syntax.DashHdoc {
		word = withoutTabs(word)
	}
	if !quoted {
		return s.document(word)
	}
	var b strings.Builder
	for _, part := range word.Parts {
		if lit, ok := part.(*syntax.Lit); ok {
			b.WriteString(lit.Value)
		}
	}
	return b.String()
}

// withoutTabs removes tabs at the beginning of lines (<<-).
func withoutTabs(w *syntax.Word) *syntax.Word {
	out := &syntax.Word{}
	start := true // the next literal starts a line
	for _, part := range w.Parts {
		lit, ok := part.(*syntax.Lit)
		if !ok {
			out.Parts = append(out.Parts, part)
			start = false
			continue
		}
		var b strings.Builder
		for line := range strings.Lines(lit.Value) {
			if start {
				line = strings.TrimLeft(line, "\t")
			}
			b.WriteString(line)
			start = strings.HasSuffix(line, "\n")
		}
		out.Parts = append(out.Parts, &syntax.Lit{Value: b.String()})
	}
	return out
}
