package tools

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/sandbar-dev/sandbar/internal/wasm/shell/glob"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/posixre"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/program"
)

// grepper is a running grep.
type grepper struct {
	t                                                                      *cmd
	kind                                                                   byte // G, E, F, P
	patterns                                                               []string
	fold, invert, word, whole                                              bool
	count, list, listWithout, quiet, only, number, offset, silent, recurse bool
	follow                                                                 bool
	names                                                                  byte // H, h, 0
	before, after                                                          int
	max                                                                    int
	include, exclude, excludeDir                                           []string
	text                                                                   bool
	end                                                                    byte
	nullName, noBinary                                                     bool
	label                                                                  string

	match   func(line string) iter.Seq[[]int] // returns all matches in a line
	test    func(line string) bool
	matched bool
	showed  bool // output was written, so "--" separates the next group
}

func grep(t *cmd) {
	g := &grepper{t: t, kind: 'G', max: -1, end: '\n', label: "(standard input)"}
	switch t.name {
	case "egrep":
		g.kind = 'E'
	case "fgrep":
		g.kind = 'F'
	}
	hasPattern := false
	files := t.optionsOf(numericContext(t.Args[1:]), true,
		"E extended-regexp", set(&g.kind, 'E'),
		"F fixed-strings", set(&g.kind, 'F'),
		"G basic-regexp", set(&g.kind, 'G'),
		"P perl-regexp", set(&g.kind, 'P'),
		"e: regexp", func(v string) { g.patterns, hasPattern = append(g.patterns, strings.Split(v, "\n")...), true },
		"f: file", func(v string) { g.patterns, hasPattern = append(g.patterns, g.patternFile(v)...), true },
		"i y ignore-case", &g.fold,
		"v invert-match", &g.invert,
		"w word-regexp", &g.word,
		"x line-regexp", &g.whole,
		"c count", &g.count,
		"l files-with-matches", &g.list,
		"L files-without-match", &g.listWithout,
		"q quiet silent", &g.quiet,
		"o only-matching", &g.only,
		"n line-number", &g.number,
		"b byte-offset", &g.offset,
		"s no-messages", &g.silent,
		"r recursive", &g.recurse,
		"R dereference-recursive", func(string) { g.recurse, g.follow = true, true },
		"h no-filename", set(&g.names, 'h'),
		"H with-filename", set(&g.names, 'H'),
		"A: after-context", func(v string) { g.after = t.contextLength(v) },
		"B: before-context", func(v string) { g.before = t.contextLength(v) },
		"C: context", func(v string) { g.before = t.contextLength(v); g.after = g.before },
		"m: max-count", t.integer("max count", &g.max),
		"a text", &g.text,
		"z null-data", set(&g.end, 0),
		"Z null", &g.nullName,
		"include:", &g.include,
		"exclude:", &g.exclude,
		"exclude-dir:", &g.excludeDir,
		"color:: colour", nil,
		"I", &g.noBinary,
		"U line-buffered", nil,
	)
	if !hasPattern {
		if len(files) == 0 {
			t.fatal(2, "no pattern was given")
		}
		g.patterns, files = strings.Split(files[0], "\n"), files[1:]
	}
	g.compile()
	if len(files) == 0 {
		files = []string{"-"}
		if g.recurse {
			files = []string{"."}
		}
	}
	if g.names == 0 && (len(files) > 1 || g.recurse && t.isDir(files[0])) {
		g.names = 'H'
	}
	for _, f := range files {
		g.path(f, true)
	}
	switch {
	case g.quiet && g.matched:
		t.status = 0
	case t.status == 0 && !g.matched:
		t.status = 1
	}
}

// numericContext converts -3 to -C3.
func numericContext(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		if a == "--" {
			copy(out[i:], args[i:])
			break
		}
		if len(a) > 1 && a[0] == '-' && strings.Trim(a[1:], "0123456789") == "" && (i == 0 || args[i-1] != "-e" && args[i-1] != "-A" && args[i-1] != "-B" && args[i-1] != "-C" && args[i-1] != "-m") {
			a = "-C" + a[1:]
		}
		out[i] = a
	}
	return out
}

func (t *cmd) contextLength(text string) int {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		t.fatal(2, "%s: invalid context length argument", text)
	}
	return min(t.number("context length", text[:min(len(text), 9)]), 1<<20)
}

func (g *grepper) patternFile(name string) []string {
	r, err := g.t.open(name)
	g.t.must(err, 2, "%s", name)
	defer r.Close()
	var patterns []string
	for line := range g.t.lines(name, r, '\n') {
		patterns = append(patterns, string(line))
	}
	return patterns
}

// compile compiles the patterns.
func (g *grepper) compile() {
	if len(g.patterns) == 0 { // an empty pattern file matches nothing
		g.match = func(string) iter.Seq[[]int] { return slices.Values([][]int(nil)) }
		g.test = func(string) bool { return false }
		return
	}
	if g.kind == 'P' {
		g.compilePerl()
		return
	}
	var res []*posixre.Regexp
	for _, p := range g.patterns {
		o := posixre.Options{Extended: g.kind == 'E', Fold: g.fold}
		var re *posixre.Regexp
		var err error
		if g.kind == 'F' {
			re, err = posixre.Literal(p, o)
		} else {
			re, err = posixre.Compile(p, o)
		}
		if err != nil {
			g.t.fatal(2, "%v", err)
		}
		res = append(res, re)
	}
	g.match = func(line string) iter.Seq[[]int] {
		if len(res) == 1 {
			return g.qualified(line, res[0].Each(line))
		}
		return func(yield func([]int) bool) {
			for from := 0; from <= len(line); {
				m := g.best(res, line, from)
				if m == nil || !yield(m) {
					return
				}
				from = max(m[1], m[0]+1)
			}
		}
	}
	if texts := textsOf(res); len(texts) >= manyTexts && !g.word && !g.whole {
		g.test = anyOf(texts)
		return
	}
	g.test = func(line string) bool {
		for _, re := range res {
			if !g.word && !g.whole {
				if re.Match(line) {
					return true
				}
				continue
			}
			for range g.qualified(line, re.Each(line)) {
				return true
			}
		}
		return false
	}
}

// manyTexts is the number of texts from which an index is faster than one search for each.
const manyTexts = 16

// textsOf returns the texts that expressions match, nil if one matches more than one text.
func textsOf(res []*posixre.Regexp) []string {
	var texts []string
	for _, re := range res {
		text, ok := re.Text()
		if !ok {
			return nil
		}
		texts = append(texts, text)
	}
	return texts
}

// anyOf returns a function that reports whether a line contains one of texts. It looks texts up by
// their first bytes at each offset.
func anyOf(texts []string) func(line string) bool {
	n := 16
	for _, text := range texts {
		n = min(n, len(text))
	}
	byStart := map[string][]string{}
	for _, text := range texts {
		byStart[text[:n]] = append(byStart[text[:n]], text)
	}
	return func(line string) bool {
		for i := range len(line) - n + 1 {
			for _, text := range byStart[line[i:i+n]] {
				if strings.HasPrefix(line[i:], text) {
					return true
				}
			}
		}
		return false
	}
}

func (g *grepper) compilePerl() {
	flags := ""
	if g.fold {
		flags = "(?i)"
	}
	var res []*regexp.Regexp
	for _, p := range g.patterns {
		re, err := regexp.Compile(flags + p)
		if err != nil {
			g.t.fatal(2, "-P: this expression is not supported: %s", p)
		}
		res = append(res, re)
	}
	g.match = func(line string) iter.Seq[[]int] {
		var all [][]int
		for _, re := range res {
			all = append(all, re.FindAllStringIndex(line, -1)...)
		}
		return g.qualified(line, slices.Values(all))
	}
	g.test = func(line string) bool {
		for range g.match(line) {
			return true
		}
		return false
	}
}

// best returns the leftmost-longest match of several expressions from an offset.
func (g *grepper) best(res []*posixre.Regexp, line string, from int) []int {
	var best []int
	for _, re := range res {
		for m := range g.qualified(line, re.Each(line)) {
			if m[0] < from {
				continue
			}
			if best == nil || m[0] < best[0] || m[0] == best[0] && m[1] > best[1] {
				best = m
			}
			break
		}
	}
	return best
}

// qualified drops matches that are not whole words (-w) or whole lines (-x).
func (g *grepper) qualified(line string, all iter.Seq[[]int]) iter.Seq[[]int] {
	if !g.word && !g.whole {
		return all
	}
	return func(yield func([]int) bool) {
		for m := range all {
			if g.whole && (m[0] != 0 || m[1] != len(line)) {
				continue
			}
			if g.word && (m[0] > 0 && wordByte(line[m[0]-1]) || m[1] < len(line) && wordByte(line[m[1]])) {
				continue
			}
			if !yield(m) {
				return
			}
		}
	}
}

func wordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= 0x80
}

// path searches a file, or a directory recursively.
func (g *grepper) path(name string, named bool) {
	g.t.check()
	if g.quiet && g.matched {
		return
	}
	if name != "-" {
		info, err := g.t.FS.Stat(g.t.Dir, name)
		switch {
		case err != nil:
			g.failed(name, err)
			return
		case info.IsDir() && g.recurse:
			g.dir(name)
			return
		case info.IsDir():
			g.t.warn("%s: Is a directory", name)
			return
		case !named && info.Mode()&fs.ModeCharDevice != 0:
			return
		}
		if !g.wanted(path.Base(name)) {
			return
		}
	}
	r, err := g.t.open(name)
	if err != nil {
		g.failed(name, err)
		return
	}
	defer r.Close()
	g.file(name, r)
}

func (g *grepper) failed(name string, err error) {
	if !g.silent {
		g.t.warn("%s: %s", name, program.ErrorText(err))
	}
	g.t.status = 2
}

func (g *grepper) dir(name string) {
	list, err := g.t.FS.ReadDir(g.t.Dir, name)
	if err != nil {
		g.failed(name, err)
		return
	}
	for _, e := range list {
		full := e.Name()
		if name != "." || g.t.Args[len(g.t.Args)-1] == "." {
			full = join(name, e.Name())
		}
		if e.Mode()&fs.ModeSymlink != 0 && !g.follow {
			continue
		}
		if e.IsDir() && matchesAny(g.excludeDir, e.Name()) {
			continue
		}
		g.path(full, false)
	}
}

func matchesAny(patterns []string, name string) bool {
	for _, p := range patterns {
		if glob.Match(p, name) {
			return true
		}
	}
	return false
}

func (g *grepper) wanted(base string) bool {
	return (len(g.include) == 0 || matchesAny(g.include, base)) && !matchesAny(g.exclude, base)
}

// file searches one file.
func (g *grepper) file(name string, r io.Reader) {
	shown := name
	if name == "-" {
		shown = g.label
	}
	var before []contextLine
	n, found, offset, after, last := 0, 0, 0, 0, 0
	binary := false
	for line, whole := range g.t.lines(name, r, g.end) {
		n++
		start := offset
		offset += len(line)
		if whole {
			offset++
		}
		if g.max >= 0 && found >= g.max {
			if after == 0 {
				break
			}
		}
		text := string(line)
		if !binary && !g.text && g.end != 0 && bytes.IndexByte(line, 0) >= 0 {
			if binary = true; g.noBinary {
				return
			}
		}
		hit := g.test(text) != g.invert && (g.max < 0 || found < g.max)
		if !hit {
			switch {
			case after > 0:
				g.print(shown, contextLine{text, n, start}, '-')
				after--
				last = n
			case g.before > 0:
				before = append(before, contextLine{text, n, start})
				if len(before) > g.before {
					before = before[1:]
				}
			}
			continue
		}
		found++
		g.matched = true
		if g.quiet || g.list || g.listWithout {
			break
		}
		if g.count {
			continue
		}
		if binary {
			fmt.Fprintf(g.t.out, "Binary file %s matches\n", shown)
			break
		}
		if g.before+g.after > 0 && g.showed && (last == 0 || n-len(before) > last+1) {
			g.t.out.WriteString("--\n")
		}
		for _, c := range before {
			g.print(shown, c, '-')
		}
		before, after, last = nil, g.after, n
		g.showed = true
		g.hit(shown, contextLine{text, n, start})
	}
	switch {
	case g.quiet:
	case g.count:
		g.name(shown, ':')
		fmt.Fprintln(g.t.out, found)
	case g.list && found > 0, g.listWithout && found == 0:
		end := "\n"
		if g.nullName {
			end = "\x00"
		}
		g.t.out.WriteString(shown + end)
	}
}

type contextLine struct {
	text      string
	n, offset int
}

func (g *grepper) name(name string, sep byte) {
	if g.names != 'H' {
		return
	}
	g.t.out.WriteString(name)
	if g.nullName {
		sep = 0
	}
	g.t.out.WriteByte(sep)
}

// prefix writes the file name, line number and offset before a line.
func (g *grepper) prefix(name string, n, offset int, sep byte) {
	g.name(name, sep)
	if g.number {
		fmt.Fprintf(g.t.out, "%d%c", n, sep)
	}
	if g.offset {
		fmt.Fprintf(g.t.out, "%d%c", offset, sep)
	}
}

func (g *grepper) print(name string, c contextLine, sep byte) {
	if g.only {
		return
	}
	g.prefix(name, c.n, c.offset, sep)
	g.t.out.WriteString(c.text)
	g.t.out.WriteByte(g.end)
}

func (g *grepper) hit(name string, c contextLine) {
	if !g.only {
		g.print(name, c, ':')
		return
	}
	if g.invert {
		return
	}
	for m := range g.match(c.text) {
		if m[1] > m[0] {
			g.prefix(name, c.n, c.offset+m[0], ':')
			g.t.out.WriteString(c.text[m[0]:m[1]])
			g.t.out.WriteByte(g.end)
		}
	}
}
