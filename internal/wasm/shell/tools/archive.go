package tools

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar/internal/wasm/shell/glob"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/modes"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/program"
)

// gzipTool implements gzip, gunzip and zcat.
func gzipTool(t *cmd) {
	stdout, decode, force, keep, test := t.name == "zcat", t.name == "gunzip" || t.name == "zcat", false, false, false
	level := 6
	files := t.options(append(letters("2345678", func(c byte) { level = int(c - '0') }),
		"1 fast", set(&level, 1),
		"9 best", set(&level, 9),
		"c stdout to-stdout", &stdout,
		"d decompress uncompress", &decode,
		"f force", &force,
		"k keep", &keep,
		"t test", func(string) { decode, test = true, true },
		"n q v no-name quiet verbose", nil,
	)...)
	if len(files) == 0 {
		files = []string{"-"}
	}
	for _, f := range files {
		if err := t.gzipFile(f, decode, stdout || test || f == "-", test, force, keep, level); err != nil {
			t.errorf("%s: %s", strings.Replace(f, "-", "stdin", map[bool]int{true: 1}[f == "-"]), gzipError(err))
		}
	}
}

func gzipError(err error) string {
	switch {
	case errors.Is(err, gzip.ErrHeader):
		return "not in gzip format"
	case errors.Is(err, io.ErrUnexpectedEOF), err == io.EOF:
		return "unexpected end of file"
	case errors.Is(err, gzip.ErrChecksum):
		return "invalid compressed data--crc error"
	}
	return program.ErrorText(err)
}

func (t *cmd) gzipFile(name string, decode, stdout, test, force, keep bool, level int) error {
	in, err := t.open(name)
	if err != nil && decode {
		if name += ".gz"; t.exists(name) {
			in, err = t.open(name)
		} else {
			name = strings.TrimSuffix(name, ".gz")
		}
	}
	if err != nil {
		return err
	}
	defer in.Close()
	if t.isDir(name) && name != "-" {
		return errors.New("is a directory -- ignored")
	}
	out := io.Writer(t.out)
	target := ""
	if !stdout {
		target = name + ".gz"
		if decode {
			base, ok := strings.CutSuffix(name, ".gz")
			if tgz, isTgz := strings.CutSuffix(name, ".tgz"); isTgz {
				base, ok = tgz+".tar", true
			}
			if !ok {
				return errors.New("unknown suffix -- ignored")
			}
			target = base
		}
		if t.exists(target) && !force {
			return fmt.Errorf("%s already exists;	not overwritten", target)
		}
		f, err := t.create(target, false)
		if err != nil {
			return err
		}
		defer f.Close()
		out = f
	}
	if test {
		out = io.Discard
	}
	if err := t.gzipCopy(out, in, decode, level); err != nil || target == "" {
		return err
	}
	if info, err := t.FS.Stat(t.Dir, name); err == nil {
		t.keepTimes(target, info)
	}
	if keep {
		return nil
	}
	return t.FS.Remove(t.Dir, name)
}

func (t *cmd) gzipCopy(out io.Writer, in io.Reader, decode bool, level int) error {
	if decode {
		z, err := gzip.NewReader(bufio.NewReader(in))
		if err != nil {
			return err
		}
		return t.copyData(out, z)
	}
	z, err := gzip.NewWriterLevel(out, level)
	if err != nil {
		return err
	}
	if err := t.copyData(z, in); err != nil {
		return err
	}
	return z.Close()
}

// tarOptions are the options of tar.
type tarOptions struct {
	mode                    byte // c x t r
	file, dir               string
	gzip, bzip2, verbose    bool
	keepOld, stdout, follow bool
	exclude                 []string
	strip                   int
	names                   string // file with the names of members (-T)
	owner, group, mode8     string // owner, group and mode of added members
	mtime                   time.Time
	fullTime                bool
	dirTimes                func() // sets the times of directories after all members
}

func tarTool(t *cmd) {
	args := t.Args[1:]
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") { // tar xzf
		args = bundled(args)
	}
	o, end := tarOptions{file: "-"}, byte('\n')
	files := t.optionsOf(args, true,
		"c create", set(&o.mode, 'c'),
		"x extract get", set(&o.mode, 'x'),
		"t list", set(&o.mode, 't'),
		"r append", set(&o.mode, 'r'),
		"f: file", &o.file,
		"C: directory", &o.dir,
		"z gzip", &o.gzip,
		"j bzip2", &o.bzip2,
		"v verbose", &o.verbose,
		"k keep-old-files", &o.keepOld,
		"O to-stdout", &o.stdout,
		"h dereference", &o.follow,
		"a auto-compress", func(v string) { o.gzip = o.gzip || strings.HasSuffix(o.file, "gz") },
		"T: files-from", &o.names,
		"null", set(&end, 0),
		"exclude:", &o.exclude,
		"strip-components:", t.integer("number of elements", &o.strip),
		"owner:", &o.owner,
		"group:", &o.group,
		"mode:", &o.mode8,
		"mtime:", func(v string) {
			when, ok := parseDate(v, time.Now(), location(t))
			if !ok {
				t.fatal(2, "Substituting -1 for unknown date format '%s'", v)
			}
			o.mtime = when
		},
		"full-time", &o.fullTime,
		"p m overwrite preserve-permissions touch numeric-owner", nil,
	)
	if o.names != "" {
		r, err := t.open(o.names)
		t.must(err, 2, "%s", o.names)
		for line := range t.lines(o.names, r, end) {
			files = append(files, string(line))
		}
		r.Close()
	}
	switch o.mode {
	case 'c':
		t.tarCreate(o, files)
	case 'x', 't':
		t.tarRead(o, files)
	case 'r':
		t.tarAppend(o, files)
	default:
		t.fatal(2, "You must specify one of the '-ctrx' options")
	}
}

// bundled converts tar's old option style, in which the values follow in order, to the new one.
func bundled(args []string) []string {
	var out []string
	rest := args[1:]
	for _, c := range args[0] {
		out = append(out, "-"+string(c))
		if strings.ContainsRune("fCT", c) && len(rest) > 0 {
			out, rest = append(out, rest[0]), rest[1:]
		}
	}
	return append(out, rest...)
}

func (t *cmd) tarCreate(o tarOptions, files []string) {
	if len(files) == 0 {
		t.fatal(2, "Cowardly refusing to create an empty archive")
	}
	if o.bzip2 {
		t.fatal(2, "bzip2 can be read but not written")
	}
	out := io.Writer(t.out)
	if o.file != "-" {
		f, err := t.create(o.file, false)
		t.must(err, 2, "%s: Cannot open", o.file)
		defer f.Close()
		out = f
	}
	if o.gzip {
		z := gzip.NewWriter(out)
		defer z.Close()
		out = z
	}
	w := tar.NewWriter(out)
	t.tarAdd(w, o, files)
	t.must(w.Close(), 2, "%s", o.file)
}

func (t *cmd) tarAdd(w *tar.Writer, o tarOptions, files []string) {
	base := t.Dir
	if o.dir != "" {
		base = absolute(t.Dir, o.dir)
	}
	a := &tarAdder{t: t, w: w, o: o, base: base, seen: map[uint64]string{}}
	if info, err := t.FS.Stat(t.Dir, o.file); err == nil {
		a.self = info.Inode()
	}
	for _, f := range files {
		a.add(f)
	}
}

type tarAdder struct {
	t    *cmd
	w    *tar.Writer
	o    tarOptions
	base string
	seen map[uint64]string // first names of files with several links
	self uint64            // inode of the archive, which is not added to itself
}

func (a *tarAdder) add(name string) {
	t := a.t
	t.check()
	full := absolute(a.base, name)
	stat := t.FS.Lstat
	if a.o.follow {
		stat = t.FS.Stat
	}
	info, err := stat("/", full)
	if err != nil {
		t.warnStatus(2, "%s: Cannot stat: %s", name, program.ErrorText(err))
		return
	}
	if info.Inode() == a.self || tarExcluded(a.o.exclude, name) {
		return
	}
	inside := strings.TrimLeft(name, "/")
	h := &tar.Header{Name: inside, Mode: int64(modes.Unix(info.Mode())), ModTime: info.ModTime().Truncate(time.Second), Uname: UserName, Gname: UserName, Uid: 1000, Gid: 1000}
	switch m := info.Mode(); {
	case m.IsDir():
		h.Typeflag = tar.TypeDir
		h.Name = strings.TrimSuffix(inside, "/") + "/"
	case m&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		h.Linkname, _ = t.FS.Readlink("/", full)
	case !m.IsRegular():
		return
	case info.Links() > 1 && a.seen[info.Inode()] != "":
		h.Typeflag, h.Linkname = tar.TypeLink, a.seen[info.Inode()]
	default:
		h.Typeflag, h.Size = tar.TypeReg, info.Size()
		a.seen[info.Inode()] = inside
	}
	a.override(h, info.Mode())
	if a.o.verbose {
		fmt.Fprintln(t.verboseOut(a.o), h.Name)
	}
	t.must(a.write(h, full), 2, "%s", name)
	if h.Typeflag == tar.TypeDir {
		list, err := t.FS.ReadDir("/", full)
		if err != nil {
			t.failed(name, err)
		}
		for _, e := range list {
			a.add(join(name, e.Name()))
		}
	}
}

// override applies --owner, --group, --mode and --mtime to a member.
func (a *tarAdder) override(h *tar.Header, mode fs.FileMode) {
	who := func(option string, name *string, id *int) {
		if option == "" {
			return
		}
		text, number, _ := strings.Cut(option, ":")
		n, err := strconv.Atoi(cmp.Or(number, text))
		if err == nil {
			*id = n
		} else if text == "root" {
			*id = 0
		}
		if *name = text; err == nil && number == "" {
			*name = ""
		}
	}
	who(a.o.owner, &h.Uname, &h.Uid)
	who(a.o.group, &h.Gname, &h.Gid)
	if a.o.mode8 != "" {
		m, err := modes.Parse(a.o.mode8, mode, mode.IsDir(), a.t.Umask)
		if err != nil {
			a.t.fatal(2, "%v", err)
		}
		h.Mode = int64(modes.Unix(m))
	}
	if !a.o.mtime.IsZero() {
		h.ModTime = a.o.mtime
	}
}

// verboseOut returns the output for names: standard error if data goes to standard output.
func (t *cmd) verboseOut(o tarOptions) io.Writer {
	if o.file == "-" && o.mode == 'c' || o.stdout {
		return t.Stderr
	}
	return t.out
}

func (a *tarAdder) write(h *tar.Header, full string) error {
	if err := a.w.WriteHeader(h); err != nil {
		return err
	}
	if h.Typeflag != tar.TypeReg {
		return nil
	}
	f, err := a.t.FS.OpenFile("/", full, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return a.t.copyData(a.w, io.LimitReader(f, h.Size))
}

func tarExcluded(patterns []string, name string) bool {
	for _, p := range patterns {
		for n := strings.Trim(name, "/"); n != ""; {
			if glob.Match(p, n) || glob.Match(p, strings.TrimPrefix(n, "./")) {
				return true
			}
			_, rest, ok := strings.Cut(n, "/")
			if !ok {
				break
			}
			n = rest
		}
	}
	return false
}

// tarAppend appends to an existing archive.
func (t *cmd) tarAppend(o tarOptions, files []string) {
	data, err := t.FS.ReadFile(t.Dir, o.file)
	t.must(err, 2, "%s: Cannot open", o.file)
	f, err := t.FS.OpenFile(t.Dir, o.file, os.O_WRONLY, 0)
	t.must(err, 2, "%s: Cannot open", o.file)
	defer f.Close()
	if _, err := f.Seek(int64(tarEnd(data)), io.SeekStart); err != nil {
		t.fatal(2, "%s: %s", o.file, program.ErrorText(err))
	}
	w := tar.NewWriter(f)
	t.tarAdd(w, o, files)
	t.must(w.Close(), 2, "%s", o.file)
}

// tarEnd returns the offset after the last member of an archive.
func tarEnd(data []byte) int {
	end := len(data) / 512 * 512
	for end >= 512 && len(bytes.Trim(data[end-512:end], "\x00")) == 0 {
		end -= 512
	}
	return end
}

func (t *cmd) tarRead(o tarOptions, only []string) {
	in, err := t.open(o.file)
	t.must(err, 2, "%s: Cannot open", o.file)
	defer in.Close()
	r := bufio.NewReaderSize(in, 64<<10)
	src := io.Reader(r)
	switch head, _ := r.Peek(3); {
	case bytes.HasPrefix(head, []byte("\x1f\x8b")):
		z, err := gzip.NewReader(r)
		if err != nil {
			t.fatal(2, "%s: %s", o.file, gzipError(err))
		}
		src = z
	case bytes.HasPrefix(head, []byte("BZh")):
		src = bzip2.NewReader(r)
	}
	missing := map[string]bool{}
	for _, name := range only {
		missing[name] = true
	}
	if _, err := r.Peek(1); err == io.EOF {
		t.fatal(2, "%s: empty file is not an archive", o.file)
	}
	o.dirTimes = func() {}
	a := tar.NewReader(src)
	for {
		t.check()
		h, err := a.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.fatal(2, "This does not look like a tar archive")
		}
		if !tarWanted(only, h.Name, missing) || tarExcluded(o.exclude, h.Name) {
			continue
		}
		if o.mode == 't' {
			t.tarList(o, h)
			continue
		}
		t.tarExtract(&o, h, a)
	}
	o.dirTimes()
	for name := range missing {
		t.warnStatus(2, "%s: Not found in archive", name)
	}
}

func tarWanted(only []string, name string, missing map[string]bool) bool {
	if len(only) == 0 {
		return true
	}
	for _, o := range only {
		clean := strings.TrimSuffix(o, "/")
		if strings.TrimSuffix(name, "/") == clean || strings.HasPrefix(name, clean+"/") {
			delete(missing, o)
			return true
		}
	}
	return false
}

func (t *cmd) tarList(o tarOptions, h *tar.Header) {
	if !o.verbose {
		fmt.Fprintln(t.out, h.Name)
		return
	}
	name := h.Name
	if h.Linkname != "" {
		name += " -> " + h.Linkname
	}
	owner := h.Uname + "/" + h.Gname
	if h.Uname == "" {
		owner = strconv.Itoa(h.Uid) + "/" + strconv.Itoa(h.Gid)
	}
	layout := "2006-01-02 15:04"
	if o.fullTime {
		layout += ":05"
	}
	fmt.Fprintf(t.out, "%s %s %9d %s %s\n", modes.String(h.FileInfo().Mode()), owner, h.Size, h.ModTime.In(location(t)).Format(layout), name)
}

// tarExtract extracts one member. Names are relative and without "..", and symbolic links are not
// followed, so that an archive cannot write outside of the directory.
func (t *cmd) tarExtract(o *tarOptions, h *tar.Header, r io.Reader) {
	name := strings.Trim(path.Clean("/"+h.Name), "/")
	for range o.strip {
		_, rest, ok := strings.Cut(name, "/")
		if !ok {
			return
		}
		name = rest
	}
	if name == "" {
		return
	}
	if o.verbose {
		fmt.Fprintln(t.verboseOut(*o), h.Name)
	}
	if o.stdout {
		if h.Typeflag == tar.TypeReg {
			t.report(t.copyData(t.out, r), "%s", h.Name)
		}
		return
	}
	base := t.Dir
	if o.dir != "" {
		base = absolute(t.Dir, o.dir)
		if !t.isDir(o.dir) {
			t.fatal(2, "%s: Cannot open: No such file or directory", o.dir)
		}
	}
	if err := t.tarWrite(o, h, r, base, name); err != nil {
		t.warnStatus(2, "%s: Cannot open: %s", h.Name, program.ErrorText(err))
	}
}

func (t *cmd) tarWrite(o *tarOptions, h *tar.Header, r io.Reader, base, name string) error {
	full := join(base, name)
	if err := t.plainDirs(base, path.Dir(name)); err != nil {
		return err
	}
	mode := h.FileInfo().Mode()&perm | 0o600
	old, err := t.FS.Lstat("/", full)
	if h.Typeflag == tar.TypeDir {
		if err != nil || !old.IsDir() {
			if err := t.FS.Mkdir("/", full, mode|0o700); err != nil {
				return err
			}
		}
		before := o.dirTimes
		o.dirTimes = func() {
			before()
			_ = t.FS.Chtimes("/", full, h.ModTime, h.ModTime) // a later member may have replaced it
		}
		return t.FS.Chmod("/", full, mode&^t.Umask|0o700)
	}
	if err == nil {
		if o.keepOld {
			return fs.ErrExist
		}
		if err := t.FS.Remove("/", full); err != nil {
			return err
		}
	}
	switch h.Typeflag {
	case tar.TypeSymlink:
		return t.FS.Symlink(h.Linkname, "/", full)
	case tar.TypeLink:
		return t.FS.Link("/", join(base, strings.Trim(path.Clean("/"+h.Linkname), "/")), full)
	case tar.TypeReg:
		f, err := t.FS.OpenFile("/", full, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode&^t.Umask)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := t.copyData(f, r); err != nil {
			return err
		}
		return f.Chtimes(h.ModTime, h.ModTime)
	}
	return nil // devices and pipes are not supported
}

// plainDirs creates the parent directories of a member. A symbolic link among them is an error,
// because it could lead outside of the directory.
func (t *cmd) plainDirs(base, dir string) error {
	at := base
	for part := range strings.SplitSeq(dir, "/") {
		if part == "." || part == "" {
			continue
		}
		at = join(at, part)
		info, err := t.FS.Lstat("/", at)
		switch {
		case err != nil:
			if err := t.FS.Mkdir("/", at, 0o777&^t.Umask); err != nil {
				return err
			}
		case !info.IsDir():
			return fs.ErrInvalid
		}
	}
	return nil
}
