package search

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"regexp"
	"regexp/syntax"
	"sync"
	"unicode/utf8"
)

// Match is a line with a match.
type Match struct {
	Path    string `json:"path"`
	Line    uint64 `json:"line"` // from 1
	Content string `json:"content"`
}

// Grep finds lines in files. It may be used by several goroutines.
type Grep struct {
	re *regexp.Regexp
	// literals are texts of which every matching line contains one, none if unknown. Searching for
	// them first is many times faster.
	literals [][]byte
	width    uint64 // bytes of a line's text; 0 for no bound
	readers  sync.Pool
}

// NewGrep creates a Grep. It cuts a line's text to width bytes, between characters, and appends
// "…"; 0 is no bound.
func NewGrep(pattern string, ignoreCase bool, width uint64) (*Grep, error) {
	re, err := Compile(pattern, ignoreCase)
	if err != nil {
		return nil, err
	}
	g := &Grep{re: re, width: width}
	g.readers.New = func() any { return bufio.NewReaderSize(nil, block) }
	if parsed, err := syntax.Parse(re.String(), syntax.Perl); err == nil {
		for _, s := range required(parsed.Simplify()) {
			g.literals = append(g.literals, []byte(s))
		}
	}
	return g, nil
}

// maxLiterals bounds the number of literals.
const maxLiterals = 8

// required returns texts of which every match of re contains one, nil if unknown.
func required(re *syntax.Regexp) []string {
	switch re.Op {
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase == 0 {
			return []string{string(re.Rune)}
		}
	case syntax.OpCapture, syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return required(re.Sub[0])
		}
	case syntax.OpConcat:
		var best []string
		for _, sub := range re.Sub {
			if r := required(sub); r != nil && (best == nil || shortest(r) > shortest(best)) {
				best = r
			}
		}
		return best
	case syntax.OpAlternate:
		var all []string
		for _, sub := range re.Sub {
			r := required(sub)
			if r == nil || len(all)+len(r) > maxLiterals {
				return nil
			}
			all = append(all, r...)
		}
		return all
	}
	return nil
}

func shortest(all []string) int {
	n := len(all[0])
	for _, s := range all {
		n = min(n, len(s))
	}
	return n
}

// Bounds of one file.
const (
	// sniff is the number of bytes that are searched for a NUL, which marks a binary file.
	sniff = 8 << 10
	// maxLine is how much of one line is searched, in bytes. The rest of a longer line is skipped.
	maxLine = 16 << 20
	// block is the size of reads, in bytes.
	block = 128 << 10
)

// File calls found for every matching line of r until found returns false. It skips a file with a
// NUL near its start, and lines that are not UTF-8. The error is r's.
func (g *Grep) File(r io.Reader, found func(line uint64, content string) bool) error {
	br := g.readers.Get().(*bufio.Reader)
	br.Reset(r)
	defer func() {
		br.Reset(nil)
		g.readers.Put(br)
	}()
	s := scan{g: g, br: br, found: found}
	more, err := s.sniff()
	for more && err == nil {
		more, err = s.block()
	}
	return err
}

// Bytes is File for a file in memory.
func (g *Grep) Bytes(text []byte, found func(line uint64, content string) bool) {
	if bytes.IndexByte(text[:min(len(text), sniff)], 0) < 0 {
		s := scan{g: g, found: found}
		s.lines(text)
	}
}

// scan is the search of one file.
type scan struct {
	g      *Grep
	br     *bufio.Reader
	number uint64 // of the last line that was passed
	found  func(uint64, string) bool
}

// sniff reports whether the file is text.
func (s *scan) sniff() (bool, error) {
	head, err := s.br.Peek(sniff)
	if err != nil && err != io.EOF {
		return false, err
	}
	return bytes.IndexByte(head, 0) < 0, nil
}

// block searches the complete lines in the buffer, or the rest at the end, or one line that does
// not fit.
func (s *scan) block() (more bool, err error) {
	b, err := s.br.Peek(block)
	switch {
	case err == io.EOF:
		s.lines(b)
		return false, nil
	case err != nil:
		return false, err
	}
	end := bytes.LastIndexByte(b, '\n') + 1
	if end == 0 {
		return s.long()
	}
	more = s.lines(b[:end])
	_, err = s.br.Discard(end)
	return more, err
}

// long searches one line that exceeds the buffer.
func (s *scan) long() (more bool, err error) {
	var line []byte
	for err = bufio.ErrBufferFull; errors.Is(err, bufio.ErrBufferFull); {
		var piece []byte
		piece, err = s.br.ReadSlice('\n')
		line = append(line, piece[:min(len(piece), maxLine-len(line))]...)
	}
	if err != nil && err != io.EOF {
		return false, err
	}
	if len(line) == maxLine { // possibly cut within a character
		for i := 1; i < utf8.UTFMax && !utf8.RuneStart(line[len(line)-i]); i++ {
			line = line[:len(line)-i]
		}
	}
	return s.lines(line), nil
}

// lines searches text. Only its last line may be incomplete. It reports whether to continue.
func (s *scan) lines(text []byte) bool {
	next := make([]int, len(s.g.literals)) // next occurrence of each literal; len(text) for none
	for i := range next {
		next[i] = -1
	}
	for at := 0; at < len(text); {
		if len(next) > 0 {
			hit := s.g.nextLiteral(text, at, next)
			begin := at
			if hit < len(text) {
				at += bytes.LastIndexByte(text[at:hit], '\n') + 1
			} else {
				at = len(text)
			}
			if s.number += count(text[begin:at]); at == len(text) {
				break
			}
		}
		line, _, _ := bytes.Cut(text[at:], []byte("\n"))
		at += len(line) + 1
		s.number++
		line = bytes.TrimSuffix(line, []byte("\r"))
		if s.g.re.Match(line) && utf8.Valid(line) && !s.found(s.number, s.g.cut(line)) {
			return false
		}
	}
	return true
}

// nextLiteral returns the position of the first literal in text from at on. It caches occurrences
// in next.
func (g *Grep) nextLiteral(text []byte, at int, next []int) int {
	first := len(text)
	for i, l := range g.literals {
		if next[i] < at {
			if n := bytes.Index(text[at:], l); n >= 0 {
				next[i] = at + n
			} else {
				next[i] = len(text)
			}
		}
		first = min(first, next[i])
	}
	return first
}

// count counts the lines of text; the last may be incomplete.
func count(text []byte) uint64 {
	n := uint64(bytes.Count(text, []byte("\n")))
	if len(text) > 0 && text[len(text)-1] != '\n' {
		n++
	}
	return n
}

// cut shortens a line's text.
func (g *Grep) cut(line []byte) string {
	if g.width == 0 || uint64(len(line)) <= g.width {
		return string(line)
	}
	end := int(g.width)
	for end > 0 && !utf8.RuneStart(line[end]) {
		end--
	}
	return string(line[:end]) + "…"
}
