package tools

import (
	"bufio"
	"bytes"
	"fmt"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/posixre"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandbar-dev/sandbar/internal/wasm/memfs"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/format"
)

func cat(t *cmd) {
	var number, nonblank, squeeze, ends, tabs, visible bool
	files := t.options(
		"n number", &number,
		"b number-nonblank", &nonblank,
		"s squeeze-blank", &squeeze,
		"E show-ends", &ends,
		"T show-tabs", &tabs,
		"v show-nonprinting", &visible,
		"A show-all", func(v string) { ends, tabs, visible = true, true, true },
		"e", func(v string) { ends, visible = true, true },
		"t", func(v string) { tabs, visible = true, true },
		"u", nil,
	)
	if !(number || nonblank || squeeze || ends || tabs || visible) {
		t.each(files, func(name string, r io.Reader) {
			t.flush()
			t.report(t.copyData(output{t}, r), "%s", name)
		})
		return
	}
	n, blank := 0, false
	t.each(files, func(name string, r io.Reader) {
		for line, whole := range t.lines(name, r, '\n') {
			empty := len(line) == 0
			if squeeze && empty && blank {
				continue
			}
			blank = empty
			if nonblank && !empty || number && !nonblank {
				n++
				fmt.Fprintf(t.out, "%6d\t", n)
			}
			t.out.Write(showLine(line, tabs, visible))
			if whole {
				if ends {
					t.out.WriteByte('$')
				}
				t.out.WriteByte('\n')
			}
		}
	})
}

// showLine makes control characters visible as cat -v does.
func showLine(line []byte, tabs, visible bool) []byte {
	if !tabs && !visible {
		return line
	}
	var b bytes.Buffer
	for _, c := range line {
		if c == '\t' {
			if tabs {
				b.WriteString("^I")
			} else {
				b.WriteByte(c)
			}
			continue
		}
		if visible && c >= 0x80 {
			b.WriteString("M-")
			c -= 0x80
		}
		switch {
		case visible && c < ' ':
			b.WriteByte('^')
			b.WriteByte(c + 64)
		case visible && c == 0x7f:
			b.WriteString("^?")
		default:
			b.WriteByte(c)
		}
	}
	return b.Bytes()
}

// counts parses the options of head and tail, with the old style -5.
func (t *cmd) counts() (n int64, sign byte, bytesUnit, quiet, verbose, follow bool, end byte, files []string) {
	args := slices.Clone(t.Args)
	if len(args) > 1 && len(args[1]) > 1 && (args[1][0] == '-' || t.name == "tail" && args[1][0] == '+') && args[1][1] >= '0' && args[1][1] <= '9' {
		text := strings.TrimRight(args[1], "fc")
		value := strings.TrimPrefix(text, "-")
		replacement := []string{"-n", value}
		if strings.HasSuffix(args[1], "c") {
			replacement[0] = "-c"
		}
		args = slices.Concat(args[:1], replacement, args[2:])
	}
	n, end = 10, '\n'
	count := func(what string, inBytes bool) func(string) {
		return func(v string) {
			bytesUnit, sign = inBytes, 0
			if v != "" && (v[0] == '-' || v[0] == '+') {
				sign, v = v[0], v[1:]
			}
			n = t.size(what, v)
		}
	}
	specs := []any{
		"n: lines", count("number of lines", false),
		"c: bytes", count("number of bytes", true),
		"q quiet silent", &quiet,
		"v verbose", &verbose,
		"z zero-terminated", set(&end, 0),
	}
	if t.name == "tail" {
		specs = append(specs, "f F follow", &follow)
	}
	files = t.optionsOf(args[1:], true, specs...)
	return n, sign, bytesUnit, quiet, verbose, follow, end, files
}

func (t *cmd) banner(i int, name string, show bool) {
	if !show {
		return
	}
	if name == "-" {
		name = "standard input"
	}
	if i > 0 {
		t.out.WriteByte('\n')
	}
	fmt.Fprintf(t.out, "==> %s <==\n", name)
}

func head(t *cmd) {
	n, sign, inBytes, quiet, verbose, _, end, files := t.counts()
	show := !quiet && (len(files) > 1 || verbose)
	i := 0
	t.each(files, func(name string, r io.Reader) {
		t.banner(i, name, show)
		i++
		switch {
		case sign == '-':
			data := t.readAll(name, r)
			t.out.Write(data[:allButLast(data, n, inBytes, end)])
		case inBytes:
			if _, err := io.CopyN(t.out, r, n); err != nil && err != io.EOF {
				t.failed(name, err)
			}
		default:
			t.headLines(name, r, n, end)
		}
	})
}

// headLines copies lines and, if the input is seekable, returns what was read in excess.
func (t *cmd) headLines(name string, r io.Reader, n int64, end byte) {
	buf := make([]byte, 16<<10)
	for n > 0 {
		k, err := r.Read(buf)
		rest := buf[:k]
		for n > 0 && len(rest) > 0 {
			i := bytes.IndexByte(rest, end)
			if i < 0 {
				t.out.Write(rest)
				rest = nil
				break
			}
			t.out.Write(rest[:i+1])
			rest = rest[i+1:]
			n--
		}
		if n == 0 && len(rest) > 0 {
			if s, ok := r.(io.Seeker); ok {
				_, _ = s.Seek(int64(-len(rest)), io.SeekCurrent)
			} else if s, ok := t.Stdin.(io.Seeker); ok && name == "-" {
				_, _ = s.Seek(int64(-len(rest)), io.SeekCurrent)
			}
			return
		}
		if err != nil {
			if err != io.EOF {
				t.failed(name, err)
			}
			return
		}
	}
}

// allButLast returns the length of data without its last n bytes or lines.
func allButLast(data []byte, n int64, inBytes bool, end byte) int {
	if inBytes {
		return max(0, len(data)-int(min(n, int64(len(data)))))
	}
	at := len(data)
	for ; n > 0 && at > 0; n-- {
		at = bytes.LastIndexByte(data[:at-1], end) + 1
	}
	return at
}

func tail(t *cmd) {
	n, sign, inBytes, quiet, verbose, follow, end, files := t.counts()
	show := !quiet && (len(files) > 1 || verbose)
	i := 0
	t.each(files, func(name string, r io.Reader) {
		t.banner(i, name, show)
		i++
		if sign == '+' {
			t.tailFrom(name, r, n, inBytes, end)
		} else {
			t.tailLast(name, r, n, inBytes, end)
		}
		if follow && i == max(1, len(files)) {
			t.follow(name, r)
		}
	})
}

func (t *cmd) tailFrom(name string, r io.Reader, n int64, inBytes bool, end byte) {
	b := bufio.NewReader(r)
	for ; n > 1; n-- {
		var err error
		if inBytes {
			_, err = b.ReadByte()
		} else {
			err = skipLine(b, end)
		}
		if err != nil {
			return
		}
	}
	t.report(t.copyData(t.out, b), "%s", name)
}

func skipLine(b *bufio.Reader, end byte) error {
	for {
		_, err := b.ReadSlice(end)
		if err != bufio.ErrBufferFull {
			return err
		}
	}
}

// tailLast reads the input and keeps only what may be in the last n bytes or lines.
func (t *cmd) tailLast(name string, r io.Reader, n int64, inBytes bool, end byte) {
	var keep []byte
	buf := make([]byte, 64<<10)
	for {
		k, err := r.Read(buf)
		keep = append(keep, buf[:k]...)
		if len(keep) > maxWhole {
			t.fatal(1, "%s: the end is too large", name)
		}
		if len(keep) > 1<<20 || err != nil {
			keep = append(keep[:0], keep[allButLast(keep, n, inBytes, end):]...)
		}
		if err != nil {
			if err != io.EOF {
				t.failed(name, err)
			}
			t.out.Write(keep)
			return
		}
	}
}

// follow copies what is appended to a file, until the utility is killed.
func (t *cmd) follow(name string, r io.Reader) {
	for {
		t.flush()
		if err := t.copyData(t.out, r); err != nil {
			t.failed(name, err)
			return
		}
		t.flush()
		t.sleep(50 * time.Millisecond)
	}
}

// sleep waits for d, or until the utility is killed.
func (t *cmd) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.ctx.Done():
		panic(ended{137})
	}
}

func wc(t *cmd) {
	on := map[byte]bool{}
	note := func(c byte) { on[c] = true }
	files := t.options("l lines", note, "w words", note, "c bytes", note, "m chars", note, "L max-line-length", note)
	if len(on) == 0 {
		on['l'], on['w'], on['c'] = true, true, true
	}
	type row struct {
		counts [5]int64
		name   string
	}
	var rows []row
	var total row
	total.name = "total"
	t.each(files, func(name string, r io.Reader) {
		c := t.count(name, r)
		if name == "-" && len(files) == 0 {
			name = ""
		}
		rows = append(rows, row{c, name})
		for i := range c {
			if i == 4 {
				total.counts[i] = max(total.counts[i], c[i])
			} else {
				total.counts[i] += c[i]
			}
		}
	})
	if len(files) > 1 {
		rows = append(rows, total)
	}
	width := 1
	if len(on) > 1 || len(rows) > 1 {
		width = len(fmt.Sprint(slices.Max(total.counts[:4])))
		if (len(files) == 0 || slices.Contains(files, "-")) && !t.stdinIsFile() {
			width = max(7, width)
		}
	}
	for _, r := range rows {
		first := true
		for i, letter := range "lwmcL" {
			if on[byte(letter)] {
				if !first {
					t.out.WriteByte(' ')
				}
				first = false
				fmt.Fprintf(t.out, "%*d", width, r.counts[i])
			}
		}
		if r.name != "" {
			t.out.WriteString(" " + r.name)
		}
		t.out.WriteByte('\n')
	}
}

// stdinIsFile reports whether standard input is a regular file.
func (t *cmd) stdinIsFile() bool {
	in, ok := t.Stdin.(interface{ File() *memfs.File })
	if !ok || in.File() == nil {
		return false
	}
	info, err := in.File().Stat()
	return err == nil && info.Mode().IsRegular()
}

// count counts lines, words, characters and bytes, and returns the length of the longest line.
func (t *cmd) count(name string, r io.Reader) (c [5]int64) {
	word := false
	column := int64(0)
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		c[3] += int64(n)
		for _, b := range buf[:n] {
			space := b == ' ' || b >= '\t' && b <= '\r'
			if !space && !word {
				c[1]++
			}
			word = !space
			if utf8.RuneStart(b) {
				c[2]++
			}
			switch {
			case b == '\n':
				c[0]++
				column = 0
			case b == '\t':
				column += 8 - column%8
			case b == '\r' || b == '\f':
				column = 0
			case b >= ' ' && utf8.RuneStart(b):
				column++
			}
			c[4] = max(c[4], column)
		}
		if err != nil {
			if err != io.EOF {
				t.failed(name, err)
			}
			return c
		}
	}
}

func tac(t *cmd) {
	files := t.options()
	t.each(files, func(name string, r io.Reader) {
		data := t.readAll(name, r)
		for len(data) > 0 {
			i := bytes.LastIndexByte(data[:len(data)-1], '\n') + 1
			t.out.Write(data[i:])
			data = data[:i]
		}
	})
}

func rev(t *cmd) {
	files := t.options()
	t.each(files, func(name string, r io.Reader) {
		for line, whole := range t.lines(name, r, '\n') {
			runes := []rune(string(line))
			slices.Reverse(runes)
			t.out.WriteString(string(runes))
			if whole {
				t.out.WriteByte('\n')
			}
		}
	})
}

func nl(t *cmd) {
	style, width, sep, n, step, layout, join, blank := byte('t'), 6, "\t", 1, 1, "rn", 1, 0
	match := func(line string) bool { return line != "" }
	files := t.options(
		"b: body-numbering", func(v string) {
			if style = (v + "t")[0]; style != 'p' {
				return
			}
			re, err := posixre.Compile(v[1:], posixre.Options{})
			t.valid(err, 1)
			match = re.Match
		},
		"l: join-blank-lines", t.integer("line number of blank lines", &join),
		"w: number-width", t.integer("line number field width", &width),
		"s: number-separator", &sep,
		"v: starting-line-number", t.integer("starting line number", &n),
		"i: line-increment", t.integer("line number increment", &step),
		"n: number-format", &layout,
		"p", nil,
	)
	verb := map[string]string{"ln": "%-*d", "rn": "%*d", "rz": "%0*d"}[layout]
	if verb == "" {
		t.fatal(1, "invalid line numbering format: '%s'", layout)
	}
	t.each(files, func(name string, r io.Reader) {
		for line := range t.lines(name, r, '\n') {
			if blank++; len(line) > 0 {
				blank = 0
			}
			if style == 'a' && blank%max(join, 1) == 0 || style != 'a' && style != 'n' && match(string(line)) {
				fmt.Fprintf(t.out, verb+"%s%s\n", width, n, sep, line)
				n += step
			} else {
				fmt.Fprintf(t.out, "%*s%s\n", width+len(sep), "", line)
			}
		}
	})
}

func fold(t *cmd) {
	width, spaces, inBytes := 80, false, false
	files := t.options(
		"w: width", t.integer("number of columns", &width),
		"s spaces", &spaces,
		"b bytes", &inBytes,
	)
	if width < 1 {
		t.fatal(1, "invalid number of columns: '%d'", width)
	}
	t.each(files, func(name string, r io.Reader) {
		for line, whole := range t.lines(name, r, '\n') {
			t.foldLine(string(line), width, spaces, inBytes)
			if whole {
				t.out.WriteByte('\n')
			}
		}
	})
}

func (t *cmd) foldLine(line string, width int, spaces, inBytes bool) {
	for {
		cut := foldAt(line, width, inBytes)
		if cut == len(line) {
			t.out.WriteString(line)
			return
		}
		if spaces {
			if i := strings.LastIndexAny(line[:cut], " \t"); i >= 0 {
				cut = i + 1
			}
		}
		t.out.WriteString(line[:cut] + "\n")
		line = line[cut:]
	}
}

// foldAt returns the length of the part of a line that fits into a width.
func foldAt(line string, width int, inBytes bool) int {
	column := 0
	for i, r := range line {
		next := column + 1
		switch {
		case inBytes:
			next = column + utf8.RuneLen(r)
		case r == '\t':
			next = column + 8 - column%8
		case r == '\b':
			next = max(0, column-1)
		case r == '\r':
			next = 0
		}
		if next > width && i > 0 {
			return i
		}
		column = next
	}
	return len(line)
}

// tabStops parses the options of expand and unexpand.
func (t *cmd) tabStops(specs func(note func(byte)) []any) (stop func(column int) int, flags map[byte]bool, files []string) {
	flags = map[byte]bool{}
	stops := []int{8}
	files = t.options(append(specs(func(c byte) { flags[c] = true }),
		"t: tabs", func(v string) {
			flags['t'], stops = true, nil
			for _, f := range strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == ' ' }) {
				stops = append(stops, max(1, t.number("tab size", f)))
			}
		})...)
	return func(column int) int {
		if len(stops) == 1 {
			return column + stops[0] - column%stops[0]
		}
		for _, s := range stops {
			if s > column {
				return s
			}
		}
		return column + 1
	}, flags, files
}

func expand(t *cmd) {
	stop, flags, files := t.tabStops(func(note func(byte)) []any { return []any{"i initial", note} })
	t.each(files, func(name string, r io.Reader) {
		for line, whole := range t.lines(name, r, '\n') {
			column, initial := 0, true
			for _, c := range string(line) {
				if c == '\t' && (initial || !flags['i']) {
					next := stop(column)
					t.out.WriteString(strings.Repeat(" ", next-column))
					column = next
					continue
				}
				initial = initial && (c == ' ' || c == '\t')
				t.out.WriteRune(c)
				if column++; c == '\b' {
					column = max(column-2, 0)
				}
			}
			if whole {
				t.out.WriteByte('\n')
			}
		}
	})
}

func unexpand(t *cmd) {
	stop, flags, files := t.tabStops(func(note func(byte)) []any { return []any{"a all", note, "f first-only", note} })
	all := (flags['a'] || flags['t']) && !flags['f']
	t.each(files, func(name string, r io.Reader) {
		for line, whole := range t.lines(name, r, '\n') {
			t.unexpandLine(string(line), stop, all)
			if whole {
				t.out.WriteByte('\n')
			}
		}
	})
}

func (t *cmd) unexpandLine(line string, stop func(int) int, all bool) {
	column, start := 0, -1 // start of a sequence of blanks
	pending := ""
	for i, c := range line {
		if c == ' ' || c == '\t' {
			if start < 0 {
				start = column
			}
			next := column + 1
			if c == '\t' {
				next = stop(column)
			}
			pending += string(c)
			column = next
			if c == '\t' || stop(column-1) == column && (column-start > 1 || c == '\t') {
				pending = "\t"
				t.out.WriteString(pending)
				pending, start = "", column
			}
			continue
		}
		t.out.WriteString(pending)
		pending, start = "", -1
		if !all {
			t.out.WriteString(line[i:])
			return
		}
		t.out.WriteRune(c)
		column++
	}
	t.out.WriteString(pending)
}

func paste(t *cmd) {
	serial, delims := false, []string{"\t"}
	files := t.options(
		"s serial", &serial,
		"d: delimiters", func(v string) {
			delims = nil
			text := v
			for text != "" {
				piece, n := "", 0
				if text[0] == '\\' {
					piece, n, _ = format.Escape(text, format.Format)
					if text[1:] != "" && text[1] == '0' {
						piece = ""
					}
				} else {
					_, n = utf8.DecodeRuneInString(text)
					piece = text[:n]
				}
				delims, text = append(delims, piece), text[n:]
			}
			if len(delims) == 0 {
				delims = []string{""}
			}
		},
	)
	if len(files) == 0 {
		files = []string{"-"}
	}
	if serial {
		t.each(files, func(name string, r io.Reader) {
			i := 0
			for line := range t.lines(name, r, '\n') {
				if i > 0 {
					t.out.WriteString(delims[(i-1)%len(delims)])
				}
				i++
				t.out.Write(line)
			}
			t.out.WriteByte('\n')
		})
		return
	}
	t.pasteParallel(files, delims)
}

func (t *cmd) pasteParallel(files, delims []string) {
	shared := bufio.NewReader(t.Stdin)
	var readers []*bufio.Reader
	for _, f := range files {
		if f == "-" {
			readers = append(readers, shared)
			continue
		}
		r, err := t.open(f)
		t.must(err, 1, "%s", f)
		defer r.Close()
		readers = append(readers, bufio.NewReader(r))
	}
	open := len(readers)
	for {
		t.check()
		var row strings.Builder
		some := false
		for i, r := range readers {
			if i > 0 {
				row.WriteString(delims[(i-1)%len(delims)])
			}
			if r == nil {
				continue
			}
			line, err := r.ReadString('\n')
			if err != nil && line == "" {
				readers[i] = nil
				open--
				continue
			}
			some = true
			row.WriteString(strings.TrimSuffix(line, "\n"))
		}
		if !some || open == 0 && row.Len() == 0 {
			return
		}
		t.out.WriteString(row.String() + "\n")
	}
}

func seq(t *cmd) {
	sep, layout, width := "\n", "", false
	args := t.Args[1:]
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' && !(args[0][1] >= '0' && args[0][1] <= '9' || args[0][1] == '.') {
		a := args[0]
		args = args[1:]
		if a == "--" {
			break
		}
		switch {
		case a == "-w" || a == "--equal-width":
			width = true
		case strings.HasPrefix(a, "-s") || strings.HasPrefix(a, "-f"):
			value := a[2:]
			if value == "" {
				if len(args) == 0 {
					t.fatal(1, "option requires an argument -- '%c'", a[1])
				}
				value, args = args[0], args[1:]
			}
			if a[1] == 's' {
				sep = value
			} else {
				layout = value
			}
		case strings.HasPrefix(a, "--separator="):
			sep = a[len("--separator="):]
		case strings.HasPrefix(a, "--format="):
			layout = a[len("--format="):]
		default:
			t.fatal(1, "invalid option '%s'", a)
		}
	}
	if len(args) < 1 || len(args) > 3 {
		t.fatal(1, "missing operand")
	}
	first, step, last := "1", "1", args[len(args)-1]
	if len(args) > 1 {
		first = args[0]
	}
	if len(args) > 2 {
		step = args[1]
	}
	t.seqRun(first, step, last, sep, layout, width)
}

func (t *cmd) seqRun(first, step, last, sep, layout string, width bool) {
	var v [3]float64
	prec, digits := 0, 0
	for i, text := range []string{first, step, last} {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(f) {
			t.fatal(1, "invalid floating point argument: '%s'", text)
		}
		v[i] = f
		if _, frac, ok := strings.Cut(text, "."); ok && i < 2 {
			prec = max(prec, len(frac))
		}
		if i != 1 {
			whole, _, _ := strings.Cut(text, ".")
			digits = max(digits, len(whole))
		}
	}
	if v[1] == 0 {
		t.fatal(1, "invalid Zero increment value: '%s'", step)
	}
	if prec > 0 && width {
		digits += prec + 1
	}
	show := func(f float64) string {
		switch {
		case layout != "":
			return formatFloat(t, layout, f)
		case width:
			return fmt.Sprintf("%0*.*f", digits, prec, f)
		}
		return strconv.FormatFloat(f, 'f', prec, 64)
	}
	some := false
	slack := math.Abs(v[1]) * 1e-9
	for i := 0; ; i++ {
		if i%1024 == 0 {
			t.check()
		}
		f := v[0] + float64(i)*v[1]
		if v[1] > 0 && f > v[2]+slack || v[1] < 0 && f < v[2]-slack {
			break
		}
		if some {
			t.out.WriteString(sep)
		}
		some = true
		t.out.WriteString(show(f))
	}
	if some {
		t.out.WriteByte('\n')
	}
}

// formatFloat formats with a layout that has one conversion.
func formatFloat(t *cmd, layout string, f float64) string {
	before, after, ok := strings.Cut(strings.ReplaceAll(layout, "%%", "\x00"), "%")
	if !ok {
		t.fatal(1, "format '%s' has no %% directive", layout)
	}
	sp, n := format.Parse(after, func() int { return 0 })
	if n == 0 || strings.IndexByte("aefgAEFG", sp.Verb) < 0 {
		t.fatal(1, "format '%s' has unknown directive", layout)
	}
	return strings.ReplaceAll(before+sp.Float(f)+after[n:], "\x00", "%")
}

func yes(t *cmd) {
	text := "y"
	if len(t.Args) > 1 {
		text = strings.Join(t.Args[1:], " ")
	}
	block := []byte(strings.Repeat(text+"\n", max(1, 4096/(len(text)+1))))
	for {
		t.out.Write(block)
		t.check()
	}
}

func tee(t *cmd) {
	extend := false
	files := t.options(
		"a append", &extend,
		"i ignore-interrupts", nil,
	)
	outs := []io.Writer{t.Stdout}
	names := []string{"standard output"}
	for _, f := range files {
		w, err := t.create(f, extend)
		if err != nil {
			t.failed(f, err)
			continue
		}
		defer w.Close()
		outs, names = append(outs, w), append(names, f)
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := t.Stdin.Read(buf)
		for i, w := range outs {
			if w == nil {
				continue
			}
			if _, werr := w.Write(buf[:n]); werr != nil {
				t.failed(names[i], werr)
				outs[i] = nil
			}
		}
		if err != nil {
			return
		}
	}
}

func split(t *cmd) {
	lines, size, width, digits, parts := int64(1000), int64(0), 2, false, 0
	files := t.options(
		"l: lines", t.amount("number of lines", &lines),
		"b: C bytes", t.amount("number of bytes", &size),
		"a: suffix-length", t.integer("suffix length", &width),
		"d numeric-suffixes", &digits,
		"n: number", t.integer("number of chunks", &parts),
	)
	input, prefix := "-", "x"
	if len(files) > 0 {
		input = files[0]
	}
	if len(files) > 1 {
		prefix = files[1]
	}
	r, err := t.open(input)
	t.must(err, 1, "cannot open '%s' for reading", input)
	defer r.Close()
	data := t.readAll(input, r)
	if parts > 0 {
		size = max(1, (int64(len(data))+int64(parts)-1)/int64(parts))
	}
	for i := 0; len(data) > 0; i++ {
		cut := 0
		if size > 0 {
			cut = int(min(size, int64(len(data))))
		} else {
			for n := lines; n > 0 && cut < len(data); n-- {
				k := bytes.IndexByte(data[cut:], '\n')
				if k < 0 {
					cut = len(data)
					break
				}
				cut += k + 1
			}
		}
		name := prefix + splitSuffix(t, i, width, digits)
		t.must(t.FS.WriteFile(t.Dir, name, data[:cut], 0o666&^t.Umask), 1, "%s", name)
		data = data[cut:]
	}
}

func splitSuffix(t *cmd, n, width int, digits bool) string {
	base, zero := 26, byte('a')
	if digits {
		base, zero = 10, '0'
	}
	s := make([]byte, max(width, 1))
	for i := len(s) - 1; i >= 0; i-- {
		s[i] = zero + byte(n%base)
		n /= base
	}
	if n > 0 {
		t.fatal(1, "output file suffixes exhausted")
	}
	return string(s)
}

func shuf(t *cmd) {
	count, echo, span := -1, false, ""
	args := t.options(
		"n: head-count", t.integer("line count", &count),
		"e echo", &echo,
		"i: input-range", &span,
	)
	var items []string
	switch {
	case echo:
		items = args
	case span != "":
		from, to, _ := strings.Cut(span, "-")
		lo, hi := t.number("input range", from), t.number("input range", to)
		if hi-lo > 10_000_000 {
			t.fatal(1, "invalid input range: '%s'", span)
		}
		for i := lo; i <= hi; i++ {
			items = append(items, strconv.Itoa(i))
		}
	default:
		t.each(args, func(name string, r io.Reader) {
			for line := range t.lines(name, r, '\n') {
				items = append(items, string(line))
			}
		})
	}
	for i := len(items) - 1; i > 0; i-- {
		j := randomInt(i + 1)
		items[i], items[j] = items[j], items[i]
	}
	if count >= 0 {
		items = items[:min(count, len(items))]
	}
	for _, i := range items {
		t.out.WriteString(i + "\n")
	}
}

func column(t *cmd) {
	table, sep, gap := false, "", "  "
	files := t.options(
		"t table", &table,
		"s: separator", &sep,
		"o: output-separator", &gap,
	)
	var rows [][]string
	widths := map[int]int{}
	t.each(files, func(name string, r io.Reader) {
		for line := range t.lines(name, r, '\n') {
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			cells := []string{string(line)}
			if table && sep == "" {
				cells = strings.Fields(string(line))
			} else if table {
				cells = strings.FieldsFunc(string(line), func(r rune) bool { return strings.ContainsRune(sep, r) })
			}
			for i, c := range cells {
				widths[i] = max(widths[i], utf8.RuneCountInString(c))
			}
			rows = append(rows, cells)
		}
	})
	for _, cells := range rows {
		for i, c := range cells {
			if i == len(cells)-1 {
				t.out.WriteString(c + "\n")
				break
			}
			t.out.WriteString(c + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)) + gap)
		}
	}
}
