package tools

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sandbar-dev/sandbar/internal/wasm/memfs"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/modes"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/program"
)

type lsOptions struct {
	columns                                                                                                            byte // C: sorted down, x: across, 0: one name a line
	width                                                                                                              int  // of the output, for columns
	escape                                                                                                             byte // q: control characters are ?, b: they are escapes, 0: as they are
	all, almost, long, recursive, dir, reverse, human, inode, size, slash, classify, follow, numeric, noOwner, noGroup bool
	sort                                                                                                               byte // t, S, X, U, v
	commas, fullTime                                                                                                   bool
	access, change                                                                                                     bool
}

// ls implements ls. Its output is never a terminal, so the default is one name a line.
func ls(t *cmd) {
	l := lsOptions{width: 80}
	specs := []any{
		"a all", &l.all,
		"A almost-all", &l.almost,
		"R recursive", &l.recursive,
		"d directory", &l.dir,
		"r reverse", &l.reverse,
		"h human-readable", &l.human,
		"i inode", &l.inode,
		"s size", &l.size,
		"F classify", &l.classify,
		"p", &l.slash,
		"L dereference", &l.follow,
		"m", &l.commas,
		"c", &l.change,
		"u", &l.access,
		"1", set(&l.columns, 0),
		"C", set(&l.columns, 'C'),
		"x", set(&l.columns, 'x'),
		"w: width", t.integer("line width", &l.width),
		"q hide-control-chars", set(&l.escape, 'q'),
		"b escape", set(&l.escape, 'b'),
		"N literal", set(&l.escape, 0),
		"color::", nil,
		"k", nil,
		"l", &l.long,
		"g", func(string) { l.long, l.noOwner = true, true },
		"o", func(string) { l.long, l.noGroup = true, true },
		"n numeric-uid-gid", func(string) { l.long, l.numeric = true, true },
		"f", func(string) { l.all, l.sort = true, 'U' },
		"full-time", func(string) { l.long, l.fullTime = true, true },
		"H", nil,
	}
	files := t.options(append(specs, letters("tSXUv", func(c byte) { l.sort = c })...)...)
	if len(files) == 0 {
		files = []string{"."}
	}
	var plain, dirs []*entry
	for _, f := range files {
		info, err := t.lsStat(f, l, true)
		if err != nil {
			t.warnStatus(2, "cannot access '%s': %s", f, program.ErrorText(err))
			continue
		}
		e := &entry{Info: info, name: f, path: f}
		if info.IsDir() && !l.dir {
			dirs = append(dirs, e)
		} else {
			plain = append(plain, e)
		}
	}
	l.order(plain)
	l.order(dirs)
	t.lsPrint(plain, l, false)
	for i, d := range dirs {
		head := len(files) > 1 || l.recursive
		if i > 0 || len(plain) > 0 {
			fmt.Fprintln(t.out)
		}
		t.lsDir(d.path, l, head)
	}
}

// entry is a file as ls lists it.
type entry struct {
	*memfs.Info
	name, path string
}

func (t *cmd) lsStat(name string, l lsOptions, named bool) (*memfs.Info, error) {
	if l.follow || named && !l.long && !l.dir && !l.classify {
		if info, err := t.FS.Stat(t.Dir, name); err == nil {
			return info, nil
		}
	}
	return t.FS.Lstat(t.Dir, name)
}

func (l lsOptions) time(i *memfs.Info) time.Time {
	switch {
	case l.change:
		return i.ChangeTime()
	case l.access:
		return i.AccessTime()
	}
	return i.ModTime()
}

func (l lsOptions) order(list []*entry) {
	slices.SortStableFunc(list, func(a, b *entry) int {
		n := 0
		switch l.sort {
		case 'U':
			return 0
		case 't':
			n = l.time(b.Info).Compare(l.time(a.Info))
		case 'S':
			n = cmp.Compare(b.Size(), a.Size())
		case 'X':
			n = cmp.Compare(path.Ext(a.name), path.Ext(b.name))
		case 'v':
			n = versionCompare(a.name, b.name)
		}
		if n == 0 {
			n = cmp.Compare(a.name, b.name)
		}
		if l.reverse {
			n = -n
		}
		return n
	})
}

func (t *cmd) lsDir(dir string, l lsOptions, head bool) {
	t.check()
	list, err := t.FS.ReadDir(t.Dir, dir)
	if err != nil {
		t.warnStatus(2, "cannot open directory '%s': %s", dir, program.ErrorText(err))
		return
	}
	var shown []*entry
	if l.all {
		for _, name := range []string{".", ".."} {
			if info, err := t.FS.Stat(t.Dir, join(dir, name)); err == nil {
				shown = append(shown, &entry{info, name, join(dir, name)})
			}
		}
	}
	for _, i := range list {
		if strings.HasPrefix(i.Name(), ".") && !l.all && !l.almost {
			continue
		}
		full := join(dir, i.Name())
		if info, err := t.lsStat(full, l, false); err == nil {
			shown = append(shown, &entry{info, i.Name(), full})
		}
	}
	l.order(shown)
	if head {
		fmt.Fprintf(t.out, "%s:\n", dir)
	}
	t.lsPrint(shown, l, true)
	if !l.recursive {
		return
	}
	for _, e := range shown {
		if e.IsDir() && e.name != "." && e.name != ".." {
			fmt.Fprintln(t.out)
			t.lsDir(e.path, l, true)
		}
	}
}

// lsColumns prints cells in as many columns as fit, sorted down the columns, or across with -x.
func (t *cmd) lsColumns(cells []string, l lsOptions) {
	for columns := len(cells); columns > 0; columns-- {
		rows := (len(cells) + columns - 1) / columns
		at := func(row, column int) int {
			if l.columns == 'x' {
				return row*columns + column
			}
			return column*rows + row
		}
		widths, total := make([]int, columns), 2*(columns-1)
		for c := range columns {
			for r := range rows {
				if i := at(r, c); i < len(cells) && (l.columns == 'x' || i < (c+1)*rows) {
					widths[c] = max(widths[c], utf8.RuneCountInString(cells[i]))
				}
			}
			total += widths[c]
		}
		if total > l.width && columns > 1 || l.columns == 'C' && (columns-1)*rows >= len(cells) {
			continue
		}
		for r := range rows {
			line := ""
			for c := range columns {
				if i := at(r, c); i < len(cells) {
					line += cells[i] + strings.Repeat(" ", widths[c]-utf8.RuneCountInString(cells[i])+2)
				}
			}
			fmt.Fprintln(t.out, strings.TrimSuffix(line, "  "))
		}
		return
	}
}

func (t *cmd) lsPrint(list []*entry, l lsOptions, total bool) {
	if total && (l.long || l.size) {
		blocks := int64(0)
		for _, e := range list {
			blocks += kilobytes(e.Info)
		}
		text := fmt.Sprint(blocks)
		if l.human {
			text = humanSize(blocks * 1024)
		}
		fmt.Fprintf(t.out, "total %s\n", text)
	}
	var rows [][]string
	for _, e := range list {
		rows = append(rows, t.lsRow(e, l))
	}
	if l.commas {
		var names []string
		for _, r := range rows {
			names = append(names, r[len(r)-1])
		}
		if len(names) > 0 {
			fmt.Fprintln(t.out, strings.Join(names, ", "))
		}
		return
	}
	if l.columns != 0 && !l.long {
		var cells []string
		for _, r := range rows {
			cells = append(cells, strings.Join(r, " "))
		}
		t.lsColumns(cells, l)
		return
	}
	widths := map[int]int{}
	for _, r := range rows {
		for i, cell := range r {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	left := map[int]bool{}
	if l.long {
		base := 0
		if l.inode {
			base++
		}
		if l.size {
			base++
		}
		left[base] = true
		for i := base + 2; i < base+2+l.owners(); i++ {
			left[i] = true
		}
	}
	for _, r := range rows {
		for i, cell := range r {
			switch {
			case i == len(r)-1:
				fmt.Fprintln(t.out, cell)
			case left[i]:
				fmt.Fprintf(t.out, "%-*s ", widths[i], cell)
			default:
				fmt.Fprintf(t.out, "%*s ", widths[i], cell)
			}
		}
	}
}

func (l lsOptions) owners() int {
	n := 2
	if l.noOwner {
		n--
	}
	if l.noGroup {
		n--
	}
	return n
}

func (t *cmd) lsRow(e *entry, l lsOptions) []string {
	var row []string
	if l.inode {
		row = append(row, fmt.Sprint(e.Inode()))
	}
	if l.size {
		row = append(row, fmt.Sprint(kilobytes(e.Info)))
	}
	name := e.name
	switch {
	case l.escape == 'b':
		quoted := fmt.Sprintf("%q", name)
		name = strings.ReplaceAll(strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`), " ", `\ `)
	case l.escape == 'q':
		name = strings.Map(func(r rune) rune {
			if unicode.IsPrint(r) {
				return r
			}
			return '?'
		}, name)
	}
	if l.classify || l.slash && e.IsDir() {
		name += mark(e.Mode())
	}
	if l.long {
		row = append(row, modes.String(e.Mode()), fmt.Sprint(e.Links()))
		user := UserName
		if l.numeric {
			user = UserID
		}
		for range l.owners() {
			row = append(row, user)
		}
		size := fmt.Sprint(lsSize(e.Info))
		if l.human {
			size = humanSize(lsSize(e.Info))
		}
		row = append(row, size, t.lsTime(l.time(e.Info), l))
		if e.Mode()&fs.ModeSymlink != 0 {
			if to, err := t.FS.Readlink(t.Dir, e.path); err == nil {
				name += " -> " + to
			}
		}
	}
	return append(row, name)
}

// lsSize returns the size that ls shows: 4096 bytes for a directory.
func lsSize(i *memfs.Info) int64 {
	if i.IsDir() {
		return 4096
	}
	return i.Size()
}

func (t *cmd) lsTime(when time.Time, l lsOptions) string {
	when = when.In(location(t))
	switch now := time.Now(); {
	case l.fullTime:
		return when.Format("2006-01-02 15:04:05.000000000 -0700")
	case when.After(now) || when.Before(now.AddDate(0, -6, 0)):
		return when.Format("Jan _2  2006")
	}
	return when.Format("Jan _2 15:04")
}

func mark(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "/"
	case m&fs.ModeSymlink != 0:
		return "@"
	case m.IsRegular() && m.Perm()&0o111 != 0:
		return "*"
	}
	return ""
}

// kilobytes returns the allocated space of a file in KiB, in blocks of 4096 bytes.
func kilobytes(i *memfs.Info) int64 {
	switch {
	case i.IsDir():
		return 4
	case i.Mode().IsRegular():
		return (i.Size() + 4095) / 4096 * 4
	}
	return 0
}

// humanSize formats a number of bytes with at most three digits and a unit.
func humanSize(n int64) string {
	if n < 1024 {
		return fmt.Sprint(n)
	}
	f := float64(n)
	for _, unit := range "KMGTPE" {
		f /= 1024
		up := func(f float64) float64 { // round up, as ls and df do
			if float64(int64(f)) < f {
				return float64(int64(f) + 1)
			}
			return f
		}
		if f < 10 {
			return fmt.Sprintf("%.1f%c", up(f*10)/10, unit)
		}
		if up(f) < 1024 {
			return fmt.Sprintf("%.0f%c", up(f), unit)
		}
	}
	return fmt.Sprint(n)
}

// versionCompare compares names and treats the numbers in them as numbers.
func versionCompare(a, b string) int {
	for a != "" && b != "" {
		da, db := leadingDigits(a), leadingDigits(b)
		if da != "" && db != "" {
			x, y := strings.TrimLeft(da, "0"), strings.TrimLeft(db, "0")
			if n := cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y)); n != 0 {
				return n
			}
			a, b = a[len(da):], b[len(db):]
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

func leadingDigits(s string) string {
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	return s[:i]
}

func du(t *cmd) {
	all, human, total, bytes := false, false, false, false
	depth, unit, follow := 1<<30, int64(1024), byte('P')
	files := t.options(
		"s summarize", set(&depth, 0),
		"a all", &all,
		"h human-readable", &human,
		"b bytes", func(v string) { bytes, unit = true, 1 },
		"m", func(v string) { unit = 1 << 20 },
		"c total", &total,
		"d: max-depth", t.integer("maximum depth", &depth),
		"L dereference", set(&follow, 'L'),
		"H dereference-args", set(&follow, 'H'),
		"P no-dereference", set(&follow, 'P'),
		"k x", nil,
	)
	if len(files) == 0 {
		files = []string{"."}
	}
	show := func(n int64, name string) {
		text := fmt.Sprint((n + unit - 1) / unit)
		if human {
			text = humanSize(n)
		}
		fmt.Fprintf(t.out, "%s\t%s\n", text, name)
	}
	seen := map[uint64]bool{}
	sum := int64(0)
	var visit func(name string, level int) int64
	visit = func(name string, level int) int64 {
		t.check()
		info, err := t.FS.Lstat(t.Dir, name)
		if follow == 'L' || follow == 'H' && level == 0 {
			info, err = t.FS.Stat(t.Dir, name)
		}
		if err != nil {
			t.errorf("cannot access '%s': %s", name, program.ErrorText(err))
			return 0
		}
		if seen[info.Inode()] {
			return 0
		}
		seen[info.Inode()] = true
		n := kilobytes(info) * 1024
		if bytes {
			n = lsSize(info)
		}
		if info.IsDir() {
			list, _ := t.FS.ReadDir(t.Dir, name)
			for _, e := range list {
				n += visit(join(name, e.Name()), level+1)
			}
		}
		if level <= depth && (info.IsDir() || all || level == 0) {
			show(n, name)
		}
		return n
	}
	for _, f := range files {
		sum += visit(f, 0)
	}
	if total {
		show(sum, "total")
	}
}

func stat(t *cmd) {
	format, follow, newline := "", false, "\n"
	files := t.options(
		"c: format", &format,
		"L dereference", &follow,
	)
	t.need(files, 1)
	for _, f := range files {
		get := t.FS.Lstat
		if follow {
			get = t.FS.Stat
		}
		info, err := get(t.Dir, f)
		if err != nil {
			t.errorf("cannot statx '%s': %s", f, program.ErrorText(err))
			continue
		}
		if format == "" {
			t.statLong(f, info)
			continue
		}
		fmt.Fprint(t.out, t.statFormat(format, f, info)+newline)
	}
}

func (t *cmd) statLong(name string, i *memfs.Info) {
	stamp := func(when time.Time) string {
		return when.In(location(t)).Format("2006-01-02 15:04:05.000000000 -0700")
	}
	fmt.Fprintf(t.out, "  File: %s\n  Size: %-10d\tBlocks: %-10d IO Block: 4096   %s\n", t.statFormat("%N", name, i), lsSize(i), kilobytes(i)*2, fileKind(i))
	fmt.Fprintf(t.out, "Device: 0,1\tInode: %-11d Links: %d\nAccess: (%04o/%s)  Uid: (%5s/%8s)   Gid: (%5s/%8s)\n", i.Inode(), i.Links(), modes.Unix(i.Mode()), modes.String(i.Mode()), UserID, UserName, UserID, UserName)
	fmt.Fprintf(t.out, "Access: %s\nModify: %s\nChange: %s\n Birth: -\n", stamp(i.AccessTime()), stamp(i.ModTime()), stamp(i.ChangeTime()))
}

func fileKind(i *memfs.Info) string {
	switch m := i.Mode(); {
	case m.IsDir():
		return "directory"
	case m&fs.ModeSymlink != 0:
		return "symbolic link"
	case m&fs.ModeCharDevice != 0:
		return "character special file"
	case i.Size() == 0:
		return "regular empty file"
	}
	return "regular file"
}

// statFormat expands the directives of stat -c.
func (t *cmd) statFormat(format, name string, i *memfs.Info) string {
	stamp := func(when time.Time) string {
		return when.In(location(t)).Format("2006-01-02 15:04:05.000000000 -0700")
	}
	kind := uint32(0o100000)
	switch {
	case i.IsDir():
		kind = 0o040000
	case i.Mode()&fs.ModeSymlink != 0:
		kind = 0o120000
	case i.Mode()&fs.ModeCharDevice != 0:
		kind = 0o020000
	}
	quoted := "'" + name + "'"
	if to, err := t.FS.Readlink(t.Dir, name); err == nil && i.Mode()&fs.ModeSymlink != 0 {
		quoted += " -> '" + to + "'"
	}
	values := map[byte]string{
		'n': name, 'N': quoted, 's': fmt.Sprint(lsSize(i)), 'b': fmt.Sprint(kilobytes(i) * 2), 'B': "512", 'o': "4096",
		'a': fmt.Sprintf("%o", modes.Unix(i.Mode())), 'A': modes.String(i.Mode()), 'F': fileKind(i), 'f': fmt.Sprintf("%x", kind|modes.Unix(i.Mode())),
		'i': fmt.Sprint(i.Inode()), 'h': fmt.Sprint(i.Links()), 'u': UserID, 'U': UserName, 'g': UserID, 'G': UserName, 'm': "/", 'd': "1", 'D': "1",
		'x': stamp(i.AccessTime()), 'X': fmt.Sprint(i.AccessTime().Unix()), 'y': stamp(i.ModTime()), 'Y': fmt.Sprint(i.ModTime().Unix()),
		'z': stamp(i.ChangeTime()), 'Z': fmt.Sprint(i.ChangeTime().Unix()), 'w': "-", 'W': "0", 't': "0", 'T': "0", '%': "%",
	}
	var b strings.Builder
	for k := 0; k < len(format); k++ {
		if format[k] != '%' || k+1 == len(format) {
			b.WriteByte(format[k])
			continue
		}
		k++
		if v, ok := values[format[k]]; ok {
			b.WriteString(v)
		} else {
			b.WriteString("?")
		}
	}
	return b.String()
}

// file implements file: it determines types by name and first bytes.
func file(t *cmd) {
	brief := false
	files := t.options(
		"b brief", &brief,
		"h no-dereference", nil,
	)
	t.need(files, 1)
	for _, f := range files {
		kind := t.fileContents(f)
		if !brief {
			kind = f + ": " + kind
		}
		fmt.Fprintln(t.out, kind)
	}
}

func (t *cmd) fileContents(name string) string {
	info, err := t.FS.Lstat(t.Dir, name)
	switch {
	case err != nil:
		return "cannot open `" + name + "' (" + program.ErrorText(err) + ")"
	case info.IsDir():
		return "directory"
	case info.Mode()&fs.ModeSymlink != 0:
		to, _ := t.FS.Readlink(t.Dir, name)
		return "symbolic link to " + to
	case !info.Mode().IsRegular():
		return "character special"
	case info.Size() == 0:
		return "empty"
	}
	f, err := t.FS.OpenFile(t.Dir, name, 0, 0)
	if err != nil {
		return "cannot open (" + program.ErrorText(err) + ")"
	}
	defer f.Close()
	head := make([]byte, 4096)
	n, _ := f.Read(head)
	return kindOf(head[:n])
}

func kindOf(b []byte) string {
	s := string(b)
	for _, m := range []struct{ magic, kind string }{
		{"\x7fELF", "ELF executable"}, {"\x89PNG\r\n\x1a\n", "PNG image data"}, {"\xff\xd8\xff", "JPEG image data"}, {"GIF8", "GIF image data"},
		{"%PDF-", "PDF document"}, {"PK\x03\x04", "Zip archive data"}, {"\x1f\x8b", "gzip compressed data"}, {"BZh", "bzip2 compressed data"},
		{"\xfd7zXZ\x00", "XZ compressed data"}, {"\x28\xb5\x2f\xfd", "Zstandard compressed data"}, {"\x00asm", "WebAssembly (wasm) binary module"},
		{"SQLite format 3\x00", "SQLite 3.x database"}, {"<?xml", "XML document, ASCII text"},
	} {
		if strings.HasPrefix(s, m.magic) {
			return m.kind
		}
	}
	if len(b) > 262 && s[257:262] == "ustar" {
		return "POSIX tar archive"
	}
	if strings.ContainsRune(s, 0) {
		return "data"
	}
	text := "ASCII text"
	if !utf8.ValidString(strings.TrimRightFunc(s, func(r rune) bool { return r == utf8.RuneError })) {
		return "data"
	}
	for _, r := range s {
		if r >= 0x80 {
			text = "UTF-8 Unicode text"
			break
		}
	}
	if strings.HasPrefix(s, "#!") {
		line, _, _ := strings.Cut(s, "\n")
		return strings.TrimSpace(line[2:]) + " script, " + text + " executable"
	}
	return text
}
