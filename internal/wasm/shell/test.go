package shell

import (
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/sandbar-dev/sandbar/internal/wasm/memfs"
)

// testClause executes [[ … ]].
func (s *shell) testClause(x syntax.TestExpr) int {
	ok, err := s.testExpr(x)
	if err {
		return 2
	}
	return oneIf(!ok)
}

func (s *shell) testExpr(x syntax.TestExpr) (ok, bad bool) {
	defer s.nest()()
	switch x := x.(type) {
	case *syntax.Word:
		return s.literal(x) != "", false
	case *syntax.ParenTest:
		return s.testExpr(x.X)
	case *syntax.UnaryTest:
		if x.Op == syntax.TsNot {
			ok, bad := s.testExpr(x.X)
			return !ok, bad
		}
		return s.testUnary(x.Op.String(), s.literal(x.X.(*syntax.Word))), false
	case *syntax.BinaryTest:
		return s.testBinary(x)
	}
	return false, true
}

func (s *shell) testBinary(x *syntax.BinaryTest) (ok, bad bool) {
	switch x.Op {
	case syntax.AndTest, syntax.OrTest:
		ok, bad = s.testExpr(x.X)
		if bad || ok == (x.Op == syntax.OrTest) {
			return ok, bad
		}
		return s.testExpr(x.Y)
	}
	left, right := s.literal(x.X.(*syntax.Word)), x.Y.(*syntax.Word)
	switch x.Op {
	case syntax.TsMatchShort, syntax.TsMatch:
		return s.matches(s.pattern(right), left), false
	case syntax.TsNoMatch:
		return !s.matches(s.pattern(right), left), false
	case syntax.TsReMatch:
		return s.testRegexp(left, s.regex(right))
	}
	op := x.Op.String()
	if strings.HasPrefix(op, "-") && slices.Contains(numericTests, op) {
		return compareInts(op, s.arithText(left), s.arithText(s.literal(right))), false
	}
	return s.testPair(op, left, s.literal(right))
}

// testRegexp implements =~ and stores the submatches in BASH_REMATCH.
func (s *shell) testRegexp(text, expr string) (ok, bad bool) {
	if s.opts.nocasematch {
		expr = "(?i)" + expr
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		s.errorf("[[: %s: invalid regular expression", expr)
		return false, true
	}
	re.Longest()
	m := re.FindStringSubmatch(text)
	v := s.writable("BASH_REMATCH")
	v.set, v.str, v.list = true, "", map[int]string{}
	for i, part := range m {
		v.list[i] = part
	}
	return m != nil, false
}

var numericTests = []string{"-eq", "-ne", "-lt", "-le", "-gt", "-ge"}

func compareInts(op string, a, b int64) bool {
	switch op {
	case "-eq":
		return a == b
	case "-ne":
		return a != b
	case "-lt":
		return a < b
	case "-le":
		return a <= b
	case "-gt":
		return a > b
	}
	return a >= b
}

// testPair evaluates a binary operator.
func (s *shell) testPair(op, a, b string) (ok, bad bool) {
	switch op {
	case "=", "==":
		return a == b, false
	case "!=":
		return a != b, false
	case "<":
		return a < b, false
	case ">":
		return a > b, false
	case "-nt", "-ot", "-ef":
		return s.testFiles(op, a, b), false
	}
	if !slices.Contains(numericTests, op) {
		s.errorf("test: %s: unexpected operator", op)
		return false, true
	}
	var n [2]int64
	for i, text := range []string{a, b} {
		v, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		if err != nil {
			s.errorf("test: Illegal number: %s", text)
			return false, true
		}
		n[i] = v
	}
	return compareInts(op, n[0], n[1]), false
}

func (s *shell) testFiles(op, a, b string) bool {
	x, errX := s.sys.fs.Stat(s.dir, a)
	y, errY := s.sys.fs.Stat(s.dir, b)
	switch op {
	case "-nt":
		return errX == nil && (errY != nil || x.ModTime().After(y.ModTime()))
	case "-ot":
		return errY == nil && (errX != nil || x.ModTime().Before(y.ModTime()))
	}
	return errX == nil && errY == nil && x.Inode() == y.Inode()
}

// testUnary evaluates a unary operator.
func (s *shell) testUnary(op, arg string) bool {
	switch op {
	case "-z":
		return arg == ""
	case "-n":
		return arg != ""
	case "-o":
		return s.opts.byName(arg) != nil && *s.opts.byName(arg)
	case "-v":
		name, key, elem := strings.Cut(strings.TrimSuffix(arg, "]"), "[")
		if elem {
			return s.element(name, key).set
		}
		_, ok := s.get(arg)
		return ok
	case "-R":
		v := s.vars[arg]
		return v != nil && v.ref
	case "-t":
		return false // no descriptor is a terminal
	}
	stat := s.sys.fs.Stat
	if op == "-L" || op == "-h" {
		stat = s.sys.fs.Lstat
	}
	info, err := stat(s.dir, arg)
	return err == nil && testMode(op, info)
}

func testMode(op string, info *memfs.Info) bool {
	m := info.Mode()
	switch op {
	case "-e", "-a", "-r", "-w", "-O", "-G", "-N":
		return true
	case "-f":
		return m.IsRegular()
	case "-d":
		return m.IsDir()
	case "-L", "-h":
		return m&fs.ModeSymlink != 0
	case "-c":
		return m&fs.ModeCharDevice != 0
	case "-s":
		return info.Size() > 0 || m.IsDir()
	case "-x":
		return m.IsDir() || m.Perm()&0o111 != 0
	case "-k":
		return m&fs.ModeSticky != 0
	case "-g":
		return m&fs.ModeSetgid != 0
	case "-u":
		return m&fs.ModeSetuid != 0
	}
	return false // -b, -p, -S: no such files exist
}

// classicTest implements test and [: by the number of arguments as POSIX requires, and with -a, -o
// and parentheses for more than four.
func (s *shell) classicTest(args []string) int {
	t := &classic{s: s, args: args}
	ok := false
	switch len(args) {
	case 0:
		return 1
	case 1:
		return oneIf(args[0] == "")
	case 2:
		if args[0] == "!" {
			return oneIf(args[1] != "")
		}
	case 3:
		if t.binary(args[1]) {
			ok, t.bad = s.testPair(args[1], args[0], args[2])
			return t.status(ok)
		}
	case 4:
		if args[0] == "!" {
			status := s.classicTest(args[1:])
			if status > 1 {
				return status
			}
			return 1 - status
		}
	}
	ok = t.or()
	if !t.bad && t.pos < len(args) {
		s.errorf("test: %s: unexpected operator", args[t.pos])
		t.bad = true
	}
	return t.status(ok)
}

// classic parses the arguments of test.
type classic struct {
	s    *shell
	args []string
	pos  int
	bad  bool
}

func (t *classic) status(ok bool) int {
	if t.bad {
		return 2
	}
	return oneIf(!ok)
}

func (t *classic) peek() string {
	if t.pos < len(t.args) {
		return t.args[t.pos]
	}
	return ""
}

func (t *classic) next() string {
	if t.pos >= len(t.args) {
		if !t.bad {
			t.s.errorf("test: argument expected")
		}
		t.bad = true
		return ""
	}
	t.pos++
	return t.args[t.pos-1]
}

func (t *classic) binary(op string) bool {
	return slices.Contains(numericTests, op) || slices.Contains([]string{"=", "==", "!=", "<", ">", "-nt", "-ot", "-ef"}, op)
}

func (t *classic) or() bool {
	ok := t.and()
	for !t.bad && t.peek() == "-o" {
		t.pos++
		right := t.and()
		ok = ok || right
	}
	return ok
}

func (t *classic) and() bool {
	ok := t.not()
	for !t.bad && t.peek() == "-a" {
		t.pos++
		right := t.not()
		ok = ok && right
	}
	return ok
}

func (t *classic) not() bool {
	if t.peek() == "!" && t.pos+1 < len(t.args) {
		t.pos++
		return !t.not()
	}
	return t.primary()
}

func (t *classic) primary() bool {
	defer t.s.nest()()
	word := t.next()
	left := len(t.args) - t.pos
	switch {
	case t.bad:
		return false
	case left >= 2 && t.binary(t.args[t.pos]):
		op := t.next()
		ok, bad := t.s.testPair(op, word, t.next())
		t.bad = t.bad || bad
		return ok
	case word == "(" && left > 0:
		ok := t.or()
		if t.next() != ")" {
			t.bad = true
		}
		return ok
	case left > 0 && len(word) == 2 && word[0] == '-' && strings.IndexByte("abcdefghknoprstuvwxzGLNORS", word[1]) >= 0:
		return t.s.testUnary(word, t.next())
	case len(word) == 2 && word[0] == '-' && left == 0 && t.pos > 1:
		return word != ""
	}
	return word != ""
}
