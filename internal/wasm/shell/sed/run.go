package sed

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sandbar-dev/sandbar/internal/wasm/shell/posixre"
)

// Input is one input file.
type Input struct {
	Name string
	io.Reader
}

// Env is the environment of a script.
type Env struct {
	// Next returns the next input file, or nil after the last one.
	Next func() *Input
	// Output returns the output for the lines of an input.
	Output func(in *Input) *bufio.Writer
	// Read returns the content of a file, for r; ok is false if it cannot be read.
	Read func(name string) (data []byte, ok bool)
	// Open opens a file for reading by lines, for R; nil if it cannot be read.
	Open func(name string) *bufio.Reader
	// Create opens a file for writing, for w. It is called once for each name, before any input is
	// read.
	Create func(name string) (io.Writer, error)
	// Check is called regularly. To end the script, it panics.
	Check func()
}

// ErrTooLong is the error for a pattern space or hold space above the limit.
var ErrTooLong = errors.New("line is too long")

// maxSpace bounds the pattern space and the hold space, in bytes.
const maxSpace = 64 << 20

type machine struct {
	s   *Script
	env Env

	in      *Input
	r       *bufio.Reader
	ahead   *string // the next line, if it has been read
	aheadNL bool
	aheadIn *Input // file of the next line, if it is another one
	end     byte

	line    int
	space   string
	newline bool // the line ended with a newline
	hold    string
	holdNL  bool // the hold space ended with a newline
	subst   bool // a substitution succeeded since the last line or t
	last    *posixre.Regexp
	ranges  map[int]*rangeState
	after   []func()
	files   map[string]io.Writer
	readers map[string]*bufio.Reader
	out     *bufio.Writer
	missing bool // the last output did not end with a newline
	quit    bool
	status  int
	steps   int
}

// rangeState is the state of a command with two addresses.
type rangeState struct {
	active bool
	closed bool // the first address is a line number, and the range has ended
	end    int  // the last line; 0 when an expression ends it
}

// Run runs the script and returns its exit status.
func (s *Script) Run(env Env) (status int, err error) {
	m := &machine{s: s, env: env, end: '\n', holdNL: true, ranges: map[int]*rangeState{}, files: map[string]io.Writer{}, readers: map[string]*bufio.Reader{}}
	if s.opts.Null {
		m.end = 0
	}
	defer func() {
		switch e := recover().(type) {
		case nil:
		case failure:
			err = e.err
		default:
			panic(e)
		}
	}()
	for _, name := range s.files {
		if m.files[name] == nil && name != "/dev/stdout" {
			w, err := env.Create(name)
			if err != nil {
				return 0, err
			}
			m.files[name] = w
		}
	}
	for !m.quit && m.nextLine() {
		m.cycle()
	}
	return m.status, nil
}

// failure is the panic value that ends a run with an error.
type failure struct{ err error }

// bound ends the run if a space is too long.
func (m *machine) bound(n int) {
	if n > maxSpace {
		panic(failure{ErrTooLong})
	}
}

// fetch reads the next line ahead, if there is one.
func (m *machine) fetch() bool {
	if m.ahead != nil {
		return true
	}
	for {
		if m.r == nil {
			in := m.env.Next()
			if in == nil {
				return false
			}
			m.aheadIn, m.r = in, bufio.NewReader(in)
		}
		text, err := m.r.ReadString(m.end)
		m.bound(len(text))
		if err != nil && text == "" {
			m.r = nil
			if m.aheadIn != nil { // an empty file is edited, too
				m.env.Output(m.aheadIn)
			}
			continue
		}
		m.aheadNL = err == nil
		if m.aheadNL {
			text = text[:len(text)-1]
		}
		m.ahead = &text
		return true
	}
}

// isLast reports whether the current line is the last one; if files are separate, the last one of
// its file.
func (m *machine) isLast() bool {
	return !m.fetch() || m.s.opts.Separate && m.aheadIn != nil
}

// nextLine makes the next line the current one.
func (m *machine) nextLine() bool {
	if !m.fetch() {
		return false
	}
	if m.aheadIn != nil {
		m.in, m.aheadIn = m.aheadIn, nil
		m.out = m.env.Output(m.in)
		if m.s.opts.Separate {
			m.line, m.ranges = 0, map[int]*rangeState{}
		}
	}
	m.space, m.newline, m.ahead = *m.ahead, m.aheadNL, nil
	m.line++
	return true
}

// write writes a line. newline is false if the input line had no newline at its end.
func (m *machine) write(text string, newline bool) {
	if m.missing {
		m.out.WriteByte(m.end)
	}
	m.out.WriteString(text)
	m.missing = !newline
	if newline {
		m.out.WriteByte(m.end)
	}
}

func (m *machine) raw(text string) {
	if m.missing {
		m.out.WriteByte(m.end)
	}
	m.missing = false
	m.out.WriteString(text)
}

// cycle runs the script for the current line, and again after D.
func (m *machine) cycle() {
	for {
		m.subst = false
		next := m.script()
		if next == cycleDelete {
			m.flush()
			return
		}
		if next != cycleRestart && !m.s.opts.Quiet && next != cycleQuiet {
			m.write(m.space, m.newline)
		}
		m.flush()
		if next != cycleRestart || m.quit {
			return
		}
	}
}

// flush writes the pending output of a, r and R.
func (m *machine) flush() {
	for _, f := range m.after {
		f()
	}
	m.after = nil
}

type cycleEnd uint8

const (
	cycleNormal  cycleEnd = iota
	cycleDelete           // the line is not printed
	cycleRestart          // D: again without a new line
	cycleQuiet            // Q
)

// script runs the commands.
func (m *machine) script() cycleEnd {
	for pc := 0; pc < len(m.s.cmds); {
		if m.steps++; m.steps%1024 == 0 {
			m.env.Check()
		}
		c := &m.s.cmds[pc]
		pc++
		if m.selected(c) == c.negate {
			if c.name == '{' {
				pc = c.n
			}
			continue
		}
		switch c.name {
		case 'b':
			pc = m.target(c)
		case 't', 'T':
			if m.subst == (c.name == 't') {
				pc = m.target(c)
			}
			m.subst = false
		case 'd':
			return cycleDelete
		case 'D':
			i := strings.IndexByte(m.space, m.end)
			if i < 0 {
				return cycleDelete
			}
			m.space = m.space[i+1:]
			return cycleRestart
		case 'n':
			if m.isLastOfAll() {
				m.quit = true
				return cycleNormal
			}
			if !m.s.opts.Quiet {
				m.write(m.space, m.newline)
			}
			m.flush()
			m.nextLine()
		case 'N':
			if m.isLastOfAll() {
				m.quit = true
				return cycleNormal
			}
			m.flush()
			before := m.space
			m.nextLine()
			m.bound(len(before) + len(m.space))
			m.space = before + string(m.end) + m.space
		case 'c':
			if c.a2.kind == addrNone || c.negate || m.rangeEnds(c) {
				m.raw(c.text)
			}
			return cycleDelete
		case 'q', 'Q':
			m.quit = true
			m.status = max(c.n, 0)
			if c.name == 'Q' {
				return cycleQuiet
			}
			return cycleNormal
		default:
			m.simple(c)
		}
	}
	return cycleNormal
}

func (m *machine) isLastOfAll() bool { return !m.fetch() || m.s.opts.Separate && m.aheadIn != nil }

func (m *machine) target(c *command) int {
	if c.text == "" {
		return len(m.s.cmds)
	}
	return m.s.labels[c.text]
}

// simple runs a command that does not transfer control.
func (m *machine) simple(c *command) {
	switch c.name {
	case 'a':
		m.after = append(m.after, func() { m.raw(c.text) })
	case 'i':
		m.raw(c.text)
	case 'r':
		m.after = append(m.after, func() {
			if data, ok := m.env.Read(c.text); ok && len(data) > 0 {
				m.raw(string(data))
			}
		})
	case 'R':
		m.readLine(c.text)
	case 'w':
		m.writeTo(c.text, m.space, m.newline)
	case 'W':
		first, _, _ := strings.Cut(m.space, string(m.end))
		m.writeTo(c.text, first, true)
	case 's':
		m.substitute(c.sub)
	case 'y':
		m.space = strings.Map(func(r rune) rune {
			if to, ok := c.trans[r]; ok {
				return to
			}
			return r
		}, m.space)
	case 'p':
		m.write(m.space, m.newline)
	case 'P':
		first, _, _ := strings.Cut(m.space, string(m.end))
		m.write(first, true)
	case 'g':
		m.space, m.newline = m.hold, m.holdNL
	case 'G':
		m.bound(len(m.space) + len(m.hold))
		m.space += string(m.end) + m.hold
	case 'h':
		m.hold, m.holdNL = m.space, m.newline
	case 'H':
		m.bound(len(m.space) + len(m.hold))
		m.hold += string(m.end) + m.space
	case 'x':
		m.space, m.hold = m.hold, m.space
		m.newline, m.holdNL = m.holdNL, m.newline
	case 'z':
		m.space = ""
	case '=':
		m.raw(fmt.Sprintf("%d\n", m.line))
	case 'F':
		m.raw(m.in.Name + "\n")
	case 'l':
		m.write(visible(m.space, c.n), true)
	}
}

func (m *machine) readLine(name string) {
	r, ok := m.readers[name]
	if !ok {
		r = m.env.Open(name)
		m.readers[name] = r
	}
	if r == nil {
		return
	}
	text, err := r.ReadString('\n')
	if err != nil && text == "" {
		return
	}
	m.after = append(m.after, func() { m.write(strings.TrimSuffix(text, "\n"), true) })
}

func (m *machine) writeTo(name, text string, newline bool) {
	if name == "/dev/stdout" {
		m.write(text, newline)
		return
	}
	if newline {
		text += string(m.end)
	}
	if _, err := io.WriteString(m.files[name], text); err != nil {
		panic(failure{fmt.Errorf("couldn't write to %s: %w", name, err)})
	}
}

// selected reports whether a command's addresses select the current line.
func (m *machine) selected(c *command) bool {
	if c.a1.kind == addrNone {
		return true
	}
	if c.a2.kind == addrNone {
		return m.matches(c.a1)
	}
	st := m.ranges[c.id]
	if st == nil {
		st = &rangeState{active: c.a1.kind == addrZero}
		m.ranges[c.id] = st
	}
	if st.active {
		return m.inRange(c, st)
	}
	// A range from a line number also begins at a later line if no command saw that line.
	if c.a1.kind == addrLine {
		if st.closed || m.line < c.a1.n {
			return false
		}
		st.closed = true
	} else if !m.matches(c.a1) {
		return false
	}
	st.active, st.end = true, 0
	switch c.a2.kind {
	case addrLine:
		st.end = c.a2.n
		if m.line >= st.end {
			st.active = false
			return c.a1.kind != addrLine || m.line <= max(st.end, c.a1.n)
		}
	case addrPlus:
		st.end = m.line + c.a2.n
	case addrMult:
		st.end = m.line
		if c.a2.n > 0 && m.line%c.a2.n != 0 {
			st.end += c.a2.n - m.line%c.a2.n
		}
	case addrLast:
		st.active = !m.isLast()
		return true
	}
	st.active = st.end == 0 || m.line < st.end
	return true
}

// inRange reports whether the current line is in a range that has begun.
func (m *machine) inRange(c *command, st *rangeState) bool {
	switch c.a2.kind {
	case addrRegex:
		st.active = !m.matches(c.a2)
		return true
	case addrLast:
		st.active = !m.isLast()
		return true
	}
	st.active = m.line < st.end
	return m.line <= st.end // N may have read beyond the end
}

// rangeEnds reports whether the current line is the last of a command's range.
func (m *machine) rangeEnds(c *command) bool {
	st := m.ranges[c.id]
	return st == nil || !st.active || m.isLast()
}

func (m *machine) matches(a address) bool {
	switch a.kind {
	case addrLine:
		return m.line == a.n
	case addrLast:
		return m.isLast()
	case addrStep:
		if a.step <= 0 {
			return m.line == a.n
		}
		return m.line >= a.n && (m.line-a.n)%a.step == 0
	case addrRegex:
		return m.regex(a.re).Match(m.space)
	}
	return false
}

// regex returns re, or the last one used if re is nil.
func (m *machine) regex(re *posixre.Regexp) *posixre.Regexp {
	if re != nil {
		m.last = re
	}
	if m.last == nil {
		panic(failure{errors.New("no previous regular expression")})
	}
	return m.last
}

func (m *machine) substitute(s *substitution) {
	re := m.regex(s.re)
	var b strings.Builder
	at, count := 0, 0
	for f := range re.Each(m.space) {
		if count++; count%1024 == 0 {
			m.env.Check()
		}
		if count < s.nth {
			continue
		}
		b.WriteString(m.space[at:f[0]])
		at = f[1]
		m.expand(&b, s.with, f)
		m.bound(b.Len())
		if !s.all {
			break
		}
	}
	if count < max(s.nth, 1) {
		return
	}
	b.WriteString(m.space[at:])
	m.bound(b.Len())
	m.space = b.String()
	m.subst = true
	for range s.print {
		m.write(m.space, m.newline)
	}
	if s.hasFile {
		m.writeTo(s.file, m.space, m.newline)
	}
}

// expand writes the replacement for one match.
func (m *machine) expand(b *strings.Builder, with []part, found []int) {
	all, once := byte(0), byte(0)
	for _, p := range with {
		if p.conv != 0 {
			switch p.conv {
			case 'u', 'l':
				once = p.conv
			case 'E':
				all, once = 0, 0
			default:
				all, once = p.conv, 0
			}
			continue
		}
		text := p.text
		if p.group >= 0 {
			text = ""
			if lo := found[2*p.group]; lo >= 0 {
				text = m.space[lo:found[2*p.group+1]]
			}
		}
		switch all {
		case 'U':
			text = strings.ToUpper(text)
		case 'L':
			text = strings.ToLower(text)
		}
		if once != 0 && text != "" {
			r, n := utf8.DecodeRuneInString(text)
			if once == 'u' {
				r = unicode.ToUpper(r)
			} else {
				r = unicode.ToLower(r)
			}
			text = string(r) + text[n:]
			once = 0
		}
		b.WriteString(text)
	}
}

// visible formats a line for the command l, folded at a width. Negative: 70; 0 and 1: not folded.
func visible(text string, width int) string {
	if width < 0 {
		width = 70
	}
	var b strings.Builder
	column := 0
	put := func(s string) {
		if width > 1 && column+len(s) > width-1 {
			b.WriteString("\\\n")
			column = 0
		}
		b.WriteString(s)
		column += len(s)
	}
	for i := range len(text) {
		switch c := text[i]; {
		case c == '\\':
			put(`\\`)
		case strings.IndexByte("\a\b\f\n\r\t\v", c) >= 0:
			put(`\` + "abfnrtv"[strings.IndexByte("\a\b\f\n\r\t\v", c):][:1])
		case c < ' ' || c >= 0x7f:
			put(fmt.Sprintf(`\%03o`, c))
		default:
			put(string(c))
		}
	}
	return b.String() + "$"
}
