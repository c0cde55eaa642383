package shell

import (
	"context"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"

	"github.com/sandbar-dev/sandbar/internal/wasm/shell/format"
)

// readOptions are the options of read.
type readOptions struct {
	raw    bool
	delim  byte
	count  int // at most this many characters; -1: a line
	exact  bool
	fd     int
	array  string
	wait   time.Duration // timeout; 0: none
	prompt string
}

// read implements read.
func (s *shell) read(args []string) int {
	o := readOptions{delim: '\n', count: -1}
	names, err := o.parse(args[1:])
	if err != "" {
		return s.usage("read", "%s", err)
	}
	for _, name := range names {
		if !syntax.ValidName(name) {
			return s.usage("read", "%s: bad variable name", name)
		}
	}
	if o.prompt != "" {
		_, _ = io.WriteString(s.p.stream(2), o.prompt)
	}
	if o.fd != 0 {
		d := s.p.fds[o.fd]
		if d == nil {
			return s.usage("read", "%d: bad file descriptor", o.fd)
		}
		saved := map[int]*desc{}
		s.replace(0, d.dup(), saved)
		defer func() {
			s.p.fds.unset(0)
			if saved[0] != nil {
				s.p.fds.set(0, saved[0])
			}
		}()
	}
	defer s.deadline(o.wait)()
	line, quoted, ok := s.readInput(o)
	s.assignRead(o, names, line, quoted)
	return oneIf(!ok)
}

// deadline makes reads fail after a time. It returns a function that ends this.
func (s *shell) deadline(d time.Duration) func() {
	if d <= 0 {
		return func() {}
	}
	old := s.p.fds[0]
	if old == nil {
		return func() {}
	}
	ctx, cancel := context.WithTimeout(s.p.ctx, d)
	s.p.fds[0] = newDesc(timedHandle{old, ctx})
	return func() {
		cancel()
		s.p.fds[0] = old
	}
}

// timedHandle returns io.EOF after the end of another context.
type timedHandle struct {
	*desc
	limit context.Context
}

func (h timedHandle) read(_ context.Context, p []byte) (int, error) {
	n, err := h.desc.read(h.limit, p)
	if err != nil && h.limit.Err() != nil {
		err = io.EOF
	}
	return n, err
}

func (h timedHandle) write(context.Context, []byte) (int, error) { return 0, io.EOF }
func (h timedHandle) close()                                     {}

// parse parses the options and returns the names.
func (o *readOptions) parse(args []string) (names []string, problem string) {
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		opt := args[0]
		args = args[1:]
		if opt == "--" {
			break
		}
		for i := 1; i < len(opt); i++ {
			c := opt[i]
			if c == 'r' || c == 's' || c == 'e' {
				o.raw = o.raw || c == 'r'
				continue
			}
			value := opt[i+1:]
			if value == "" && strings.IndexByte("adinNptu", c) >= 0 {
				if len(args) == 0 {
					return nil, "-" + string(c) + ": option requires an argument"
				}
				value, args = args[0], args[1:]
			}
			if !o.set(c, value) {
				return nil, "Illegal option -" + string(c)
			}
			break
		}
	}
	return args, ""
}

func (o *readOptions) set(c byte, value string) bool {
	n, err := strconv.Atoi(value)
	switch c {
	case 'a':
		o.array = value
	case 'd':
		o.delim = 0
		if value != "" {
			o.delim = value[0]
		}
	case 'n', 'N':
		o.count, o.exact = n, c == 'N'
		return err == nil && n >= 0
	case 'p':
		o.prompt = value
	case 't':
		seconds, err := strconv.ParseFloat(value, 64)
		o.wait = max(time.Duration(seconds*float64(time.Second)), time.Millisecond)
		return err == nil
	case 'u':
		o.fd = n
		return err == nil
	case 'i':
	default:
		return false
	}
	return true
}

// readInput reads a line. Without -r, a backslash joins lines and quotes characters; quoted marks
// the quoted bytes.
func (s *shell) readInput(o readOptions) (line []byte, quoted []bool, ok bool) {
	for {
		raw, ended := s.readChunk(o, len(line))
		if o.raw {
			return raw, make([]bool, len(raw)), ended
		}
		joined := false
		for i := 0; i < len(raw); i++ {
			if raw[i] != '\\' {
				line, quoted = append(line, raw[i]), append(quoted, false)
				continue
			}
			if i++; i < len(raw) {
				line, quoted = append(line, raw[i]), append(quoted, true)
			} else {
				joined = ended
			}
		}
		if !joined {
			return line, quoted, ended
		}
	}
}

// readChunk reads up to the delimiter, or up to the number of characters.
func (s *shell) readChunk(o readOptions, have int) ([]byte, bool) {
	if o.count < 0 {
		return s.readLine(o.delim, false, -1)
	}
	var out []byte
	for utf8.RuneCount(out) < o.count-have || !utf8.FullRune(lastRune(out)) {
		b, ok := s.readLine(o.delim, true, 1)
		if !ok {
			return append(out, b...), false
		}
		if b[0] == o.delim && !o.exact {
			return out, true
		}
		out = append(out, b...)
	}
	return out, true
}

// lastRune returns the last, possibly incomplete, character of b.
func lastRune(b []byte) []byte {
	i := len(b)
	for i > 0 && i > len(b)-utf8.UTFMax {
		i--
		if utf8.RuneStart(b[i]) {
			return b[i:]
		}
	}
	return []byte("x")
}

// assignRead splits a line into the variables. The last variable gets the rest.
func (s *shell) assignRead(o readOptions, names []string, line []byte, quoted []bool) {
	if o.array == "" && len(names) == 0 {
		s.setVar("REPLY", string(line))
		return
	}
	ifs := s.getOr("IFS", " \t\n")
	if o.exact {
		ifs = ""
	}
	n := len(names)
	if o.array != "" {
		n = -1
	}
	words := splitRead(string(line), quoted, ifs, n)
	if o.array != "" {
		v := s.writable(o.array)
		v.list, v.dict, v.str, v.set = map[int]string{}, nil, "", true
		for i, w := range words {
			v.list[i] = w
		}
		return
	}
	for i, name := range names {
		value := ""
		if i < len(words) {
			value = words[i]
		}
		s.setVar(name, value)
	}
}

// splitRead splits a line as read does, into at most max words, the last of which is the rest of
// the line. max < 0: no bound.
func splitRead(line string, quoted []bool, ifs string, max int) []string {
	sep := func(i int) bool { return !quoted[i] && strings.IndexByte(ifs, line[i]) >= 0 }
	space := func(i int) bool { return sep(i) && strings.IndexByte(" \t\n", line[i]) >= 0 }
	end := len(line)
	for end > 0 && space(end-1) {
		end--
	}
	// delimited returns the end of the separator at i: white space of IFS around at most one other
	// character of IFS.
	delimited := func(i int) int {
		hard := false
		for i < end && (space(i) || sep(i) && !hard) {
			hard = hard || !space(i)
			i++
		}
		return i
	}
	i := 0
	for i < end && space(i) {
		i++
	}
	var words []string
	for i < end {
		j := i
		for j < end && !sep(j) {
			j++
		}
		next := delimited(j)
		if max > 0 && len(words) == max-1 && next < end {
			return append(words, line[i:end])
		}
		words = append(words, line[i:j])
		i = next
	}
	return words
}

// mapfile implements mapfile: it reads lines into an array.
func (s *shell) mapfile(args []string) int {
	name, delim, trim, limit := "MAPFILE", byte('\n'), false, -1
	rest := args[1:]
	for len(rest) > 0 && len(rest[0]) > 1 && rest[0][0] == '-' {
		opt := rest[0]
		rest = rest[1:]
		switch opt[1] {
		case 't':
			trim = true
		case 'd', 'n':
			value := opt[2:]
			if value == "" && len(rest) > 0 {
				value, rest = rest[0], rest[1:]
			}
			if opt[1] == 'n' {
				limit = s.number(value)
				continue
			}
			delim = 0
			if value != "" {
				delim = value[0]
			}
		default:
			return s.usage(args[0], "%s: invalid option", opt)
		}
	}
	if len(rest) > 0 {
		name = rest[0]
	}
	v := s.writable(name)
	v.list, v.dict, v.str, v.set = map[int]string{}, nil, "", true
	size := 0
	for i := 0; limit <= 0 || i < limit; i++ {
		line, ok := s.readLine(delim, !trim, -1)
		if !ok && len(line) == 0 {
			break
		}
		size += len(line)
		s.bound(size)
		v.list[i] = string(line)
		if !ok {
			break
		}
	}
	return 0
}

// getopts implements getopts.
func (s *shell) getopts(args []string) int {
	if len(args) < 3 {
		return s.usage("getopts", "usage: getopts optstring name [arg ...]")
	}
	spec, name, params := args[1], args[2], s.params
	if len(args) > 3 {
		params = args[3:]
	}
	silent := strings.HasPrefix(spec, ":")
	ind := max(s.number(s.getOr("OPTIND", "1")), 1)
	pos := max(s.optPos, 1)
	done := func() int {
		s.setVar("OPTIND", strconv.Itoa(ind))
		s.setVar(name, "?")
		return 1
	}
	if ind > len(params) {
		return done()
	}
	word := params[ind-1]
	if pos == 1 {
		if len(word) < 2 || word[0] != '-' {
			return done()
		}
		if word == "--" {
			ind++
			return done()
		}
	}
	c := word[pos]
	pos++
	last := pos >= len(word)
	at := strings.IndexByte(strings.TrimPrefix(spec, ":"), c)
	found, value := string(c), ""
	s.unset("OPTARG")
	switch {
	case at < 0 || c == ':':
		found = "?"
		if silent {
			value = string(c)
		} else {
			_, _ = io.WriteString(s.p.stream(2), "Illegal option -"+string(c)+"\n")
		}
	case strings.HasPrefix(strings.TrimPrefix(spec, ":")[at+1:], ":"):
		switch {
		case !last:
			value = word[pos:]
		case ind < len(params):
			ind++
			value = params[ind-1]
		case silent:
			found, value = ":", string(c)
		default:
			found = "?"
			s.errorf("No arg for -%c option", c)
		}
		last = true
	}
	if last {
		ind, pos = ind+1, 0
	}
	s.setVar("OPTIND", strconv.Itoa(ind))
	s.optPos = pos
	s.setVar(name, found)
	if value != "" {
		s.setVar("OPTARG", value)
	}
	return 0
}

// printf implements printf, with bash's -v NAME.
func (s *shell) printf(args []string) int {
	args = args[1:]
	into := ""
	if len(args) > 1 && args[0] == "-v" {
		into, args = args[1], args[2:]
	}
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		return s.usage("printf", "usage: printf format [arg ...]")
	}
	var b strings.Builder
	problems := format.Printf(&b, args[0], args[1:], s.sys.limits.Bytes)
	status := 0
	for _, p := range problems {
		s.errorf("printf: %s", p)
		status = 1
	}
	if into != "" {
		s.setVar(into, b.String())
		return status
	}
	return max(status, s.out(b.String()))
}
