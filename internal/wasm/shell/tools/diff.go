package tools

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/sandbar-dev/sandbar/internal/wasm/memfs"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/program"
)

// diffOptions are the options of diff.
type diffOptions struct {
	style                                      byte // n: normal, u, c, e: ed
	context                                    int
	brief, same, recursive, newFile, text      bool
	fold, space, allSpace, blank, trailing, cr bool
	labels                                     []string
	exclude                                    []string
}

// edit replaces lines a0 to a1 of the first file by lines b0 to b1 of the second one.
type edit struct{ a0, a1, b0, b1 int }

func diffTool(t *cmd) {
	o := diffOptions{style: 'n', context: 3}
	files := t.options(
		"u unified", set(&o.style, 'u'),
		"U:", func(v string) {
			o.style = 'U' | 0x20
			o.context = t.number("context length", v)
		},
		"C:", func(v string) {
			o.style = 'C' | 0x20
			o.context = t.number("context length", v)
		},
		"c", set(&o.style, 'c'),
		"q brief", &o.brief,
		"s report-identical-files", &o.same,
		"r recursive", &o.recursive,
		"N new-file", &o.newFile,
		"a text", &o.text,
		"i ignore-case", &o.fold,
		"w ignore-all-space", &o.allSpace,
		"b ignore-space-change", &o.space,
		"B ignore-blank-lines", &o.blank,
		"Z ignore-trailing-space", &o.trailing,
		"L: label", &o.labels,
		"x: exclude", &o.exclude,
		"y side-by-side", func(v string) { t.fatal(2, "side by side is not supported; use -u") },
		"strip-trailing-cr", &o.cr,
		"d minimal normal", nil,
	)
	if len(files) != 2 {
		t.fatal(2, "missing operand after '%s'", strings.Join(files, " "))
	}
	t.diffPair(o, files[0], files[1], false)
}

// diffPair compares two paths.
func (t *cmd) diffPair(o diffOptions, a, b string, inside bool) {
	t.check()
	dirA, dirB := a != "-" && t.isDir(a), b != "-" && t.isDir(b)
	switch {
	case dirA && dirB:
		if inside && !o.recursive {
			fmt.Fprintf(t.out, "Common subdirectories: %s and %s\n", a, b)
			return
		}
		t.diffDirs(o, a, b)
		return
	case dirA && !inside:
		a = join(a, lastElem(b))
	case dirB && !inside:
		b = join(b, lastElem(a))
	case dirA != dirB:
		kinds := map[bool]string{true: "directory", false: "regular file"}
		fmt.Fprintf(t.out, "File %s is a %s while file %s is a %s\n", a, kinds[dirA], b, kinds[dirB])
		t.status = max(t.status, 1)
		return
	}
	x, okA := t.diffRead(o, a, inside)
	y, okB := x, okA
	if a != "-" || b != "-" {
		y, okB = t.diffRead(o, b, inside)
	}
	if !okA || !okB {
		return
	}
	t.diffFiles(o, a, b, x, y, inside)
}

func lastElem(name string) string {
	name = strings.TrimRight(name, "/")
	return name[strings.LastIndexByte(name, '/')+1:]
}

func (t *cmd) diffRead(o diffOptions, name string, inside bool) ([]byte, bool) {
	r, err := t.open(name)
	if err != nil {
		if o.newFile && (inside || !t.exists(name)) {
			return nil, true
		}
		t.warnStatus(2, "%s: %s", name, program.ErrorText(err))
		return nil, false
	}
	defer r.Close()
	return t.readAll(name, r), true
}

func (t *cmd) diffDirs(o diffOptions, a, b string) {
	names := map[string]int{}
	for i, dir := range []string{a, b} {
		list, err := t.FS.ReadDir(t.Dir, dir)
		if err != nil {
			t.failed(dir, err)
			t.status = 2
			return
		}
		for _, e := range list {
			if !matchesAny(o.exclude, e.Name()) {
				names[e.Name()] |= 1 << i
			}
		}
	}
	var sorted []string
	for n := range names {
		sorted = append(sorted, n)
	}
	slices.Sort(sorted)
	for _, n := range sorted {
		where := names[n]
		if where == 3 || o.newFile {
			t.diffPair(o, join(a, n), join(b, n), true)
			continue
		}
		dir := a
		if where == 2 {
			dir = b
		}
		fmt.Fprintf(t.out, "Only in %s: %s\n", strings.TrimSuffix(dir, "/"), n)
		t.status = max(t.status, 1)
	}
}

func (t *cmd) diffFiles(o diffOptions, a, b string, x, y []byte, inside bool) {
	if bytes.Equal(x, y) {
		if o.same {
			fmt.Fprintf(t.out, "Files %s and %s are identical\n", a, b)
		}
		return
	}
	if !o.text && (bytes.IndexByte(x, 0) >= 0 || bytes.IndexByte(y, 0) >= 0) {
		t.status = max(t.status, 1)
		word := "Binary files"
		if o.brief {
			word = "Files"
		}
		fmt.Fprintf(t.out, "%s %s and %s differ\n", word, a, b)
		return
	}
	d := &differ{t: t, o: o, a: splitLines(x), b: splitLines(y)}
	edits := d.edits()
	if o.blank {
		edits = slices.DeleteFunc(edits, d.onlyBlank)
	}
	if len(edits) == 0 {
		return
	}
	t.status = max(t.status, 1)
	if o.brief {
		fmt.Fprintf(t.out, "Files %s and %s differ\n", a, b)
		return
	}
	if inside {
		args := slices.Clone(t.Args[:len(t.Args)-2])
		fmt.Fprintf(t.out, "%s %s %s\n", strings.Join(args, " "), a, b)
	}
	switch o.style {
	case 'u':
		d.header("---", "+++", a, b)
		d.unified(edits)
	case 'c':
		d.header("***", "---", a, b)
		d.contextual(edits)
	default:
		d.normal(edits)
	}
}

// splitLines splits b into lines with their ends.
func splitLines(b []byte) []string {
	var lines []string
	for line := range bytes.Lines(b) {
		lines = append(lines, string(line))
	}
	return lines
}

type differ struct {
	t    *cmd
	o    diffOptions
	a, b []string
}

// key returns the part of a line that is compared.
func (d *differ) key(line string) string {
	if d.o.cr && strings.HasSuffix(line, "\r\n") {
		line = strings.TrimSuffix(line, "\r\n") + "\n"
	}
	if d.o.fold {
		line = strings.ToLower(line)
	}
	switch {
	case d.o.allSpace:
		line = strings.Map(func(r rune) rune {
			if unicode.IsSpace(r) {
				return -1
			}
			return r
		}, line)
	case d.o.space:
		end := strings.TrimRightFunc(line, unicode.IsSpace)
		line = strings.Join(strings.Fields(end), " ")
		if end != strings.TrimLeftFunc(end, unicode.IsSpace) {
			line = " " + line
		}
	case d.o.trailing:
		line = strings.TrimRightFunc(line, unicode.IsSpace)
	}
	return line
}

func (d *differ) onlyBlank(e edit) bool {
	for _, l := range append(slices.Clone(d.a[e.a0:e.a1]), d.b[e.b0:e.b1]...) {
		if strings.TrimRight(l, "\r\n") != "" {
			return false
		}
	}
	return true
}

// edits returns a shortest edit script.
func (d *differ) edits() []edit {
	ids := map[string]int{}
	number := func(lines []string) []int {
		out := make([]int, len(lines))
		for i, l := range lines {
			k := d.key(l)
			if _, ok := ids[k]; !ok {
				ids[k] = len(ids)
			}
			out[i] = ids[k]
		}
		return out
	}
	a, b := number(d.a), number(d.b)
	goneA, newB := compareLines(a, b, d.t.check)
	shift(a, goneA)
	shift(b, newB)
	var out []edit
	for i, j := 0, 0; i < len(d.a) || j < len(d.b); {
		if i < len(d.a) && !goneA[i] && j < len(d.b) && !newB[j] {
			i, j = i+1, j+1
			continue
		}
		e := edit{a0: i, b0: j}
		for i < len(d.a) && goneA[i] {
			i++
		}
		for j < len(d.b) && newB[j] {
			j++
		}
		e.a1, e.b1 = i, j
		if e.a0 == e.a1 && e.b0 == e.b1 { // cannot happen: both sides end together
			break
		}
		out = append(out, e)
	}
	return out
}

// shift moves groups of changed lines down as far as possible without changing the meaning of the
// edit script, and so joins adjacent groups.
func shift(lines []int, changed []bool) {
	for i := 0; i < len(lines); {
		if !changed[i] {
			i++
			continue
		}
		start := i
		for i < len(lines) && changed[i] {
			i++
		}
		for i < len(lines) && lines[start] == lines[i] {
			changed[start], changed[i] = false, true
			start++
			for i < len(lines) && changed[i] {
				i++
			}
		}
	}
}

// compareLines returns the lines of a and b that a shortest edit script deletes and adds. It first
// removes lines that do not occur in the other file.
func compareLines(a, b []int, check func()) (goneA, newB []bool) {
	common := func(lines, other []int) (kept, at []int) {
		has := map[int]bool{}
		for _, l := range other {
			has[l] = true
		}
		for i, l := range lines {
			if has[l] {
				kept, at = append(kept, l), append(at, i)
			}
		}
		return kept, at
	}
	changed := func(n int, at []int, kept []bool) []bool {
		out := slices.Repeat([]bool{true}, n)
		for i, where := range at {
			out[where] = kept[i]
		}
		return out
	}
	keptA, atA := common(a, b)
	keptB, atB := common(b, a)
	m := &myers{a: keptA, b: keptB, goneA: make([]bool, len(keptA)), newB: make([]bool, len(keptB)), check: check}
	m.compare(0, len(keptA), 0, len(keptB))
	return changed(len(a), atA, m.goneA), changed(len(b), atB, m.newB)
}

// myers finds a shortest edit script in linear space (E. W. Myers, An O(ND) Difference Algorithm
// and Its Variations, 1986).
type myers struct {
	a, b        []int
	goneA, newB []bool
	check       func()
}

func (m *myers) compare(a0, a1, b0, b1 int) {
	for a0 < a1 && b0 < b1 && m.a[a0] == m.b[b0] {
		a0, b0 = a0+1, b0+1
	}
	for a0 < a1 && b0 < b1 && m.a[a1-1] == m.b[b1-1] {
		a1, b1 = a1-1, b1-1
	}
	if a0 == a1 || b0 == b1 {
		for i := a0; i < a1; i++ {
			m.goneA[i] = true
		}
		for j := b0; j < b1; j++ {
			m.newB[j] = true
		}
		return
	}
	m.check()
	x, y := m.middle(a0, a1, b0, b1)
	m.compare(a0, x, b0, y)
	m.compare(x, a1, y, b1)
}

// middle finds a point on a shortest path by a search from both ends.
func (m *myers) middle(a0, a1, b0, b1 int) (x, y int) {
	n, k := a1-a0, b1-b0
	limit := n + k + 1
	delta := n - k
	fwd, bwd := make([]int, 2*limit+1), make([]int, 2*limit+1)
	for i := range bwd {
		bwd[i] = n + 1
		fwd[i] = -1
	}
	fwd[limit+1], bwd[limit+delta-1+0] = 0, n
	if limit+delta-1 < 0 {
		return a0, b0
	}
	odd := delta&1 != 0
	for depth := 0; depth <= (n+k+1)/2; depth++ {
		if depth%64 == 63 {
			m.check()
		}
		for d := -depth; d <= depth; d += 2 {
			px := 0
			if d == -depth || d != depth && fwd[limit+d-1] < fwd[limit+d+1] {
				px = fwd[limit+d+1]
			} else {
				px = fwd[limit+d-1] + 1
			}
			py := px - d
			for px < n && py < k && px >= 0 && py >= 0 && m.a[a0+px] == m.b[b0+py] {
				px, py = px+1, py+1
			}
			fwd[limit+d] = px
			if odd && d-delta >= -(depth-1) && d-delta <= depth-1 && px >= bwd[limit+d] && px <= n && py <= k {
				return a0 + px, b0 + py
			}
		}
		for r := -depth; r <= depth; r += 2 {
			d := r + delta
			if d < -limit+1 || d > limit-1 {
				continue
			}
			px := 0
			if r == depth || r != -depth && bwd[limit+d-1] < bwd[limit+d+1] {
				px = bwd[limit+d-1]
			} else {
				px = bwd[limit+d+1] - 1
			}
			py := px - d
			for px > 0 && py > 0 && px <= n && py <= k && m.a[a0+px-1] == m.b[b0+py-1] {
				px, py = px-1, py-1
			}
			bwd[limit+d] = px
			if !odd && d >= -depth && d <= depth && fwd[limit+d] >= px && px >= 0 && py >= 0 {
				return a0 + px, b0 + py
			}
		}
	}
	return a0 + n, b0
}

func (d *differ) header(markA, markB, a, b string) {
	for i, f := range []struct{ mark, name string }{{markA, a}, {markB, b}} {
		if i < len(d.o.labels) {
			fmt.Fprintf(d.t.out, "%s %s\n", f.mark, d.o.labels[i])
			continue
		}
		when := time.Now()
		if info, err := d.stat(f.name); err == nil {
			when = info.ModTime()
		}
		fmt.Fprintf(d.t.out, "%s %s\t%s\n", f.mark, f.name, when.In(location(d.t)).Format("2006-01-02 15:04:05.000000000 -0700"))
	}
}

func (d *differ) stat(name string) (*memfs.Info, error) { return d.t.FS.Stat(d.t.Dir, name) }

// line writes a line with a prefix.
func (d *differ) line(prefix, line string) {
	d.t.out.WriteString(prefix + line)
	if !strings.HasSuffix(line, "\n") {
		d.t.out.WriteString("\n\\ No newline at end of file\n")
	}
}

func (d *differ) normal(edits []edit) {
	span := func(lo, hi int) string {
		if hi-lo <= 1 {
			return fmt.Sprint(max(hi, lo))
		}
		return fmt.Sprintf("%d,%d", lo+1, hi)
	}
	for _, e := range edits {
		op := "c"
		switch {
		case e.a0 == e.a1:
			op = "a"
		case e.b0 == e.b1:
			op = "d"
		}
		fmt.Fprintf(d.t.out, "%s%s%s\n", span(e.a0, e.a1), op, span(e.b0, e.b1))
		for _, l := range d.a[e.a0:e.a1] {
			d.line("< ", l)
		}
		if op == "c" {
			d.t.out.WriteString("---\n")
		}
		for _, l := range d.b[e.b0:e.b1] {
			d.line("> ", l)
		}
	}
}

// hunks groups edits whose contexts overlap or touch.
func (d *differ) hunks(edits []edit) [][]edit {
	var out [][]edit
	for _, e := range edits {
		if n := len(out); n > 0 {
			last := out[n-1][len(out[n-1])-1]
			if e.a0-last.a1 <= 2*d.o.context {
				out[n-1] = append(out[n-1], e)
				continue
			}
		}
		out = append(out, []edit{e})
	}
	return out
}

// frame returns the lines of both files that a hunk covers.
func (d *differ) frame(h []edit) (a0, a1, b0, b1 int) {
	first, last := h[0], h[len(h)-1]
	before := min(d.o.context, first.a0, first.b0)
	after := min(d.o.context, len(d.a)-last.a1, len(d.b)-last.b1)
	return first.a0 - before, last.a1 + after, first.b0 - before, last.b1 + after
}

func (d *differ) unified(edits []edit) {
	span := func(lo, hi int) string {
		switch hi - lo {
		case 0:
			return fmt.Sprintf("%d,0", lo)
		case 1:
			return fmt.Sprint(hi)
		}
		return fmt.Sprintf("%d,%d", lo+1, hi-lo)
	}
	for _, h := range d.hunks(edits) {
		a0, a1, b0, b1 := d.frame(h)
		fmt.Fprintf(d.t.out, "@@ -%s +%s @@\n", span(a0, a1), span(b0, b1))
		at := a0
		for _, e := range h {
			for ; at < e.a0; at++ {
				d.line(" ", d.a[at])
			}
			for ; at < e.a1; at++ {
				d.line("-", d.a[at])
			}
			for _, l := range d.b[e.b0:e.b1] {
				d.line("+", l)
			}
		}
		for ; at < a1; at++ {
			d.line(" ", d.a[at])
		}
	}
}

func (d *differ) contextual(edits []edit) {
	span := func(lo, hi int) string {
		if hi-lo <= 1 {
			return fmt.Sprint(hi)
		}
		return fmt.Sprintf("%d,%d", lo+1, hi)
	}
	for _, h := range d.hunks(edits) {
		a0, a1, b0, b1 := d.frame(h)
		fmt.Fprintf(d.t.out, "***************\n*** %s ****\n", span(a0, a1))
		d.side(h, d.a, a0, a1, "- ", func(e edit) (int, int, bool) { return e.a0, e.a1, e.b0 < e.b1 })
		fmt.Fprintf(d.t.out, "--- %s ----\n", span(b0, b1))
		d.side(h, d.b, b0, b1, "+ ", func(e edit) (int, int, bool) { return e.b0, e.b1, e.a0 < e.a1 })
	}
}

// side writes one half of a context hunk, unless it has no changes.
func (d *differ) side(h []edit, lines []string, lo, hi int, mark string, of func(edit) (int, int, bool)) {
	if !slices.ContainsFunc(h, func(e edit) bool { a, b, _ := of(e); return a < b }) {
		return
	}
	at := lo
	for _, e := range h {
		from, to, both := of(e)
		for ; at < from; at++ {
			d.line("  ", lines[at])
		}
		m := mark
		if both {
			m = "! "
		}
		for ; at < to; at++ {
			d.line(m, lines[at])
		}
	}
	for ; at < hi; at++ {
		d.line("  ", lines[at])
	}
}
