package search

import (
	"bytes"
	"regexp"
	"strings"
)

// Sed replaces text line by line. It may be used by several goroutines.
type Sed struct {
	re          *regexp.Regexp // nil for a literal pattern
	literal     []byte
	replacement []byte
	expand      bool // $1, $name, ${name} and $$ are expanded in the replacement
	firstOnly   bool
	newline     bool // the pattern can match a newline
}

// NewSed creates a Sed. Without regex the pattern is literal and must not be empty, and the
// replacement is literal. With firstOnly it replaces only the first match of each line.
//
// A line is matched without its newline, so that $ and \s have their usual meaning. Only a pattern
// with a newline or \n sees it.
func NewSed(pattern, replacement string, regex, firstOnly, ignoreCase bool) (*Sed, error) {
	s := &Sed{replacement: []byte(replacement), firstOnly: firstOnly, expand: regex,
		newline: strings.Contains(pattern, "\n") || regex && strings.Contains(pattern, `\n`)}
	if !regex && !ignoreCase {
		s.literal = []byte(pattern)
		return s, nil
	}
	if !regex {
		pattern = regexp.QuoteMeta(pattern)
	}
	var err error
	s.re, err = Compile(pattern, ignoreCase)
	return s, err
}

// Apply returns text with the matches replaced, and their number.
func (s *Sed) Apply(text []byte) (out []byte, count uint64) {
	if !s.mayMatch(text) {
		return text, 0
	}
	out = make([]byte, 0, len(text))
	for len(text) > 0 {
		line, rest, found := bytes.Cut(text, []byte("\n"))
		end := text[len(line) : len(text)-len(rest)]
		if s.newline && found {
			line, end = text[:len(line)+1], nil
		}
		text = rest
		var n uint64
		out, n = s.line(out, line)
		out = append(out, end...)
		count += n
	}
	return out, count
}

// mayMatch quickly excludes texts without a literal pattern.
func (s *Sed) mayMatch(text []byte) bool { return s.re != nil || bytes.Contains(text, s.literal) }

// line appends a line with its matches replaced.
func (s *Sed) line(out, line []byte) ([]byte, uint64) {
	at, count := 0, uint64(0)
	for _, m := range s.find(line) {
		out = append(out, line[at:m[0]]...)
		if s.expand {
			out = s.re.Expand(out, s.replacement, line, m)
		} else {
			out = append(out, s.replacement...)
		}
		at = m[1]
		count++
	}
	return append(out, line[at:]...), count
}

// find returns the matches in a line, in the form of regexp.FindAllSubmatchIndex.
func (s *Sed) find(line []byte) [][]int {
	most := -1
	if s.firstOnly {
		most = 1
	}
	if s.re != nil {
		return s.re.FindAllSubmatchIndex(line, most)
	}
	var all [][]int
	for at := 0; most < 0 || len(all) < most; {
		i := bytes.Index(line[at:], s.literal)
		if i < 0 {
			break
		}
		all = append(all, []int{at + i, at + i + len(s.literal)})
		at += i + len(s.literal)
	}
	return all
}
