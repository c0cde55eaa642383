package tools

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/sandbar-dev/sandbar/internal/wasm/shell/format"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/program"
)

// sortKey is a key by which lines are compared.
type sortKey struct {
	from, fromChar, to, toChar int  // 1-based; to 0 is the end of the line
	kind                       byte // n, g, h, M, V; 0 for text
	reverse, fold, dict, blank bool
	endBlank, printable        bool
	own                        bool // the key has options of its own
}

func sortTool(t *cmd) {
	var global sortKey
	var keys []sortKey
	s := sorter{t: t, end: '\n'}
	output := ""
	check, quiet := false, false
	note := func(c byte) { global.option(c) }
	files := t.options(
		"b ignore-leading-blanks", note,
		"d dictionary-order", note,
		"f ignore-case", note,
		"g general-numeric-sort", note,
		"i ignore-nonprinting", note,
		"M month-sort", note,
		"h human-numeric-sort", note,
		"n numeric-sort", note,
		"r reverse", note,
		"V version-sort", note,
		"c check", &check,
		"C", func(string) { check, quiet = true, true },
		"k: key", func(v string) { keys = append(keys, t.sortKey(v)) },
		"o: output", &output,
		"s stable", &s.stable,
		"t: field-separator", func(v string) {
			if s.sep = v; v == `\0` {
				s.sep = "\x00"
			}
			if len(s.sep) != 1 {
				t.fatal(2, "multi-character tab '%s'", v)
			}
		},
		"u unique", &s.unique,
		"z zero-terminated", set(&s.end, 0),
		"m merge", nil,
		"S: T buffer-size temporary-directory", nil,
	)
	for i := range keys {
		if !keys[i].own {
			k := global
			k.from, k.fromChar, k.to, k.toChar = keys[i].from, keys[i].fromChar, keys[i].to, keys[i].toChar
			keys[i] = k
		}
	}
	s.reverse = global.reverse
	if len(keys) == 0 {
		global.from = 1
		keys = []sortKey{global}
		s.whole = true
	}
	s.keys = keys
	if check {
		s.check(files, quiet)
		return
	}
	s.run(files, output)
}

func (k *sortKey) option(c byte) bool {
	switch c {
	case 'n', 'g', 'h', 'M', 'V':
		k.kind = c
	case 'r':
		k.reverse = true
	case 'f':
		k.fold = true
	case 'd':
		k.dict = true
	case 'i':
		k.printable = true
	case 'b':
		k.blank = true
	default:
		return false
	}
	return true
}

// sortKey parses a key such as 2,3nr or 1.3b.
func (t *cmd) sortKey(text string) sortKey {
	k := sortKey{fromChar: 1}
	bad := func() { t.fatal(2, "invalid number at field start: invalid count at start of '%s'", text) }
	position := func(s string) (field, char int, rest string) {
		i := len(leadingDigits(s))
		field, err := strconv.Atoi(s[:i])
		if err != nil || field < 1 {
			bad()
		}
		s = s[i:]
		if strings.HasPrefix(s, ".") {
			i := len(leadingDigits(s[1:]))
			char, err = strconv.Atoi(s[1 : 1+i])
			if err != nil {
				bad()
			}
			s = s[1+i:]
		}
		return field, char, s
	}
	field, char, rest := position(text)
	k.from = field
	if char > 0 {
		k.fromChar = char
	}
	letters := func(s string, end bool) string {
		for s != "" && s[0] != ',' {
			if !k.option(s[0]) {
				bad()
			}
			if end && s[0] == 'b' {
				k.endBlank = true
			}
			k.own = true
			s = s[1:]
		}
		return s
	}
	rest = letters(rest, false)
	if strings.HasPrefix(rest, ",") {
		k.to, k.toChar, rest = position(rest[1:])
		letters(rest, true)
	}
	return k
}

type sorter struct {
	t                              *cmd
	keys                           []sortKey
	sep                            string
	end                            byte
	stable, unique, reverse, whole bool
}

// sortLine is a line with its extracted keys.
type sortLine struct {
	text string
	keys []sortValue
}

type sortValue struct {
	text string
	num  float64
	rank int
}

func (s *sorter) read(files []string) []sortLine {
	var lines []sortLine
	size := 0
	s.t.each(files, func(name string, r io.Reader) {
		for line := range s.t.lines(name, r, s.end) {
			size += len(line) + 64
			if size > maxWhole {
				s.t.fatal(2, "input is too large")
			}
			lines = append(lines, s.line(string(line)))
		}
	})
	if s.t.status != 0 {
		s.t.status = 2
	}
	return lines
}

func (s *sorter) line(text string) sortLine {
	l := sortLine{text: text}
	for _, k := range s.keys {
		part := text
		if !s.whole {
			part = s.cut(text, k)
		}
		l.keys = append(l.keys, k.value(part))
	}
	return l
}

// cut returns the part of a line for a key.
func (s *sorter) cut(line string, k sortKey) string {
	start := s.field(line, k.from, k.fromChar, k.blank, false)
	end := len(line)
	if k.to > 0 {
		end = s.field(line, k.to, k.toChar, k.endBlank, true)
	}
	if start >= end {
		return ""
	}
	return line[start:end]
}

// field returns the offset of a character of a field. For an end, it returns the offset after the
// character; character 0 is the end of the field.
func (s *sorter) field(line string, n, char int, skipBlanks, end bool) int {
	at := 0
	next := func() int { // the end of the field that begins at at
		i := at
		if s.sep != "" {
			if j := strings.Index(line[i:], s.sep); j >= 0 {
				return i + j
			}
			return len(line)
		}
		for i < len(line) && isBlank(line[i]) {
			i++
		}
		for i < len(line) && !isBlank(line[i]) {
			i++
		}
		return i
	}
	for ; n > 1 && at < len(line); n-- {
		at = next()
		if s.sep != "" && at < len(line) {
			at += len(s.sep)
		}
	}
	if n > 1 {
		return len(line)
	}
	if end && char == 0 {
		return next()
	}
	if skipBlanks {
		for at < len(line) && isBlank(line[at]) {
			at++
		}
	}
	if !end {
		char--
	}
	return min(len(line), at+char)
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

func (k sortKey) value(text string) sortValue {
	if k.blank {
		text = strings.TrimLeft(text, " \t")
	}
	v := sortValue{text: text}
	switch k.kind {
	case 'n':
		v.num = plainNumber(text)
	case 'g':
		f, n := format.Float(strings.TrimLeft(text, " \t"))
		v.num = f
		if n == 0 {
			v.num = math.Inf(-1)
		}
	case 'h':
		v.num, v.rank = humanNumber(text)
	case 'M':
		name := strings.ToUpper(strings.TrimLeft(text, " \t"))
		v.rank = (strings.Index("JANFEBMARAPRMAYJUNJULAUGSEPOCTNOVDEC", name[:min(3, len(name))]) + 3) / 3
		if len(name) < 3 {
			v.rank = 0
		}
	default:
		if k.dict || k.printable {
			v.text = strings.Map(func(r rune) rune {
				if k.dict && !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != ' ' && r != '\t' || k.printable && !unicode.IsPrint(r) {
					return -1
				}
				return r
			}, v.text)
		}
		if k.fold {
			v.text = strings.ToUpper(v.text)
		}
	}
	return v
}

// plainNumber parses a number without exponent at the beginning of text; 0 if there is none.
func plainNumber(text string) float64 {
	text = strings.TrimLeft(text, " \t")
	i := 0
	if strings.HasPrefix(text, "-") {
		i++
	}
	for i < len(text) && (text[i] >= '0' && text[i] <= '9' || text[i] == '.') {
		i++
	}
	f, _ := format.Float(text[:i])
	return f
}

// humanNumber parses a number with a unit. The unit is compared first.
func humanNumber(text string) (float64, int) {
	f := plainNumber(text)
	rest := strings.TrimLeft(strings.TrimLeft(text, " \t"), "-0123456789.")
	rank := 0
	if rest != "" {
		rank = strings.IndexByte(" KMGTPE", strings.ToUpper(rest[:1])[0])
	}
	rank = max(rank, 0)
	if f < 0 {
		rank = -rank
	}
	if f == 0 {
		rank = 0
	}
	return f, rank
}

func (s *sorter) compareKeys(a, b sortLine) int {
	for i, k := range s.keys {
		x, y := a.keys[i], b.keys[i]
		n := 0
		switch k.kind {
		case 'n':
			n = cmp.Compare(x.num, y.num)
		case 'g':
			n = cmp.Compare(x.num, y.num)
		case 'h':
			n = cmp.Or(cmp.Compare(x.rank, y.rank), cmp.Compare(x.num, y.num))
		case 'M':
			n = cmp.Compare(x.rank, y.rank)
		case 'V':
			n = versionCompare(x.text, y.text)
		default:
			n = cmp.Compare(x.text, y.text)
		}
		if n != 0 {
			if k.reverse {
				n = -n
			}
			return n
		}
	}
	return 0
}

// compare compares two lines, in case of a tie by the whole line.
func (s *sorter) compare(a, b sortLine) int {
	if n := s.compareKeys(a, b); n != 0 || s.stable || s.unique {
		return n
	}
	n := cmp.Compare(a.text, b.text)
	if s.reverse {
		n = -n
	}
	return n
}

func (s *sorter) run(files []string, output string) {
	lines := s.read(files)
	count := 0
	slices.SortStableFunc(lines, func(a, b sortLine) int {
		if count++; count%65536 == 0 {
			s.t.check()
		}
		return s.compare(a, b)
	})
	if s.unique {
		lines = slices.CompactFunc(lines, func(a, b sortLine) bool { return s.compareKeys(a, b) == 0 })
	}
	out := s.t.out
	if output != "" {
		f, err := s.t.create(output, false)
		if err != nil {
			s.t.fatal(2, "open failed: %s: %s", output, program.ErrorText(err))
		}
		defer f.Close()
		out = bufio.NewWriter(f)
		defer func() {
			if err := out.Flush(); err != nil {
				s.t.fatal(2, "write failed: %s: %s", output, program.ErrorText(err))
			}
		}()
	}
	for _, l := range lines {
		out.WriteString(l.text)
		out.WriteByte(s.end)
	}
}

func (s *sorter) check(files []string, quiet bool) {
	lines := s.read(files)
	name := "-"
	if len(files) > 0 {
		name = files[0]
	}
	for i := 1; i < len(lines); i++ {
		if n := s.compare(lines[i-1], lines[i]); n > 0 || n == 0 && s.unique {
			if !quiet {
				s.t.warn("%s:%d: disorder: %s", name, i+1, lines[i].text)
			}
			s.t.status = 1
			return
		}
	}
}

func uniq(t *cmd) {
	var count, repeated, unique, fold, all bool
	fields, chars, width, end := 0, 0, -1, byte('\n')
	files := t.options(
		"c count", &count,
		"d repeated", &repeated,
		"D all-repeated", &all,
		"u unique", &unique,
		"i ignore-case", &fold,
		"f: skip-fields", t.integer("number of fields to skip", &fields),
		"s: skip-chars", t.integer("number of bytes to skip", &chars),
		"w: check-chars", t.integer("number of bytes to compare", &width),
		"z zero-terminated", set(&end, 0),
	)
	key := func(line string) string {
		for range fields {
			line = strings.TrimLeft(line, " \t")
			if i := strings.IndexAny(line, " \t"); i >= 0 {
				line = line[i:]
			} else {
				line = ""
			}
		}
		line = line[min(chars, len(line)):]
		if width >= 0 {
			line = line[:min(width, len(line))]
		}
		if fold {
			line = strings.ToLower(line)
		}
		return line
	}
	out := io.Writer(t.out)
	if len(files) > 1 && files[1] == "-" {
		files = files[:1]
	}
	if len(files) > 1 {
		f, err := t.create(files[1], false)
		t.must(err, 1, "%s", files[1])
		defer f.Close()
		out, files = f, files[:1]
	}
	var group []string
	flush := func() {
		n := len(group)
		switch {
		case n == 0, repeated && n == 1, unique && n > 1, all && n == 1:
		case all:
			for _, l := range group {
				fmt.Fprintf(out, "%s%c", l, end)
			}
		case count:
			fmt.Fprintf(out, "%7d %s%c", n, group[0], end)
		default:
			fmt.Fprintf(out, "%s%c", group[0], end)
		}
		group = group[:0]
	}
	t.each(files, func(name string, r io.Reader) {
		for line := range t.lines(name, r, end) {
			l := string(line)
			if len(group) > 0 && key(group[0]) != key(l) {
				flush()
			}
			if len(group) > 0 && !all {
				l = "" // only the number of lines matters
			}
			group = append(group, l)
		}
	})
	flush()
}

func comm(t *cmd) {
	off := map[byte]bool{}
	files := t.options(letters("123", func(c byte) { off[c] = true })...)
	t.need(files, 2)
	var lines [2][]string
	for i, f := range files {
		r, err := t.open(f)
		t.must(err, 1, "%s", f)
		for line := range t.lines(f, r, '\n') {
			lines[i] = append(lines[i], string(line))
		}
		r.Close()
	}
	show := func(column byte, text string) {
		if off[column] {
			return
		}
		for c := byte('1'); c < column; c++ {
			if !off[c] {
				t.out.WriteByte('\t')
			}
		}
		t.out.WriteString(text + "\n")
	}
	a, b := lines[0], lines[1]
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0] < b[0]:
			show('1', a[0])
			a = a[1:]
		case len(a) == 0 || a[0] > b[0]:
			show('2', b[0])
			b = b[1:]
		default:
			show('3', a[0])
			a, b = a[1:], b[1:]
		}
	}
}

// joinOptions are the options of join.
type joinOptions struct {
	field        [2]int
	sep, empty   string
	fold         bool
	unpaired     [2]bool
	onlyUnpaired bool
	output       []string
}

func joinTool(t *cmd) {
	o := joinOptions{field: [2]int{1, 1}}
	unpaired := func(only bool) func(string) {
		return func(v string) {
			n := t.number("file number", v)
			if n != 1 && n != 2 {
				t.fatal(1, "invalid file number: '%s'", v)
			}
			o.unpaired[n-1] = true
			o.onlyUnpaired = o.onlyUnpaired || only
		}
	}
	files := t.options(
		"1:", func(v string) { o.field[0] = t.number("field number", v) },
		"2:", func(v string) { o.field[1] = t.number("field number", v) },
		"j:", func(v string) {
			n := t.number("field number", v)
			o.field = [2]int{n, n}
		},
		"t:", &o.sep,
		"a:", unpaired(false),
		"v:", unpaired(true),
		"i ignore-case", &o.fold,
		"e:", &o.empty,
		"o:", func(v string) {
			o.output = append(o.output, strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == ' ' })...)
		},
	)
	t.need(files, 2)
	var rows [2][][]string
	for i, f := range files {
		r, err := t.open(f)
		t.must(err, 1, "%s", f)
		for line := range t.lines(f, r, '\n') {
			rows[i] = append(rows[i], o.split(string(line)))
		}
		r.Close()
	}
	t.joinRows(o, rows[0], rows[1])
}

func (o joinOptions) split(line string) []string {
	if o.sep != "" {
		return strings.Split(line, o.sep)
	}
	return strings.Fields(line)
}

func (o joinOptions) key(row []string, file int) string {
	k := ""
	if n := o.field[file]; n >= 1 && n <= len(row) {
		k = row[n-1]
	}
	if o.fold {
		k = strings.ToLower(k)
	}
	return k
}

func (t *cmd) joinRows(o joinOptions, a, b [][]string) {
	for len(a) > 0 || len(b) > 0 {
		t.check()
		switch {
		case len(b) == 0 || len(a) > 0 && o.key(a[0], 0) < o.key(b[0], 1):
			if o.unpaired[0] {
				t.joinPrint(o, a[0], nil)
			}
			a = a[1:]
		case len(a) == 0 || o.key(a[0], 0) > o.key(b[0], 1):
			if o.unpaired[1] {
				t.joinPrint(o, nil, b[0])
			}
			b = b[1:]
		default:
			k := o.key(a[0], 0)
			i, j := 0, 0
			for i < len(a) && o.key(a[i], 0) == k {
				i++
			}
			for j < len(b) && o.key(b[j], 1) == k {
				j++
			}
			for _, x := range a[:i] {
				for _, y := range b[:j] {
					if !o.onlyUnpaired {
						t.joinPrint(o, x, y)
					}
				}
			}
			a, b = a[i:], b[j:]
		}
	}
}

func (t *cmd) joinPrint(o joinOptions, a, b []string) {
	sep := o.sep
	if sep == "" {
		sep = " "
	}
	get := func(row []string, n int) string {
		if n >= 1 && n <= len(row) && row[n-1] != "" {
			return row[n-1]
		}
		return o.empty
	}
	key := get(a, o.field[0])
	if a == nil {
		key = get(b, o.field[1])
	}
	var out []string
	if len(o.output) > 0 {
		for _, f := range o.output {
			file, field, _ := strings.Cut(f, ".")
			n, _ := strconv.Atoi(field)
			switch file {
			case "0":
				out = append(out, key)
			case "1":
				out = append(out, get(a, n))
			case "2":
				out = append(out, get(b, n))
			default:
				t.fatal(1, "invalid field specifier: '%s'", f)
			}
		}
	} else {
		out = append(out, key)
		for i, row := range [][]string{a, b} {
			for n, v := range row {
				if n+1 != o.field[i] {
					out = append(out, v)
				}
			}
		}
	}
	t.out.WriteString(strings.Join(out, sep) + "\n")
}

// ranges is a list of numbers such as 1,3-5,7-.
type ranges [][2]int

func (t *cmd) ranges(text string) ranges {
	var list ranges
	for part := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		from, to, isRange := strings.Cut(part, "-")
		lo, hi := 1, math.MaxInt
		if from != "" {
			lo = t.number("field value", from)
		}
		if !isRange {
			hi = lo
		} else if to != "" {
			hi = t.number("field value", to)
		}
		if lo < 1 || hi < lo || from == "" && to == "" {
			t.fatal(1, "fields and positions are numbered from 1")
		}
		list = append(list, [2]int{lo, hi})
	}
	return list
}

func (r ranges) has(n int) bool {
	for _, p := range r {
		if p[0] <= n && n <= p[1] {
			return true
		}
	}
	return false
}

func cut(t *cmd) {
	mode, delim, out, only, inverse, end := byte(0), "\t", "", false, false, byte('\n')
	hasOut := false
	var list ranges
	files := t.options(
		"b: bytes", func(v string) { mode, list = 'b', t.ranges(v) },
		"c: characters", func(v string) { mode, list = 'c', t.ranges(v) },
		"f: fields", func(v string) { mode, list = 'f', t.ranges(v) },
		"d: delimiter", &delim,
		"s only-delimited", &only,
		"complement", &inverse,
		"O: output-delimiter", func(v string) { out, hasOut = v, true },
		"z zero-terminated", set(&end, 0),
		"n", nil,
	)
	if mode == 0 {
		t.fatal(1, "you must specify a list of bytes, characters, or fields")
	}
	if delim == "" {
		delim = "\x00"
	}
	if !hasOut && mode == 'f' {
		out = delim
	}
	t.each(files, func(name string, r io.Reader) {
		for line := range t.lines(name, r, end) {
			text, ok := cutLine(string(line), mode, list, delim, out, inverse, only)
			if ok {
				t.out.WriteString(text)
				t.out.WriteByte(end)
			}
		}
	})
}

func cutLine(line string, mode byte, list ranges, delim, out string, inverse, only bool) (string, bool) {
	var parts []string
	if mode == 'f' {
		if !strings.Contains(line, delim) {
			return line, !only
		}
		for i, f := range strings.Split(line, delim) {
			if list.has(i+1) != inverse {
				parts = append(parts, f)
			}
		}
		return strings.Join(parts, out), true
	}
	var b strings.Builder
	last := -1
	for i := range len(line) { // as GNU cut, characters are bytes
		if list.has(i+1) == inverse {
			continue
		}
		if out != "" && last >= 0 && i > last+1 {
			b.WriteString(out)
		}
		b.WriteByte(line[i])
		last = i
	}
	return b.String(), true
}

func tr(t *cmd) {
	var complement, del, squeeze, trunc bool
	sets := t.leading(
		"c C complement", &complement,
		"d delete", &del,
		"s squeeze-repeats", &squeeze,
		"t truncate-set1", &trunc,
	)
	want := 2
	if del != squeeze {
		want = 1
	}
	if len(sets) < want || len(sets) == 0 {
		t.fatal(1, "missing operand")
	}
	if len(sets) > 2 || del && !squeeze && len(sets) > 1 {
		t.fatal(1, "extra operand '%s'", sets[len(sets)-1])
	}
	from := t.trSet(sets[0], 0)
	var to []byte
	if len(sets) > 1 {
		to = t.trSet(sets[1], len(from))
	}
	if complement {
		from = complementOf(from)
	}
	t.translate(from, to, del, squeeze, trunc, len(sets))
}

func complementOf(set []byte) []byte {
	var out []byte
	for c := range 256 {
		if !slices.Contains(set, byte(c)) {
			out = append(out, byte(c))
		}
	}
	return out
}

func (t *cmd) translate(from, to []byte, del, squeeze, trunc bool, sets int) {
	var table [256]int // replacement of each byte; -1: deleted
	for c := range table {
		table[c] = c
	}
	if trunc {
		from = from[:min(len(from), len(to))]
	}
	for i, c := range from {
		switch {
		case del:
			table[c] = -1
		case len(to) > 0 && table[c] == int(c):
			table[c] = int(to[min(i, len(to)-1)])
		case len(to) > 0:
			table[c] = int(to[min(i, len(to)-1)])
		}
	}
	var squeezed [256]bool
	if squeeze {
		set := from
		if sets > 1 {
			set = to
		}
		for _, c := range set {
			squeezed[c] = true
		}
	}
	last := -1
	buf := make([]byte, 32<<10)
	for {
		n, err := t.Stdin.Read(buf)
		for _, c := range buf[:n] {
			v := table[c]
			if v < 0 || v == last && squeezed[v] {
				continue
			}
			t.out.WriteByte(byte(v))
			last = v
		}
		if n < len(buf) {
			t.flush()
		}
		if err != nil {
			if err != io.EOF {
				t.failed("read error", err)
			}
			return
		}
	}
}

// trSet expands a set of tr. fill is the length to which [x*] extends the set.
func (t *cmd) trSet(text string, fill int) []byte {
	var set []byte
	star := -1
	var starChar byte
	one := func() byte {
		if text[0] == '\\' {
			s, n, _ := format.Escape(text, format.Format)
			if len(s) == 2 && s[0] == '\\' {
				s = s[1:]
			}
			text = text[n:]
			return (s + "\\")[0]
		}
		c := text[0]
		text = text[1:]
		return c
	}
	for text != "" {
		if strings.HasPrefix(text, "[:") {
			if name, rest, ok := strings.Cut(text[2:], ":]"); ok {
				class, ok := asciiClass(name)
				if !ok {
					t.fatal(1, "invalid character class '%s'", name)
				}
				set, text = append(set, class...), rest
				continue
			}
		}
		if strings.HasPrefix(text, "[=") && len(text) > 4 && text[3:5] == "=]" {
			set, text = append(set, text[2]), text[5:]
			continue
		}
		if len(text) > 3 && text[0] == '[' && text[2] == '*' {
			if n, rest, ok := strings.Cut(text[3:], "]"); ok && strings.Trim(n, "0123456789") == "" {
				c := text[1]
				text = rest
				if count, err := strconv.ParseInt(n, 0, 32); err == nil && count > 0 {
					set = append(set, bytes.Repeat([]byte{c}, int(min(count, 1<<16)))...)
				} else {
					star, starChar = len(set), c
				}
				continue
			}
		}
		lo := one()
		if len(text) > 1 && text[0] == '-' {
			text = text[1:]
			hi := one()
			if hi < lo {
				t.fatal(1, "range-endpoints of '%c-%c' are in reverse collating sequence order", lo, hi)
			}
			for c := int(lo); c <= int(hi); c++ {
				set = append(set, byte(c))
			}
			continue
		}
		set = append(set, lo)
	}
	if star >= 0 && fill > len(set) {
		set = slices.Insert(set, star, bytes.Repeat([]byte{starChar}, fill-len(set))...)
	}
	return set
}

// asciiClass returns the characters of a class, sorted.
func asciiClass(name string) ([]byte, bool) {
	in := map[string]func(c byte) bool{
		"digit": func(c byte) bool { return c >= '0' && c <= '9' },
		"lower": func(c byte) bool { return c >= 'a' && c <= 'z' },
		"upper": func(c byte) bool { return c >= 'A' && c <= 'Z' },
		"alpha": func(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' },
		"alnum": func(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' },
		"space": func(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' },
		"blank": isBlank,
		"punct": func(c byte) bool {
			return c > ' ' && c < 0x7f && !(c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z')
		},
		"print":  func(c byte) bool { return c >= ' ' && c < 0x7f },
		"graph":  func(c byte) bool { return c > ' ' && c < 0x7f },
		"cntrl":  func(c byte) bool { return c < ' ' || c == 0x7f },
		"xdigit": func(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f' },
	}[name]
	if in == nil {
		return nil, false
	}
	var set []byte
	for c := range 128 {
		if in(byte(c)) {
			set = append(set, byte(c))
		}
	}
	return set, true
}
