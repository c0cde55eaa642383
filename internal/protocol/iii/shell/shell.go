// Package shell splits a command line into words like a POSIX shell, without variables, globs,
// pipes and lists. Characters that are special to a shell, except quotes, are plain text here.
package shell

import "strings"

// Split splits line into words. Blanks are space, tab and newline. In single quotes everything is
// literal. In double quotes a backslash quotes $, `, ", \ and newline, and is literal otherwise;
// outside of quotes it quotes any character, and is removed together with a following newline. A #
// at the start of a word begins a comment until the end of the line. ok is false for an unclosed
// quote and for a backslash at the end.
func Split(line string) (words []string, ok bool) {
	s := splitter{in: line}
	for {
		word, more := s.word()
		if s.bad {
			return nil, false
		}
		if !more {
			return words, true
		}
		words = append(words, word)
	}
}

// splitter is a position in a line.
type splitter struct {
	in  string
	at  int
	bad bool
}

func (s *splitter) next() (c byte, ok bool) {
	if s.at == len(s.in) {
		return 0, false
	}
	s.at++
	return s.in[s.at-1], true
}

// word returns the next word; false at the end.
func (s *splitter) word() (string, bool) {
	c, ok := s.start()
	if !ok {
		return "", false
	}
	var w strings.Builder
	for ok && !s.bad && !blank(c) {
		switch c {
		case '\'':
			s.single(&w)
		case '"':
			s.double(&w)
		case '\\':
			c, ok := s.next()
			s.bad = !ok
			if c != '\n' {
				w.WriteByte(c)
			}
		default:
			w.WriteByte(c)
		}
		c, ok = s.next()
	}
	return w.String(), true
}

// start skips blanks and comments and returns the first byte of a word.
func (s *splitter) start() (c byte, ok bool) {
	for {
		c, ok = s.next()
		switch {
		case !ok:
			return 0, false
		case c == '#':
			for ok && c != '\n' {
				c, ok = s.next()
			}
		case !blank(c):
			return c, true
		}
	}
}

func blank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' }

// single reads up to the closing single quote.
func (s *splitter) single(w *strings.Builder) {
	n := strings.IndexByte(s.in[s.at:], '\'')
	if n < 0 {
		s.bad = true
		return
	}
	w.WriteString(s.in[s.at : s.at+n])
	s.at += n + 1
}

// double reads up to the closing double quote.
func (s *splitter) double(w *strings.Builder) {
	for {
		c, ok := s.next()
		switch {
		case !ok:
			s.bad = true
			return
		case c == '"':
			return
		case c != '\\':
			w.WriteByte(c)
			continue
		}
		c, ok = s.next()
		switch {
		case !ok:
			s.bad = true
			return
		case c == '\n':
		case strings.IndexByte("$`\"\\", c) >= 0:
			w.WriteByte(c)
		default:
			w.WriteByte('\\')
			w.WriteByte(c)
		}
	}
}
