package tools

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/sandbar-dev/sandbar/internal/wasm/shell/modes"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/program"
)

func mkdir(t *cmd) {
	parents, verbose := false, false
	mode := fs.FileMode(0o777) &^ t.Umask
	dirs := t.options(
		"p parents", &parents,
		"v verbose", &verbose,
		"m: mode", func(v string) {
			m, err := modes.Parse(v, 0o777, true, t.Umask)
			t.valid(err, 1)
			mode = m
		},
	)
	t.need(dirs, 1)
	for _, d := range dirs {
		var err error
		if parents {
			if t.isDir(d) {
				continue
			}
			err = t.FS.MkdirAll(t.Dir, path.Dir(strings.TrimRight(d, "/")), 0o777&^t.Umask|0o300)
		}
		if err == nil {
			err = t.FS.Mkdir(t.Dir, d, mode)
		}
		if err != nil {
			t.errorf("cannot create directory '%s': %s", d, program.ErrorText(err))
			continue
		}
		if verbose {
			fmt.Fprintf(t.out, "mkdir: created directory '%s'\n", d)
		}
	}
}

func rmdir(t *cmd) {
	parents := false
	dirs := t.options(
		"p parents", &parents,
		"v verbose", nil,
	)
	t.need(dirs, 1)
	for _, d := range dirs {
		for d != "." && d != "/" && d != "" {
			if err := t.FS.Rmdir(t.Dir, d); err != nil {
				t.errorf("failed to remove '%s': %s", d, program.ErrorText(err))
				break
			}
			if !parents {
				break
			}
			d = path.Dir(strings.TrimRight(d, "/"))
		}
	}
}

func rm(t *cmd) {
	recursive, force, verbose, dirs, ask := false, false, false, false, false
	files := t.options(
		"r R recursive", &recursive,
		"f force", &force,
		"v verbose", &verbose,
		"d dir", &dirs,
		"i interactive", &ask,
		"preserve-root no-preserve-root", nil,
	)
	if len(files) == 0 && !force {
		t.fatal(1, "missing operand")
	}
	for _, f := range files {
		info, err := t.FS.Lstat(t.Dir, f)
		if err == syscall.ENOENT && force {
			continue
		}
		switch {
		case err != nil:
		case ask && !force && !t.confirm("remove '%s'? ", f):
			continue
		case path.Base(f) == "." || path.Base(f) == "..":
			t.errorf("refusing to remove '.' or '..' directory: skipping '%s'", f)
			continue
		case !info.IsDir():
			err = t.FS.Remove(t.Dir, f)
		case recursive:
			err = t.FS.RemoveAll(t.Dir, f)
		case dirs:
			err = t.FS.Rmdir(t.Dir, f)
		default:
			err = syscall.EISDIR
		}
		if err != nil {
			t.errorf("cannot remove '%s': %s", f, program.ErrorText(err))
			continue
		}
		if verbose {
			fmt.Fprintf(t.out, "removed '%s'\n", f)
		}
	}
}

func unlink(t *cmd) {
	files := t.options()
	if len(files) != 1 {
		t.fatal(1, "missing operand")
	}
	t.report(t.FS.Remove(t.Dir, files[0]), "cannot unlink '%s'", files[0])
}

func touch(t *cmd) {
	access, modify, create, link := true, true, true, false
	at := time.Now()
	mt := at
	files := t.options(
		"a", set(&modify, false),
		"m", set(&access, false),
		"c no-create", set(&create, false),
		"h no-dereference", &link,
		"t:", func(v string) {
			when, ok := parseStamp(v)
			if !ok {
				t.fatal(1, "invalid date format '%s'", v)
			}
			at, mt = when, when
		},
		"d: date", func(v string) {
			when, ok := parseDate(v, time.Now(), location(t))
			if !ok {
				t.fatal(1, "invalid date format '%s'", v)
			}
			at, mt = when, when
		},
		"r: reference", func(v string) {
			info, err := t.FS.Stat(t.Dir, v)
			t.must(err, 1, "failed to get attributes of '%s'", v)
			at, mt = info.AccessTime(), info.ModTime()
		},
	)
	if len(files) == 0 {
		t.fatal(1, "missing file operand")
	}
	if !access && modify {
		at = time.Time{}
	}
	if !modify && access {
		mt = time.Time{}
	}
	for _, f := range files {
		t.report(t.touchOne(f, at, mt, create, link), "cannot touch '%s'", f)
	}
}

func (t *cmd) touchOne(name string, at, mt time.Time, create, link bool) error {
	set := t.FS.Chtimes
	if link {
		set = t.FS.Lchtimes
	}
	err := set(t.Dir, name, at, mt)
	if err != syscall.ENOENT {
		return err
	}
	if !create || link {
		return nil
	}
	f, err := t.FS.OpenFile(t.Dir, name, os.O_WRONLY|os.O_CREATE, 0o666&^t.Umask)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Chtimes(at, mt)
}

func truncate(t *cmd) {
	create, size, sign := true, int64(-1), byte(0)
	files := t.options(
		"c no-create", set(&create, false),
		"s: size", func(v string) {
			if v != "" && strings.IndexByte("+-<>/%", v[0]) >= 0 {
				sign, v = v[0], v[1:]
			}
			size = t.size("number", v)
		},
		"r: reference", func(v string) {
			info, err := t.FS.Stat(t.Dir, v)
			t.must(err, 1, "cannot stat '%s'", v)
			size = info.Size()
		},
	)
	if size < 0 || len(files) == 0 {
		t.fatal(1, "you must specify '--size' and a file")
	}
	for _, f := range files {
		if create && !t.exists(f) {
			if err := t.FS.WriteFile(t.Dir, f, nil, 0o666&^t.Umask); err != nil {
				t.errorf("cannot open '%s' for writing: %s", f, program.ErrorText(err))
				continue
			}
		}
		info, err := t.FS.Stat(t.Dir, f)
		if err != nil {
			continue // not to be created
		}
		want := size
		switch sign {
		case '+':
			want = info.Size() + size
		case '-':
			want = max(0, info.Size()-size)
		case '<':
			want = min(info.Size(), size)
		case '>':
			want = max(info.Size(), size)
		case '/', '%':
			want = info.Size() / max(size, 1) * size
			if sign == '%' && want < info.Size() {
				want += size
			}
		}
		t.report(t.FS.Truncate(t.Dir, f, want), "failed to truncate '%s' at %d bytes", f, want)
	}
}

func chmod(t *cmd) {
	args := t.Args[1:]
	recursive, verbose, ref := false, false, ""
	for len(args) > 0 {
		a := args[0]
		switch {
		case a == "-R" || a == "--recursive":
			recursive = true
		case a == "-v" || a == "--verbose":
			verbose = true
		case a == "-f" || a == "-c" || a == "--silent" || a == "--quiet" || a == "--changes":
		case strings.HasPrefix(a, "--reference="):
			ref = strings.TrimPrefix(a, "--reference=")
		case a == "--":
		default:
			goto operands
		}
		args = args[1:]
	}
operands:
	mode := ""
	if ref == "" && len(args) > 0 {
		mode, args = args[0], args[1:]
	}
	t.need(args, 1)
	if ref != "" {
		info, err := t.FS.Stat(t.Dir, ref)
		t.must(err, 1, "failed to get attributes of '%s'", ref)
		mode = fmt.Sprintf("%o", modes.Unix(info.Mode()))
	}
	for _, f := range args {
		t.chmodOne(f, mode, recursive, verbose)
	}
}

func (t *cmd) chmodOne(name, mode string, recursive, verbose bool) {
	t.check()
	info, err := t.FS.Stat(t.Dir, name)
	if err != nil {
		t.errorf("cannot access '%s': %s", name, program.ErrorText(err))
		return
	}
	m, err := modes.Parse(mode, info.Mode(), info.IsDir(), t.Umask)
	if err != nil {
		t.fatal(1, "invalid mode: '%s'", mode)
	}
	t.report(t.FS.Chmod(t.Dir, name, m), "changing permissions of '%s'", name)
	if verbose {
		fmt.Fprintf(t.out, "mode of '%s' changed from %04o (%s) to %04o (%s)\n", name, modes.Unix(info.Mode()), modes.String(info.Mode())[1:], modes.Unix(m), modes.String(m)[1:])
	}
	if !recursive || !info.IsDir() {
		return
	}
	list, err := t.FS.ReadDir(t.Dir, name)
	if err != nil {
		t.failed(name, err)
	}
	for _, e := range list {
		if e.Mode()&fs.ModeSymlink == 0 {
			t.chmodOne(join(name, e.Name()), mode, true, verbose)
		}
	}
}

// chown implements chown. It accepts only the sandbox's one user.
func chown(t *cmd) {
	args := t.options("R h f v c H L P recursive no-dereference", nil)
	t.need(args, 2)
	owner, group, _ := strings.Cut(strings.ReplaceAll(args[0], ".", ":"), ":")
	for _, who := range []string{owner, group} {
		if who != "" && who != UserName && who != UserID {
			t.fatal(1, "changing ownership of '%s': %s", args[1], program.ErrorText(syscall.EPERM))
		}
	}
	for _, f := range args[1:] {
		if !t.exists(f) {
			t.errorf("cannot access '%s': %s", f, program.ErrorText(syscall.ENOENT))
		}
	}
}

func ln(t *cmd) {
	symbolic, force, noDeref, plain, relative := false, false, false, false, false
	target := ""
	files := t.options(
		"s symbolic", &symbolic,
		"f force", &force,
		"n no-dereference", &noDeref,
		"T no-target-directory", &plain,
		"t: target-directory", &target,
		"r relative", &relative,
	)
	if len(files) == 0 {
		t.fatal(1, "missing file operand")
	}
	if target == "" && len(files) == 1 {
		target = "."
	} else if target == "" {
		last := files[len(files)-1]
		info, err := t.FS.Lstat(t.Dir, last)
		isLink := err == nil && info.Mode()&fs.ModeSymlink != 0
		if !plain && t.isDir(last) && !(noDeref && isLink) {
			target, files = last, files[:len(files)-1]
		} else if len(files) > 2 {
			t.fatal(1, "target '%s' is not a directory", last)
		}
	}
	if target == "" {
		t.link(files[0], files[1], symbolic, force, relative)
		return
	}
	for _, f := range files {
		t.link(f, join(target, path.Base(f)), symbolic, force, relative)
	}
}

func (t *cmd) link(from, to string, symbolic, force, relative bool) {
	if force && t.exists(to) {
		if a, err := t.FS.Lstat(t.Dir, from); err == nil && !symbolic {
			if b, _ := t.FS.Lstat(t.Dir, to); b.Inode() == a.Inode() {
				t.errorf("'%s' and '%s' are the same file", from, to)
				return
			}
		}
		if err := t.FS.Remove(t.Dir, to); err != nil {
			t.errorf("cannot remove '%s': %s", to, program.ErrorText(err))
			return
		}
	}
	var err error
	kind := "hard"
	if symbolic {
		kind = "symbolic"
		if relative {
			from = relativePath(path.Dir(absolute(t.Dir, to)), absolute(t.Dir, from))
		}
		err = t.FS.Symlink(from, t.Dir, to)
	} else {
		err = t.FS.Link(t.Dir, from, to)
	}
	if err != nil && symbolic {
		t.errorf("failed to create symbolic link '%s': %s", to, program.ErrorText(err))
	} else if err != nil {
		t.errorf("failed to create %s link '%s' => '%s': %s", kind, to, from, program.ErrorText(err))
	}
}

func absolute(dir, name string) string {
	if !strings.HasPrefix(name, "/") {
		name = dir + "/" + name
	}
	return path.Clean(name)
}

// relativePath returns the path of to relative to the directory from. Both are clean and absolute.
func relativePath(from, to string) string {
	a, b := strings.Split(strings.Trim(from, "/"), "/"), strings.Split(strings.Trim(to, "/"), "/")
	if from == "/" {
		a = nil
	}
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	parts := append(strings.Split(strings.Repeat("../", len(a)-i), "/")[:len(a)-i], b[i:]...)
	if len(parts) == 0 {
		return "."
	}
	return strings.Join(parts, "/")
}

func readlink(t *cmd) {
	mode, end := byte(0), "\n"
	files := t.options(
		"f canonicalize", set(&mode, 'f'),
		"e canonicalize-existing", set(&mode, 'e'),
		"m canonicalize-missing", set(&mode, 'm'),
		"n no-newline", set(&end, ""),
		"z zero", set(&end, "\x00"),
		"q s v quiet silent", nil,
	)
	t.need(files, 1)
	for _, f := range files {
		var to string
		var err error
		if mode == 0 {
			to, err = t.FS.Readlink(t.Dir, f)
		} else {
			to, err = t.canonical(f, mode)
		}
		if err != nil {
			t.status = 1
			continue
		}
		fmt.Fprint(t.out, to+end)
	}
}

func realpath(t *cmd) {
	mode, plain, rel, below, end := byte('f'), false, "", "", "\n"
	files := t.options(
		"e canonicalize-existing", set(&mode, 'e'),
		"m canonicalize-missing", set(&mode, 'm'),
		"s strip no-symlinks", &plain,
		"relative-to:", &rel,
		"relative-base:", &below,
		"z zero", set(&end, "\x00"),
		"q quiet", nil,
	)
	t.need(files, 1)
	for _, f := range files {
		to, err := absolute(t.Dir, f), error(nil)
		if !plain {
			to, err = t.canonical(f, mode)
		} else if mode == 'e' {
			_, err = t.FS.Stat(t.Dir, f)
		}
		if err != nil {
			t.failed(f, err)
			continue
		}
		if base := absolute(t.Dir, below); below == "" || to == base || strings.HasPrefix(to, strings.TrimSuffix(base, "/")+"/") {
			if from := cmp.Or(rel, below); from != "" {
				to = relativePath(absolute(t.Dir, from), to)
			}
		}
		fmt.Fprint(t.out, to+end)
	}
}

// canonical resolves all symbolic links. In mode e all components must exist, in mode f all except
// the last, in mode m none.
func (t *cmd) canonical(name string, mode byte) (string, error) {
	if name == "" {
		return "", syscall.ENOENT
	}
	full := name
	if !strings.HasPrefix(full, "/") {
		full = t.Dir + "/" + full
	}
	for range 40 {
		to, err := t.FS.Realpath("/", full)
		if err == nil || mode == 'e' || err != syscall.ENOENT && mode != 'm' {
			return to, err
		}
		// The last component does not exist, or is a dangling symbolic link.
		clean := strings.TrimRight(full, "/")
		dir, base := path.Split(clean)
		if target, err := t.FS.Readlink("/", clean); err == nil {
			if !strings.HasPrefix(target, "/") {
				target = dir + target
			}
			full = target
			continue
		}
		up, err := t.FS.Realpath("/", dir)
		if err != nil {
			if mode != 'm' {
				return "", err
			}
			if up, err = t.canonical(dir, 'm'); err != nil {
				return "", err
			}
		}
		return path.Join(up, base), nil
	}
	return "", syscall.ELOOP
}

func basename(t *cmd) {
	many, suffix, end := false, "", "\n"
	names := t.options(
		"a multiple", &many,
		"s: suffix", func(v string) { many, suffix = true, v },
		"z zero", set(&end, "\x00"),
	)
	switch {
	case len(names) == 0:
		t.fatal(1, "missing operand")
	case !many && len(names) > 2:
		t.fatal(1, "extra operand '%s'", names[2])
	case !many && len(names) == 2:
		suffix, names = names[1], names[:1]
	}
	for _, n := range names {
		base := path.Base(n)
		if n == "" {
			base = ""
		}
		if base != suffix {
			base = strings.TrimSuffix(base, suffix)
		}
		fmt.Fprint(t.out, base+end)
	}
}

func dirname(t *cmd) {
	end := "\n"
	names := t.options("z zero", set(&end, "\x00"))
	t.need(names, 1)
	for _, n := range names {
		trimmed := strings.TrimRight(n, "/")
		dir := "."
		switch i := strings.LastIndexByte(trimmed, '/'); {
		case trimmed == "" && n != "":
			dir = "/"
		case i >= 0:
			if dir = strings.TrimRight(trimmed[:i], "/"); dir == "" {
				dir = "/"
			}
		}
		fmt.Fprint(t.out, dir+end)
	}
}

func mktemp(t *cmd) {
	dir, quiet, dry, below, suffix := false, false, false, "", ""
	useTmp := false
	names := t.options(
		"d directory", &dir,
		"q quiet", &quiet,
		"u dry-run", &dry,
		"tmpdir::", func(v string) { below, useTmp = v, true },
		"p:", func(v string) { below, useTmp = v, true },
		"t", &useTmp,
		"suffix:", &suffix,
	)
	useTmp = useTmp || len(names) == 0
	pattern := "tmp.XXXXXXXXXX"
	if len(names) > 0 {
		pattern = names[0]
	}
	if i := strings.LastIndex(pattern, "X"); suffix == "" && i >= 0 {
		pattern, suffix = pattern[:i+1], pattern[i+1:]
	}
	base := strings.TrimRight(pattern, "X")
	if len(pattern)-len(base) < 3 {
		t.fatal(1, "too few X's in template '%s'", pattern)
	}
	if useTmp {
		if strings.Contains(base, "/") {
			t.fatal(1, "invalid template, '%s', contains directory separator", pattern)
		}
		if below == "" {
			below = t.Getenv("TMPDIR")
		}
		if below == "" {
			below = "/tmp"
		}
		base = join(below, base)
	}
	for range 100 {
		name := base + randomName(len(pattern)-len(strings.TrimRight(pattern, "X"))) + suffix
		err := t.makeTemp(name, dir, dry)
		if err == syscall.EEXIST {
			continue
		}
		if err != nil {
			if quiet {
				panic(ended{1})
			}
			t.fatal(1, "failed to create %s via template '%s': %s", map[bool]string{true: "directory", false: "file"}[dir], pattern, program.ErrorText(err))
		}
		fmt.Fprintln(t.out, name)
		return
	}
	t.fatal(1, "no free name")
}

func (t *cmd) makeTemp(name string, dir, dry bool) error {
	if dry {
		if t.exists(name) {
			return syscall.EEXIST
		}
		return nil
	}
	if dir {
		return t.FS.Mkdir(t.Dir, name, 0o700)
	}
	f, err := t.FS.OpenFile(t.Dir, name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

func df(t *cmd) {
	human, unit := false, int64(1024)
	t.options(
		"h H human-readable", &human,
		"m", func(v string) { unit = 1 << 20 },
		"B: block-size", func(v string) { unit = max(t.size("block size", v), 1) },
		"k P portability", nil,
	)
	u := t.FS.Usage()
	total, used, head := u.Limits.Bytes, u.Bytes, "1K-blocks"
	if total == 0 {
		total = used
	}
	show := func(n int64) string {
		if human {
			return humanSize(n)
		}
		return fmt.Sprint((n + unit - 1) / unit)
	}
	if human {
		head = "Size"
	}
	percent := int64(0)
	if total > 0 {
		percent = (used*100 + total - 1) / total
	}
	fmt.Fprintf(t.out, "%-15s %10s %10s %10s %4s Mounted on\n", "Filesystem", head, "Used", "Available", "Use%")
	fmt.Fprintf(t.out, "%-15s %10s %10s %10s %3d%% /\n", "memory", show(total), show(used), show(total-used), percent)
}

func sync(t *cmd) { t.options("d f data file-system", nil) }

func mkfifo(t *cmd) { t.fatal(1, "named pipes are not supported; use a pipeline or <(…)") }

// copyData copies from a file to another.
func (t *cmd) copyData(to io.Writer, from io.Reader) error {
	buf := make([]byte, 64<<10)
	for {
		t.check()
		n, err := from.Read(buf)
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				return werr
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
