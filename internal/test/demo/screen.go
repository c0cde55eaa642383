package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// screen prints the demonstration, in colour on a terminal.
type screen struct {
	mu     sync.Mutex
	w      io.Writer
	colour bool
}

// The styles, as the numbers of ANSI sequences.
const (
	bold  = "1"
	dim   = "2"
	red   = "31"
	green = "32"
)

func (s *screen) styled(style, text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

func (s *screen) printf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.w, format, args...)
}

func (s *screen) heading(text string) {
	s.printf("\n%s\n", s.styled(bold, "== "+text))
}

// scene prints the title of a scene and its program.
func (s *screen) scene(sc scene) {
	s.printf("\n%s\n", s.styled(bold, sc.title))
	for line := range strings.Lines(sc.code) {
		s.printf("  %s\n", s.styled(dim, "| "+strings.TrimRight(line, "\n")))
	}
}

// lines prints a program's output line by line, each with the time of its end since the ack.
type lines struct {
	s       *screen
	partial map[string]string // by stream: the text after its last newline
}

func (l *lines) add(m message, since time.Duration) {
	if m.Type != "stdout" && m.Type != "stderr" {
		return
	}
	text := l.partial[m.Type] + m.Data
	for {
		line, rest, complete := strings.Cut(text, "\n")
		if !complete {
			break
		}
		l.s.printf("  %6.2fs %s  %s\n", since.Seconds(), m.Type, printable(line))
		text = rest
	}
	l.partial[m.Type] = text
}

// end prints unterminated last lines.
func (l *lines) end() {
	for stream, text := range l.partial {
		if text != "" {
			l.s.printf("          %s  %s\n", stream, printable(text))
		}
	}
}

// printable escapes a program's output for a terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r == 0x7f || (r >= 0x80 && r < 0xa0) {
			return '\uFFFD'
		}
		return r
	}, text)
}

// outcome prints how an execution ended and whether that was expected.
func (s *screen) outcome(o outcome, fault error) {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if o.Status != "" {
		add("%s", o.Status)
	}
	if o.Error != "" {
		add("%s: %s", o.Error, printable(o.Reason))
	}
	if o.Exit != nil {
		add("exit %d", *o.Exit)
	}
	if o.Status != "" {
		add("%d ms", o.Took.Milliseconds())
		add("%d ms of processor", o.CPU.Milliseconds())
		add("peak %.0f MB", o.Memory)
	}
	s.printf("  → %s\n", strings.Join(parts, ", "))
	s.verdict(fault)
}

// verdict prints whether something was as expected.
func (s *screen) verdict(fault error) {
	if fault == nil {
		s.printf("  %s\n", s.styled(green, "as expected"))
		return
	}
	for line := range strings.Lines(fault.Error()) {
		s.printf("  %s\n", s.styled(red, "NOT as expected: "+strings.TrimRight(line, "\n")))
	}
}
