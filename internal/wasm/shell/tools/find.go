package tools

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar/internal/wasm/memfs"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/format"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/glob"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/modes"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/posixre"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/program"
)

// finder is a running find.
type finder struct {
	t        *cmd
	args     []string
	minDepth int
	maxDepth int
	depth    bool // process a directory's contents before it
	follow   bool
	action   bool // the expression has an action
	extended bool
	batches  []*batch
	quit     bool
	prune    bool // set by -prune during the evaluation of a file
}

// found is the file for which the expression is evaluated.
type found struct {
	path, start string
	info        *memfs.Info
	depth       int
}

// test is a primary of the expression.
type test func(f *found) bool

// batch has the files for one "-exec … {} +".
type batch struct {
	args  []string
	files []string
	size  int
}

func find(t *cmd) {
	f := &finder{t: t, args: t.Args[1:], maxDepth: 1 << 30}
	for len(f.args) > 0 && (f.args[0] == "-L" || f.args[0] == "-P" || f.args[0] == "-H") {
		f.follow = f.args[0] == "-L"
		f.args = f.args[1:]
	}
	var starts []string
	for len(f.args) > 0 && !strings.HasPrefix(f.args[0], "-") && f.args[0] != "(" && f.args[0] != "!" {
		starts = append(starts, f.args[0])
		f.args = f.args[1:]
	}
	if len(starts) == 0 {
		starts = []string{"."}
	}
	expr := func(*found) bool { return true }
	if len(f.args) > 0 {
		expr = f.or()
		if len(f.args) > 0 {
			t.fatal(1, "paths must precede expression: `%s'", f.args[0])
		}
	}
	if !f.action {
		inner := expr
		expr = func(x *found) bool {
			if inner(x) {
				fmt.Fprintln(t.out, x.path)
			}
			return true
		}
	}
	for _, s := range starts {
		info, err := f.stat(s)
		if err != nil {
			t.failed(s, err)
			continue
		}
		f.walk(&found{path: s, start: s, info: info}, expr)
	}
	for _, b := range f.batches {
		f.runBatch(b)
	}
}

func (f *finder) stat(name string) (*memfs.Info, error) {
	if f.follow {
		if info, err := f.t.FS.Stat(f.t.Dir, name); err == nil {
			return info, nil
		}
	}
	return f.t.FS.Lstat(f.t.Dir, name)
}

func (f *finder) walk(x *found, expr test) {
	f.t.check()
	if f.quit {
		return
	}
	f.prune = false
	visit := func() {
		if x.depth >= f.minDepth {
			expr(x)
		}
	}
	if !f.depth {
		visit()
	}
	if x.info.IsDir() && !f.prune && x.depth < f.maxDepth && !f.quit {
		list, err := f.t.FS.ReadDir(f.t.Dir, x.path)
		if err != nil {
			f.t.failed(x.path, err)
		}
		for _, e := range list {
			full := join(x.path, e.Name())
			info, err := f.stat(full)
			if err != nil {
				continue // removed in the meantime
			}
			f.walk(&found{path: full, start: x.start, info: info, depth: x.depth + 1}, expr)
		}
	}
	if f.depth && !f.quit {
		visit()
	}
}

func (f *finder) next(what string) string {
	if len(f.args) == 0 {
		f.t.fatal(1, "missing argument to `%s'", what)
	}
	a := f.args[0]
	f.args = f.args[1:]
	return a
}

func (f *finder) peek() string {
	if len(f.args) == 0 {
		return ""
	}
	return f.args[0]
}

func (f *finder) or() test {
	left := f.and()
	for f.peek() == "-o" || f.peek() == "-or" || f.peek() == "," {
		comma := f.next("") == ","
		a, b := left, f.and()
		left = func(x *found) bool {
			if comma {
				a(x)
				return b(x)
			}
			return a(x) || b(x)
		}
	}
	return left
}

func (f *finder) and() test {
	left := f.not()
	for p := f.peek(); p != "" && p != "-o" && p != "-or" && p != "," && p != ")"; p = f.peek() {
		if p == "-a" || p == "-and" {
			f.next("")
		}
		a, b := left, f.not()
		left = func(x *found) bool { return a(x) && b(x) }
	}
	return left
}

func (f *finder) not() test {
	if p := f.peek(); p == "!" || p == "-not" {
		f.next("")
		inner := f.not()
		return func(x *found) bool { return !inner(x) }
	}
	return f.primary()
}

func (f *finder) primary() test {
	op := f.next("expression")
	switch op {
	case "(":
		inner := f.or()
		if f.next("(") != ")" {
			f.t.fatal(1, "expected ')'")
		}
		return inner
	case "-true":
		return func(*found) bool { return true }
	case "-false":
		return func(*found) bool { return false }
	case "-maxdepth":
		f.maxDepth = f.t.number("argument to -maxdepth", f.next(op))
		return func(*found) bool { return true }
	case "-mindepth":
		f.minDepth = f.t.number("argument to -mindepth", f.next(op))
		return func(*found) bool { return true }
	case "-depth", "-d":
		f.depth = true
		return func(*found) bool { return true }
	case "-follow":
		f.follow = true
		return func(*found) bool { return true }
	case "-xdev", "-mount", "-noleaf", "-ignore_readdir_race", "-daystart", "-warn", "-nowarn":
		return func(*found) bool { return true }
	case "-regextype":
		f.extended = strings.Contains(f.next(op), "ext") || f.extended
		return func(*found) bool { return true }
	}
	if a := f.actions(op); a != nil {
		f.action = true
		return a
	}
	if a := f.tests(op); a != nil {
		return a
	}
	f.t.fatal(1, "unknown predicate `%s'", op)
	return nil
}

// actions parses the primaries with side effects.
func (f *finder) actions(op string) test {
	t := f.t
	switch op {
	case "-print":
		return func(x *found) bool { fmt.Fprintln(t.out, x.path); return true }
	case "-print0":
		return func(x *found) bool { t.out.WriteString(x.path + "\x00"); return true }
	case "-printf":
		layout := f.next(op)
		return func(x *found) bool { t.out.WriteString(f.printf(layout, x)); return true }
	case "-ls":
		return func(x *found) bool {
			t.lsPrint([]*entry{{x.info, x.path, x.path}}, lsOptions{long: true, inode: true, size: true}, false)
			return true
		}
	case "-quit":
		return func(*found) bool { f.quit = true; return true }
	case "-delete":
		f.depth = true
		return func(x *found) bool {
			err := t.FS.Remove(t.Dir, x.path)
			if x.info.IsDir() {
				err = t.FS.Rmdir(t.Dir, x.path)
			}
			if err != nil {
				t.errorf("cannot delete '%s': %s", x.path, program.ErrorText(err))
			}
			return err == nil
		}
	case "-exec", "-ok":
		return f.exec(op, false)
	case "-execdir", "-okdir":
		return f.exec(op, true)
	}
	return nil
}

func (f *finder) exec(op string, inDir bool) test {
	var args []string
	for {
		a := f.next(op)
		if a == ";" {
			break
		}
		if a == "+" && len(args) > 0 && args[len(args)-1] == "{}" {
			b := &batch{args: args[:len(args)-1]}
			f.batches = append(f.batches, b)
			return func(x *found) bool {
				b.files, b.size = append(b.files, x.path), b.size+len(x.path)
				if b.size > maxArgs {
					f.runBatch(b)
				}
				return true
			}
		}
		args = append(args, a)
	}
	if len(args) == 0 {
		f.t.fatal(1, "missing argument to `%s'", op)
	}
	return func(x *found) bool {
		name, dir := x.path, f.t.Dir
		if inDir {
			name, dir = "./"+path.Base(x.path), absolute(f.t.Dir, path.Dir(x.path))
		}
		with := make([]string, len(args))
		for i, a := range args {
			with[i] = strings.ReplaceAll(a, "{}", name)
		}
		return f.t.runOther(f.t.ctx, with, dir, nil) == 0
	}
}

// maxArgs bounds the arguments of one command, in bytes.
const maxArgs = 128 << 10

func (f *finder) runBatch(b *batch) {
	if len(b.files) == 0 {
		return
	}
	files := b.files
	b.files, b.size = nil, 0
	if f.t.runOther(f.t.ctx, append(append([]string{}, b.args...), files...), f.t.Dir, nil) != 0 {
		f.t.status = 1
	}
}

// runOther runs another command with the utility's own streams; in, if not nil, is its standard
// input.
func (t *cmd) runOther(ctx context.Context, args []string, dir string, in io.Reader) int {
	t.flush()
	if t.Run == nil {
		t.fatal(126, "%s: cannot run commands here", args[0])
	}
	c := &program.Context{Args: args, Env: t.Env, Dir: dir, Umask: t.Umask, FS: t.FS, Stdin: t.Stdin, Stdout: t.Stdout, Stderr: t.Stderr}
	if in != nil {
		c.Stdin = in
	}
	return t.Run(ctx, c)
}

// tests parses the primaries without side effects.
func (f *finder) tests(op string) test {
	t := f.t
	switch op {
	case "-name", "-iname", "-path", "-wholename", "-ipath", "-iwholename", "-lname", "-ilname":
		pat := glob.Compile(f.next(op), glob.Options{Fold: op[1] == 'i'})
		switch {
		case strings.HasSuffix(op, "path") || strings.HasSuffix(op, "wholename"):
			return func(x *found) bool { return pat.Match(x.path) }
		case strings.HasSuffix(op, "lname"):
			return func(x *found) bool {
				to, err := t.FS.Readlink(t.Dir, x.path)
				return err == nil && pat.Match(to)
			}
		}
		return func(x *found) bool {
			base := path.Base(x.path)
			return pat.Match(base)
		}
	case "-regex", "-iregex":
		re, err := posixre.Compile(f.next(op), posixre.Options{Extended: f.extended, Fold: op == "-iregex"})
		t.valid(err, 1)
		return func(x *found) bool {
			m := re.Find(x.path)
			return m != nil && m[0] == 0 && m[1] == len(x.path)
		}
	case "-type", "-xtype":
		kinds := f.next(op)
		return func(x *found) bool {
			info := x.info
			if op == "-xtype" {
				if i, err := t.FS.Stat(t.Dir, x.path); err == nil {
					info = i
				}
			}
			return strings.IndexByte(kinds, kindLetter(info)) >= 0
		}
	case "-prune":
		return func(*found) bool { f.prune = true; return true }
	case "-empty":
		return func(x *found) bool {
			if x.info.IsDir() {
				list, err := t.FS.ReadDir(t.Dir, x.path)
				return err == nil && len(list) == 0
			}
			return x.info.Mode().IsRegular() && x.info.Size() == 0
		}
	case "-size":
		return f.sizeTest(f.next(op))
	case "-perm":
		return f.permTest(f.next(op))
	case "-newer":
		return f.newer(op, "mm")
	case "-anewer", "-cnewer":
		return f.newer(op, op[1:2]+"m")
	case "-mtime", "-mmin", "-atime", "-amin", "-ctime", "-cmin":
		return f.timeTest(op, f.next(op))
	case "-links", "-inum":
		n, sign := f.numeric(op, f.next(op))
		return func(x *found) bool {
			v := int64(x.info.Links())
			if op == "-inum" {
				v = int64(x.info.Inode())
			}
			return compareSigned(v, n, sign)
		}
	case "-samefile":
		info, err := t.FS.Stat(t.Dir, f.peek())
		t.must(err, 1, "'%s'", f.peek())
		f.next(op)
		return func(x *found) bool { return x.info.Inode() == info.Inode() }
	case "-executable":
		return func(x *found) bool { return x.info.IsDir() || x.info.Mode().Perm()&0o111 != 0 }
	case "-readable", "-writable":
		return func(*found) bool { return true }
	case "-user", "-group", "-uid", "-gid":
		who := f.next(op)
		return func(*found) bool { return who == UserName || who == UserID }
	}
	if which, ok := strings.CutPrefix(op, "-newer"); ok && len(which) == 2 && strings.IndexByte("acm", which[0]) >= 0 && strings.IndexByte("acmt", which[1]) >= 0 {
		return f.newer(op, which)
	}
	return nil
}

// timeOf returns a time of a file: a, c or m.
func timeOf(i *memfs.Info, which byte) time.Time {
	return map[byte]time.Time{'a': i.AccessTime(), 'c': i.ChangeTime(), 'm': i.ModTime()}[which]
}

// newer parses -newerXY: time X of a file is after time Y of a reference file, or after a date if Y
// is t.
func (f *finder) newer(op, which string) test {
	text := f.next(op)
	since, ok := parseDate(text, time.Now(), location(f.t))
	if which[1] != 't' {
		info, err := f.t.FS.Stat(f.t.Dir, text)
		f.t.must(err, 1, "'%s'", text)
		since, ok = timeOf(info, which[1]), true
	}
	if !ok {
		f.t.fatal(1, "invalid date: '%s'", text)
	}
	return func(x *found) bool { return timeOf(x.info, which[0]).After(since) }
}

func kindLetter(i *memfs.Info) byte {
	switch m := i.Mode(); {
	case m.IsDir():
		return 'd'
	case m&fs.ModeSymlink != 0:
		return 'l'
	case m&fs.ModeCharDevice != 0:
		return 'c'
	}
	return 'f'
}

// numeric parses +n, -n or n.
func (f *finder) numeric(op, text string) (int64, byte) {
	sign := byte(0)
	digits := text
	if text != "" && (text[0] == '+' || text[0] == '-') {
		sign, digits = text[0], text[1:]
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		f.t.fatal(1, "invalid argument `%s' to `%s'", text, op)
	}
	return n, sign
}

func compareSigned(v, n int64, sign byte) bool {
	switch sign {
	case '+':
		return v > n
	case '-':
		return v < n
	}
	return v == n
}

func (f *finder) sizeTest(text string) test {
	unit := int64(512)
	if text != "" {
		if u, ok := map[byte]int64{'c': 1, 'w': 2, 'b': 512, 'k': 1 << 10, 'M': 1 << 20, 'G': 1 << 30}[text[len(text)-1]]; ok {
			unit, text = u, text[:len(text)-1]
		}
	}
	n, sign := f.numeric("-size", text)
	return func(x *found) bool { return compareSigned((lsSize(x.info)+unit-1)/unit, n, sign) }
}

func (f *finder) permTest(text string) test {
	sign := byte(0)
	if text != "" && (text[0] == '-' || text[0] == '/') {
		sign, text = text[0], text[1:]
	}
	m, err := modes.Parse(text, 0, false, 0)
	if err != nil {
		f.t.fatal(1, "invalid mode '%s'", text)
	}
	want := modes.Unix(m)
	return func(x *found) bool {
		have := modes.Unix(x.info.Mode())
		switch sign {
		case '-':
			return have&want == want
		case '/':
			return have&want != 0 || want == 0
		}
		return have == want
	}
}

func (f *finder) timeTest(op, text string) test {
	n, sign := f.numeric(op, text)
	unit := 24 * time.Hour
	if strings.HasSuffix(op, "min") {
		unit = time.Minute
	}
	now := time.Now()
	return func(x *found) bool {
		when := x.info.ModTime()
		switch op[1] {
		case 'a':
			when = x.info.AccessTime()
		case 'c':
			when = x.info.ChangeTime()
		}
		age := now.Sub(when)
		if unit == time.Minute && sign == 0 {
			return int64((age+unit-1)/unit) == n
		}
		return compareSigned(int64(age/unit), n, sign)
	}
}

// printf expands the directives of -printf.
func (f *finder) printf(layout string, x *found) string {
	var b strings.Builder
	for i := 0; i < len(layout); i++ {
		switch c := layout[i]; {
		case c == '\\' && i+1 < len(layout):
			text, n, stop := format.Escape(layout[i:], format.Format)
			b.WriteString(text)
			if stop {
				return b.String()
			}
			i += n - 1
		case c == '%' && i+1 < len(layout):
			i++
			value, skip := f.directive(layout[i:], x)
			b.WriteString(value)
			i += skip
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func (f *finder) directive(s string, x *found) (value string, skip int) {
	below := strings.TrimPrefix(strings.TrimPrefix(x.path, x.start), "/")
	switch s[0] {
	case '%':
		return "%", 0
	case 'p':
		return x.path, 0
	case 'f':
		return path.Base(x.path), 0
	case 'h':
		if !strings.Contains(x.path, "/") {
			return ".", 0
		}
		return x.path[:strings.LastIndexByte(x.path, '/')], 0
	case 'P':
		return below, 0
	case 'H':
		return x.start, 0
	case 'd':
		return strconv.Itoa(x.depth), 0
	case 'y':
		return string(kindLetter(x.info)), 0
	case 'l':
		to, _ := f.t.FS.Readlink(f.t.Dir, x.path)
		return to, 0
	case 'T', 'A', 'C':
		if len(s) > 1 {
			when := map[byte]time.Time{'T': x.info.ModTime(), 'A': x.info.AccessTime(), 'C': x.info.ChangeTime()}[s[0]]
			if s[1] == '@' {
				return fmt.Sprintf("%d.%010d", when.Unix(), when.Nanosecond()*10), 1
			}
			return strftime("%"+s[1:2], when.In(location(f.t))), 1
		}
	case 't':
		return x.info.ModTime().In(location(f.t)).Format("Mon Jan _2 15:04:05.0000000000 2006"), 0
	case 's', 'm', 'M', 'n', 'i', 'k', 'u', 'g', 'U', 'G', 'b':
		codes := map[byte]string{'s': "%s", 'm': "%a", 'M': "%A", 'n': "%h", 'i': "%i", 'u': "%U", 'g': "%G", 'U': "%u", 'G': "%g", 'b': "%b"}
		if s[0] == 'k' {
			return strconv.FormatInt(kilobytes(x.info), 10), 0
		}
		return f.t.statFormat(codes[s[0]], x.path, x.info), 0
	}
	return "%" + s[:1], 0
}

// xargsOptions are the options of xargs.
type xargsOptions struct {
	null, trace, noRun bool
	delim              string
	replace            string
	maxArgs, maxLines  int
	size               int
	stop               string // item that ends the input (-E)
}

func xargs(t *cmd) {
	o := xargsOptions{size: maxArgs}
	input := "-"
	command := t.leading(
		"0 null", &o.null,
		"d: delimiter", func(v string) { o.delim = unescapeDelim(v) },
		"I:", &o.replace,
		"i:: replace", func(v string) { o.replace = cmp.Or(v, "{}") },
		"n: max-args", func(v string) {
			if o.maxArgs = t.number("number for -n", v); o.maxArgs < 1 {
				t.fatal(1, "value %s for -n option should be >= 1", v)
			}
		},
		"L:", t.integer("number for -L", &o.maxLines),
		"l:: max-lines", func(v string) { o.maxLines = t.number("number for -l", cmp.Or(v, "1")) },
		"s: max-chars", func(v string) { o.size = min(t.number("number for -s", v), maxArgs) },
		"r no-run-if-empty", &o.noRun,
		"t verbose", &o.trace,
		"a: arg-file", &input,
		"E:", &o.stop,
		"e::", &o.stop,
		"x exit", nil,
		"P: max-procs", nil,
	)
	if len(command) == 0 {
		command = []string{"echo"}
	}
	r, err := t.open(input)
	t.must(err, 1, "Cannot open input file '%s'", input)
	defer r.Close()
	x := &xargsRun{t: t, o: o, command: command, ownInput: input == "-"}
	for _, a := range command {
		x.base += len(a) + 1
	}
	if x.size = x.base; x.base > o.size {
		t.fatal(1, "cannot fit single argument within argument list size limit")
	}
	x.items(r)
	x.finish()
}

func unescapeDelim(s string) string {
	if k := strings.Index(`\n\t\0\\`, s); len(s) == 2 && s[0] == '\\' && k >= 0 {
		return string("\n\t\x00\\"[k/2])
	}
	return s
}

type xargsRun struct {
	t        *cmd
	o        xargsOptions
	command  []string
	pending  []string
	base     int // length of the command without items, in bytes
	size     int
	lines    int
	ended    bool // the item that ends the input was read
	ran      bool
	ownInput bool
}

// items splits the input into items and processes each.
func (x *xargsRun) items(r io.Reader) {
	switch {
	case x.o.null || x.o.delim != "":
		end := byte(0)
		if x.o.delim != "" {
			end = x.o.delim[0]
		}
		for item := range x.t.lines("-", r, end) {
			x.item(string(item))
		}
	case x.o.replace != "":
		for line := range x.t.lines("-", r, '\n') {
			for _, item := range x.words(string(line), true) {
				x.item(item)
			}
		}
	default:
		joined := ""
		for line := range x.t.lines("-", r, '\n') {
			text := joined + string(line)
			joined = ""
			if strings.HasSuffix(text, `\`) && !strings.HasSuffix(text, `\\`) {
				joined = text + "\n"
				continue
			}
			words := x.words(text, false)
			for _, w := range words {
				x.item(w)
			}
			if x.lines++; x.o.maxLines > 0 && x.lines >= x.o.maxLines && len(words) > 0 {
				x.run()
				x.lines = 0
			}
		}
		for _, w := range x.words(joined, false) {
			x.item(w)
		}
	}
}

// words splits a line at blanks, with quotes and backslashes. whole: the line without its leading
// blanks is one item.
func (x *xargsRun) words(line string, whole bool) []string {
	var words []string
	var b strings.Builder
	has := false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\\' && i+1 < len(line):
			i++
			b.WriteByte(line[i])
			has = true
		case c == '\'' || c == '"':
			end := strings.IndexByte(line[i+1:], c)
			if end < 0 {
				x.t.fatal(1, "unmatched %s quote", map[byte]string{'\'': "single", '"': "double"}[c])
			}
			b.WriteString(line[i+1 : i+1+end])
			i += end + 1
			has = true
		case (c == ' ' || c == '\t' || c == '\n') && (!whole || !has):
			if has {
				words = append(words, b.String())
			}
			b.Reset()
			has = false
		default:
			b.WriteByte(c)
			has = true
		}
	}
	if has {
		words = append(words, b.String())
	}
	return words
}

func (x *xargsRun) item(item string) {
	if x.ended = x.ended || x.o.stop != "" && item == x.o.stop; x.ended {
		return
	}
	if x.o.replace != "" {
		args := make([]string, len(x.command))
		for i, a := range x.command {
			args[i] = strings.ReplaceAll(a, x.o.replace, item)
		}
		x.start(args)
		return
	}
	switch {
	case x.base+len(item)+1 > x.o.size:
		x.run()
		x.t.fatal(1, "argument line too long")
	case x.size+len(item)+1 > x.o.size:
		x.run()
	}
	x.pending, x.size = append(x.pending, item), x.size+len(item)+1
	if x.o.maxArgs > 0 && len(x.pending) >= x.o.maxArgs {
		x.run()
	}
}

func (x *xargsRun) run() {
	if len(x.pending) == 0 {
		return
	}
	args := append(append([]string{}, x.command...), x.pending...)
	x.pending, x.size = nil, x.base
	x.start(args)
}

func (x *xargsRun) finish() {
	x.run()
	if !x.ran && !x.o.noRun && x.o.replace == "" {
		x.start(x.command)
	}
}

func (x *xargsRun) start(args []string) {
	x.ran = true
	x.t.check()
	if x.o.trace {
		fmt.Fprintln(x.t.Stderr, strings.Join(args, " "))
	}
	var in io.Reader
	if x.ownInput {
		in = strings.NewReader("")
	}
	switch status := x.t.runOther(x.t.ctx, args, x.t.Dir, in); {
	case status == 255:
		x.t.fatal(124, "%s: exited with status 255; aborting", args[0])
	case status == 126 || status == 127:
		panic(ended{status})
	case status > 128:
		x.t.fatal(125, "%s: terminated by signal %d", args[0], status-128)
	case status != 0:
		x.t.status = 123
	}
}
