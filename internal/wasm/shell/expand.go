package shell

import (
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/sandbar-dev/sandbar/internal/wasm/shell/format"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/glob"
)

// piece is a part of a field. A quoted part is not split and has no special characters of patterns.
type piece struct {
	text   string
	quoted bool
}

// fieldBuilder collects the fields into which one word expands.
type fieldBuilder struct {
	out   [][]piece
	cur   []piece
	has   bool // cur is a field even if it is empty
	split bool // unquoted expansions are split
	ifs   string
	size  int
	s     *shell
}

func (b *fieldBuilder) add(text string, quoted bool) {
	if text == "" && !quoted {
		return
	}
	b.size += len(text)
	b.s.bound(b.size)
	b.cur = append(b.cur, piece{text, quoted})
	b.has = true
}

// flush ends the current field. It drops an empty field, unless force is set or the field was
// quoted.
func (b *fieldBuilder) flush(force bool) {
	if b.has || force {
		if len(b.out) >= b.s.sys.limits.Words {
			b.s.fatal(2, "too many words")
		}
		b.out = append(b.out, b.cur)
	}
	b.cur, b.has = nil, false
}

// value adds the result of an unquoted expansion, split at IFS.
func (b *fieldBuilder) value(v string) {
	if !b.split || b.ifs == "" {
		b.add(v, false)
		return
	}
	isSpace := func(c byte) bool { return (c == ' ' || c == '\t' || c == '\n') && strings.IndexByte(b.ifs, c) >= 0 }
	isSep := func(c byte) bool { return strings.IndexByte(b.ifs, c) >= 0 }
	i := 0
	for i < len(v) && isSpace(v[i]) {
		i++
	}
	if i > 0 {
		ended := b.has
		b.flush(false)
		if ended && i < len(v) && isSep(v[i]) { // white space and one other separator end one field
			for i++; i < len(v) && isSpace(v[i]); i++ {
			}
		}
	}
	for i < len(v) {
		j := i
		for j < len(v) && !isSep(v[j]) {
			j++
		}
		b.add(v[i:j], false)
		if j == len(v) {
			return
		}
		for j < len(v) && isSpace(v[j]) {
			j++
		}
		hard := j < len(v) && isSep(v[j])
		if hard {
			j++
			for j < len(v) && isSpace(v[j]) {
				j++
			}
		}
		b.flush(hard)
		i = j
	}
}

func (s *shell) newBuilder(split bool) *fieldBuilder {
	return &fieldBuilder{s: s, split: split, ifs: s.getOr("IFS", " \t\n")}
}

// fields expands the words of a command: braces, variables, command substitutions, field splitting,
// pathnames.
func (s *shell) fields(words ...*syntax.Word) []string {
	var out []string
	for _, w := range words {
		for _, w := range s.braces(w) {
			b := s.newBuilder(true)
			s.expandWord(b, w, wordPlain)
			b.flush(false)
			for _, f := range b.out {
				out = append(out, s.paths(f)...)
			}
		}
		if len(out) > s.sys.limits.Words {
			s.fatal(2, "too many words")
		}
	}
	return out
}

// fieldsNoSplit expands the target of a redirection.
func (s *shell) fieldsNoSplit(w *syntax.Word) []string {
	b := s.newBuilder(false)
	s.expandWord(b, w, wordPlain)
	b.flush(true)
	var out []string
	for _, f := range b.out {
		out = append(out, s.paths(f)...)
	}
	return out
}

// literal expands a word to one string, without field splitting and pathnames.
func (s *shell) literal(w *syntax.Word) string { return joined(s.single(w, wordPlain)) }

// assigned expands the value of an assignment.
func (s *shell) assigned(w *syntax.Word) string { return joined(s.single(w, wordAssigned)) }

// document expands the content of a here-document.
func (s *shell) document(w *syntax.Word) string {
	b := s.newBuilder(false)
	s.quotedParts(b, w.Parts, true)
	b.flush(true)
	return joined(b.out[0])
}

func (s *shell) single(w *syntax.Word, mode wordMode) []piece {
	if w == nil {
		return nil
	}
	b := s.newBuilder(false)
	s.expandWord(b, w, mode)
	b.flush(true)
	all := b.out[0]
	for _, f := range b.out[1:] {
		all = append(append(all, piece{text: " "}), f...)
	}
	return all
}

func joined(f []piece) string {
	if len(f) == 1 {
		return f[0].text
	}
	var b strings.Builder
	for _, p := range f {
		b.WriteString(p.text)
	}
	return b.String()
}

// pattern expands a word to a pattern. Quoted characters match literally.
func (s *shell) pattern(w *syntax.Word) string { return asPattern(s.single(w, wordPlain)) }

func asPattern(f []piece) string {
	var b strings.Builder
	for _, p := range f {
		if p.quoted {
			b.WriteString(glob.Quote(p.text))
		} else {
			b.WriteString(p.text)
		}
	}
	return b.String()
}

// regex expands a word to a regular expression. Quoted characters match literally.
func (s *shell) regex(w *syntax.Word) string {
	var b strings.Builder
	for _, p := range s.single(w, wordPlain) {
		for i := 0; i < len(p.text); i++ {
			if p.quoted && strings.IndexByte(`\.+*?()|[]{}^$`, p.text[i]) >= 0 {
				b.WriteByte('\\')
			}
			b.WriteByte(p.text[i])
		}
	}
	return b.String()
}

// paths expands a field to the pathnames that match it.
func (s *shell) paths(f []piece) []string {
	text := joined(f)
	if s.opts.noglob {
		return []string{text}
	}
	meta := false
	for _, p := range f {
		meta = meta || !p.quoted && (strings.ContainsAny(p.text, "*?[") || strings.Contains(p.text, "("))
	}
	if !meta {
		return []string{text}
	}
	pattern := asPattern(f)
	if !glob.HasMeta(pattern, true) {
		return []string{text}
	}
	found := s.expandPath(pattern)
	switch {
	case len(found) > 0:
		return found
	case s.opts.failglob:
		s.fatal(1, "no match: %s", text)
	case s.opts.nullglob:
		return nil
	}
	return []string{text}
}

// wordMode is the context of a word.
type wordMode uint8

const (
	wordPlain wordMode = iota
	wordAssigned
)

// expandWord expands a word outside of quotes.
func (s *shell) expandWord(b *fieldBuilder, w *syntax.Word, mode wordMode) {
	for i, part := range w.Parts {
		if lit, ok := part.(*syntax.Lit); ok && (i == 0 || mode == wordAssigned) {
			s.litWithTilde(b, lit.Value, i == 0, i == len(w.Parts)-1, mode)
			continue
		}
		s.part(b, part)
	}
}

func (s *shell) part(b *fieldBuilder, part syntax.WordPart) {
	switch p := part.(type) {
	case *syntax.Lit:
		addLit(b, p.Value)
	case *syntax.SglQuoted:
		text := p.Value
		if p.Dollar {
			text = format.Unquote(text)
		}
		b.add(text, true)
	case *syntax.DblQuoted:
		s.quotedParts(b, p.Parts, false)
	case *syntax.ParamExp:
		s.param(b, p, false)
	case *syntax.CmdSubst:
		b.value(s.substitute(p))
	case *syntax.ArithmExp:
		b.value(strconv.FormatInt(s.arith(p.X), 10))
	case *syntax.ProcSubst:
		b.add(s.procSubst(p), true)
	case *syntax.ExtGlob:
		b.add(p.Op.String()+p.Pattern.Value+")", false)
	case *syntax.BraceExp:
		b.add(printed(&syntax.Word{Parts: []syntax.WordPart{p}}), false)
	default:
		s.fatal(2, "syntax error: %s is not supported", strings.TrimPrefix(fmt.Sprintf("%T", p), "*syntax."))
	}
}

// addLit adds literal text. A backslash quotes the next character.
func addLit(b *fieldBuilder, text string) {
	for {
		i := strings.IndexByte(text, '\\')
		if i < 0 || i+1 == len(text) {
			b.add(text, false)
			return
		}
		b.add(text[:i], false)
		text = text[i+1:]
		if text[0] != '\n' {
			n := 1
			for n < len(text) && text[n]&0xC0 == 0x80 {
				n++
			}
			b.add(text[:n], true)
			text = text[n:]
			continue
		}
		text = text[1:]
	}
}

// litWithTilde is addLit with tilde expansion at the beginning of a word, and in an assignment also
// after colons.
func (s *shell) litWithTilde(b *fieldBuilder, text string, first, last bool, mode wordMode) {
	for {
		if first && strings.HasPrefix(text, "~") {
			end := strings.IndexAny(text, "/:\\")
			if end < 0 {
				end = len(text)
			}
			if end < len(text) && text[end] == '\\' || end == len(text) && !last {
				end = 0
			}
			if end > 0 && (end == len(text) || text[end] == '/' || mode == wordAssigned) {
				if home, ok := s.home(text[1:end]); ok {
					b.add(home, true)
					text = text[end:]
				}
			}
		}
		i := -1
		if mode == wordAssigned {
			i = strings.IndexByte(text, ':')
		}
		if i < 0 {
			addLit(b, text)
			return
		}
		addLit(b, text[:i+1])
		text, first = text[i+1:], true
	}
}

// home returns the directory for ~name.
func (s *shell) home(name string) (string, bool) {
	switch name {
	case "":
		if home, ok := s.get("HOME"); ok {
			return home, true
		}
		name = userName
	case "+":
		return s.dir, true
	case "-":
		return s.get("OLDPWD")
	}
	passwd, err := s.sys.fs.ReadFile("/", "/etc/passwd")
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(passwd)) {
		if f := strings.Split(strings.TrimSpace(line), ":"); len(f) == 7 && f[0] == name {
			return f[5], true
		}
	}
	return "", false
}

// quotedParts expands the content of double quotes, or of a here-document (doc), where double
// quotes are literal.
func (s *shell) quotedParts(b *fieldBuilder, parts []syntax.WordPart, doc bool) {
	special := "$`\"\\"
	if doc {
		special = "$`\\"
	}
	if len(parts) == 0 {
		b.add("", true)
		return
	}
	for _, part := range parts {
		switch p := part.(type) {
		case *syntax.Lit:
			b.add(unescape(p.Value, special), true)
		case *syntax.SglQuoted:
			b.add("'"+p.Value+"'", true)
		case *syntax.DblQuoted:
			s.quotedParts(b, p.Parts, doc)
		case *syntax.ParamExp:
			s.param(b, p, true)
		case *syntax.CmdSubst:
			b.add(s.substitute(p), true)
		case *syntax.ArithmExp:
			b.add(strconv.FormatInt(s.arith(p.X), 10), true)
		default:
			b.add(printed(&syntax.Word{Parts: []syntax.WordPart{p}}), true)
		}
	}
}

// unescape removes backslashes before special characters and newlines.
func unescape(text, special string) string {
	if strings.IndexByte(text, '\\') < 0 {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) {
			if text[i+1] == '\n' {
				i++
				continue
			}
			if strings.IndexByte(special, text[i+1]) >= 0 {
				i++
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// substitute runs a command substitution and returns its output without trailing newlines.
func (s *shell) substitute(c *syntax.CmdSubst) string {
	defer s.nest()()
	sub := s.mustFork()
	h := &bufferHandle{max: s.sys.limits.Bytes, done: make(chan struct{})}
	sub.p.fds.set(1, newDesc(h))
	sub.outerTraps = s.traps
	sub.condition = 0
	if s.condition > 0 {
		sub.condition = 1
	}
	s.substStatus = sub.wait(func() {
		switch {
		case len(c.Stmts) == 0:
			sub.status = 0
		case isFileSubst(c.Stmts):
			sub.copyFile(c.Stmts[0])
		default:
			sub.stmts(c.Stmts)
		}
	})
	select {
	case <-h.done: // background jobs have closed the output, too
	case <-s.p.ctx.Done():
	}
	s.p.check()
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.TrimRight(strings.ReplaceAll(h.buf.String(), "\x00", ""), "\n")
}

// isFileSubst reports whether a substitution is $(<file).
func isFileSubst(list []*syntax.Stmt) bool {
	return len(list) == 1 && list[0].Cmd == nil && len(list[0].Redirs) == 1 && list[0].Redirs[0].Op == syntax.RdrIn
}

// copyFile copies the file of $(<file) to standard output.
func (s *shell) copyFile(st *syntax.Stmt) {
	undo, ok := s.redirect(st.Redirs)
	defer undo()
	s.status = 1
	if ok {
		_, err := io.Copy(s.p.stream(1), s.p.stream(0))
		s.status = oneIf(err != nil)
	}
}

// procSubst runs a process substitution and returns the path of its descriptor, one end of a pipe.
// It is closed with the shell.
func (s *shell) procSubst(p *syntax.ProcSubst) string {
	if p.Op == syntax.CmdInTemp {
		s.fatal(2, "=(…) is not supported")
	}
	sub := s.mustFork()
	n := 63
	for s.p.fds[n] != nil {
		n--
	}
	if n < 10 {
		s.fatal(2, "too many process substitutions")
	}
	r, w := newPipe()
	mine, its, fd := r, w, 1
	if p.Op == syntax.CmdOut {
		mine, its, fd = w, r, 0
	}
	sub.p.fds.set(fd, its)
	s.p.fds.set(n, mine)
	s.procSubsts = append(s.procSubsts, n)
	sub.start(func() { sub.stmts(p.Stmts) })
	return "/dev/fd/" + strconv.Itoa(n)
}

// braces expands {a,b} and {1..3}.
func (s *shell) braces(w *syntax.Word) []*syntax.Word {
	plain := true
	for _, part := range w.Parts {
		if lit, ok := part.(*syntax.Lit); ok && strings.IndexByte(lit.Value, '{') >= 0 {
			plain = false
		}
	}
	if plain {
		return []*syntax.Word{w}
	}
	copied := &syntax.Word{Parts: slices.Clone(w.Parts)}
	if !syntax.SplitBraces(copied) {
		return []*syntax.Word{w}
	}
	return s.expandBraces(copied)
}

// expandBraces returns the brace expansions of a word. The first one varies slowest.
func (s *shell) expandBraces(w *syntax.Word) []*syntax.Word {
	i := slices.IndexFunc(w.Parts, func(p syntax.WordPart) bool { _, ok := p.(*syntax.BraceExp); return ok })
	if i < 0 {
		return []*syntax.Word{w}
	}
	s.p.check()
	brace := w.Parts[i].(*syntax.BraceExp)
	var heads []*syntax.Word
	if brace.Sequence {
		heads = s.sequence(brace)
	} else {
		for _, e := range brace.Elems {
			heads = append(heads, s.expandBraces(e)...)
		}
	}
	tails := s.expandBraces(&syntax.Word{Parts: w.Parts[i+1:]})
	if len(heads)*len(tails) > s.sys.limits.Words {
		s.fatal(2, "too many words")
	}
	var out []*syntax.Word
	for _, h := range heads {
		for _, t := range tails {
			out = append(out, &syntax.Word{Parts: slices.Concat(w.Parts[:i], h.Parts, t.Parts)})
		}
	}
	return out
}

// sequence returns the words of {a..b..step}.
func (s *shell) sequence(b *syntax.BraceExp) []*syntax.Word {
	from, to := b.Elems[0].Lit(), b.Elems[1].Lit()
	lo, err1 := strconv.Atoi(from)
	hi, err2 := strconv.Atoi(to)
	letters := err1 != nil || err2 != nil
	if letters {
		lo, hi = int(from[0]), int(to[0])
	}
	step := 1
	if len(b.Elems) > 2 {
		step, _ = strconv.Atoi(b.Elems[2].Lit())
		if step < 0 {
			step = -step
		}
		step = max(step, 1)
	}
	if diff := hi - lo; diff/step > s.sys.limits.Words || -diff/step > s.sys.limits.Words {
		s.fatal(2, "too many words")
	}
	if hi < lo {
		step = -step
	}
	width := 0
	if padded(from) || padded(to) {
		width = max(len(from), len(to))
	}
	var out []*syntax.Word
	for n := lo; step > 0 && n <= hi || step < 0 && n >= hi; n += step {
		text := string(rune(n))
		if !letters {
			text = fmt.Sprintf("%0*d", width, n)
		}
		out = append(out, &syntax.Word{Parts: []syntax.WordPart{&syntax.Lit{Value: text}}})
	}
	return out
}

// padded reports whether a number has leading zeros.
func padded(n string) bool {
	n = strings.TrimPrefix(n, "-")
	return len(n) > 1 && n[0] == '0'
}

// expandPath returns the paths that match a pattern, sorted.
func (s *shell) expandPath(pattern string) []string {
	prefix := ""
	if strings.HasPrefix(pattern, "/") {
		prefix = "/"
		pattern = strings.TrimLeft(pattern, "/")
	}
	found := []string{prefix}
	parts := splitPattern(pattern)
	for i, part := range parts {
		last := i == len(parts)-1
		if part == "" { // a trailing slash: directories only
			found = slices.DeleteFunc(found, func(p string) bool { return !s.isDir(p) })
			continue
		}
		var next []string
		for _, base := range found {
			s.p.check()
			next = append(next, s.expandPart(base, part, last)...)
			if len(next) > s.sys.limits.Words {
				s.fatal(2, "too many paths match")
			}
		}
		found = next
	}
	slices.Sort(found)
	return found
}

// splitPattern splits a pattern at slashes outside of brackets and groups.
func splitPattern(p string) []string {
	var parts []string
	depth, start := 0, 0
	for i := 0; i < len(p); i++ {
		switch p[i] {
		case '\\':
			i++
		case '(':
			depth++
		case ')':
			depth = max(0, depth-1)
		case '/':
			if depth > 0 {
				continue
			}
			parts = append(parts, p[start:i])
			for i+1 < len(p) && p[i+1] == '/' {
				i++
			}
			start = i + 1
		}
	}
	return append(parts, p[start:])
}

func (s *shell) isDir(p string) bool {
	info, err := s.sys.fs.Stat(s.dir, p)
	return err == nil && info.IsDir()
}

// expandPart matches one component of a path below base. If it is not the last component, the
// results end with a slash.
func (s *shell) expandPart(base, part string, last bool) []string {
	slash := "/"
	if last {
		slash = ""
	}
	pat := glob.Compile(part, glob.Options{Extended: true, Fold: s.opts.nocaseglob})
	if text, ok := pat.Literal(); ok {
		if _, err := s.sys.fs.Lstat(s.dir, base+text); err != nil {
			return nil
		}
		if !last && !s.isDir(base+text) {
			return nil
		}
		return []string{base + text + slash}
	}
	dir := base
	if dir == "" {
		dir = "."
	}
	if part == "**" && s.opts.globstar {
		return s.below(base, last)
	}
	entries, err := s.sys.fs.ReadDir(s.dir, dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".") && !pat.LeadingDot() && !s.opts.dotglob {
			continue
		}
		if pat.Match(name) && (last || s.isDir(base+name)) {
			out = append(out, base+name+slash)
		}
	}
	if pat.LeadingDot() {
		for _, name := range []string{".", ".."} {
			if pat.Match(name) {
				out = append(out, base+name+slash)
			}
		}
	}
	return out
}

// below returns everything below base, for "**".
func (s *shell) below(base string, last bool) []string {
	out := []string{}
	if !last || base != "" {
		out = append(out, base)
	}
	dirs := []string{base}
	for len(dirs) > 0 {
		s.p.check()
		dir := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		entries, err := s.sys.fs.ReadDir(s.dir, path.Join(s.dir, dir))
		if err != nil {
			continue
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".") && !s.opts.dotglob {
				continue
			}
			full := dir + e.Name()
			if e.IsDir() {
				dirs = append(dirs, full+"/")
			}
			switch {
			case last:
				out = append(out, full)
			case e.IsDir():
				out = append(out, full+"/")
			}
		}
		if len(out) > s.sys.limits.Words {
			s.fatal(2, "too many paths match")
		}
	}
	return out
}
