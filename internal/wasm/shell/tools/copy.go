package tools

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/sandbar-dev/sandbar/internal/wasm/memfs"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/modes"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/program"
)

// copyOptions are the options of cp and mv.
type copyOptions struct {
	recursive, force, noClobber, update, verbose, preserve, interactive bool
	links                                                               byte // P: do not follow symbolic links, L: follow all, H: follow those of operands
	hard, symbolic                                                      bool
	target                                                              string
	plain                                                               bool // -T: the target is not a directory to copy into
	parents                                                             bool
}

func cp(t *cmd) {
	var c copyOptions
	files := t.options(
		"a archive", func(v string) { c.recursive, c.preserve, c.links = true, true, 'P' },
		"R r recursive", func(v string) {
			c.recursive = true
			if c.links == 0 {
				c.links = 'P'
			}
		},
		"f force", &c.force,
		"n no-clobber", &c.noClobber,
		"p", &c.preserve,
		"preserve::", &c.preserve,
		"d P no-dereference", set(&c.links, 'P'),
		"L dereference", set(&c.links, 'L'),
		"H", set(&c.links, 'H'),
		"u update", &c.update,
		"v verbose", &c.verbose,
		"t: target-directory", &c.target,
		"T no-target-directory", &c.plain,
		"l link", &c.hard,
		"s symbolic-link", &c.symbolic,
		"parents", &c.parents,
		"i interactive", &c.interactive,
	)
	for from, to := range t.pairs(files, &c) {
		t.copy(from, to, c, true)
	}
}

// pairs iterates over the sources and their target paths.
func (t *cmd) pairs(files []string, c *copyOptions) func(yield func(from, to string) bool) {
	if len(files) == 0 {
		t.fatal(1, "missing file operand")
	}
	dir := c.target
	if dir == "" {
		if len(files) == 1 {
			t.fatal(1, "missing destination file operand after '%s'", files[0])
		}
		dir = files[len(files)-1]
		files = files[:len(files)-1]
		if !t.isDir(dir) || c.plain {
			if len(files) > 1 {
				t.fatal(1, "target '%s' is not a directory", dir)
			}
			return func(yield func(from, to string) bool) { yield(files[0], dir) }
		}
	} else if !t.isDir(dir) {
		t.fatal(1, "target directory '%s' is not a directory", dir)
	}
	return func(yield func(from, to string) bool) {
		for _, f := range files {
			to := join(dir, path.Base(f))
			if c.parents {
				to = join(dir, strings.TrimLeft(f, "/"))
				t.report(t.FS.MkdirAll(t.Dir, path.Dir(to), 0o777&^t.Umask), "%s", path.Dir(to))
			}
			if base := path.Base(f); base == "." || base == ".." {
				to = dir
			}
			if !yield(f, to) {
				return
			}
		}
	}
}

// copy copies a file or a directory tree. named reports whether from is an operand.
func (t *cmd) copy(from, to string, c copyOptions, named bool) {
	t.check()
	info, err := t.FS.Lstat(t.Dir, from)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 && (c.links == 0 || c.links == 'L' || c.links == 'H' && named) {
		info, err = t.FS.Stat(t.Dir, from)
	}
	if err != nil {
		t.errorf("cannot stat '%s': %s", from, program.ErrorText(err))
		return
	}
	old, oldErr := t.FS.Stat(t.Dir, to)
	switch {
	case oldErr == nil && c.noClobber && !info.IsDir():
		return
	case oldErr == nil && c.interactive && !info.IsDir() && !t.confirm("overwrite '%s'? ", to):
		return
	case oldErr == nil && old.Inode() == info.Inode():
		t.errorf("'%s' and '%s' are the same file", from, to)
		return
	case oldErr == nil && c.update && !info.ModTime().After(old.ModTime()) && !info.IsDir():
		return
	case info.IsDir() && !c.recursive:
		t.errorf("-r not specified; omitting directory '%s'", from)
		return
	case info.IsDir() && oldErr == nil && !old.IsDir():
		t.errorf("cannot overwrite non-directory '%s' with directory '%s'", to, from)
		return
	case !info.IsDir() && oldErr == nil && old.IsDir():
		t.errorf("cannot overwrite directory '%s' with non-directory", to)
		return
	}
	if c.verbose {
		fmt.Fprintf(t.out, "'%s' -> '%s'\n", from, to)
	}
	switch {
	case info.IsDir():
		t.copyDir(from, to, info, oldErr == nil, c)
	case info.Mode()&fs.ModeSymlink != 0:
		t.copyLink(from, to)
	default:
		t.copyFile(from, to, info, c)
	}
}

func (t *cmd) copyDir(from, to string, info *memfs.Info, exists bool, c copyOptions) {
	if real, err := t.FS.Realpath(t.Dir, path.Dir(absolute(t.Dir, to))); err == nil {
		src, _ := t.FS.Realpath(t.Dir, from)
		if real == src || strings.HasPrefix(real, src+"/") {
			t.errorf("cannot copy a directory, '%s', into itself, '%s'", from, to)
			return
		}
	}
	if !exists {
		if err := t.FS.Mkdir(t.Dir, to, info.Mode()&perm&^t.Umask|0o700); err != nil {
			t.errorf("cannot create directory '%s': %s", to, program.ErrorText(err))
			return
		}
	}
	list, err := t.FS.ReadDir(t.Dir, from)
	if err != nil {
		t.errorf("cannot access '%s': %s", from, program.ErrorText(err))
		return
	}
	for _, e := range list {
		t.copy(join(from, e.Name()), join(to, e.Name()), c, false)
	}
	if c.preserve {
		t.keepTimes(to, info)
	}
}

func (t *cmd) copyLink(from, to string) {
	target, err := t.FS.Readlink(t.Dir, from)
	if err == nil {
		_ = t.FS.Remove(t.Dir, to)
		err = t.FS.Symlink(target, t.Dir, to)
	}
	if err != nil {
		t.errorf("cannot create symbolic link '%s': %s", to, program.ErrorText(err))
	}
}

func (t *cmd) copyFile(from, to string, info *memfs.Info, c copyOptions) {
	if c.hard || c.symbolic {
		t.link(from, to, c.symbolic, c.force, false)
		return
	}
	in, err := t.OpenFile(from, os.O_RDONLY, 0)
	if err != nil {
		t.errorf("cannot open '%s' for reading: %s", from, program.ErrorText(err))
		return
	}
	defer in.Close()
	out, err := t.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, info.Mode()&0o777)
	if err != nil {
		t.errorf("cannot create regular file '%s': %s", to, program.ErrorText(err))
		return
	}
	err = t.copyData(out, in)
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		t.errorf("error writing '%s': %s", to, program.ErrorText(err))
		return
	}
	if c.preserve {
		t.keepTimes(to, info)
	}
}

// keepTimes sets the times and the mode of a copy to those of the original.
func (t *cmd) keepTimes(to string, info *memfs.Info) {
	err := t.FS.Chmod(t.Dir, to, info.Mode()&perm)
	if err == nil {
		err = t.FS.Chtimes(t.Dir, to, info.AccessTime(), info.ModTime())
	}
	if err != nil {
		t.failed(to, err)
	}
}

func mv(t *cmd) {
	var c copyOptions
	files := t.options(
		"n no-clobber", &c.noClobber,
		"u update", &c.update,
		"v verbose", &c.verbose,
		"t: target-directory", &c.target,
		"T no-target-directory", &c.plain,
		"f force", set(&c.interactive, false),
		"i interactive", &c.interactive,
	)
	for from, to := range t.pairs(files, &c) {
		t.move(from, to, c)
	}
}

func (t *cmd) move(from, to string, c copyOptions) {
	info, err := t.FS.Lstat(t.Dir, from)
	if err != nil {
		t.errorf("cannot stat '%s': %s", from, program.ErrorText(err))
		return
	}
	old, oldErr := t.FS.Lstat(t.Dir, to)
	switch {
	case oldErr == nil && (c.noClobber || c.interactive && !t.confirm("overwrite '%s'? ", to)):
		return
	case oldErr == nil && c.update && !info.ModTime().After(old.ModTime()):
		return
	case oldErr == nil && old.Inode() == info.Inode():
		t.errorf("'%s' and '%s' are the same file", from, to)
		return
	case oldErr == nil && old.IsDir() && !info.IsDir():
		t.errorf("cannot overwrite directory '%s' with non-directory", to)
		return
	case oldErr == nil && !old.IsDir() && info.IsDir():
		t.errorf("cannot overwrite non-directory '%s' with directory '%s'", to, from)
		return
	}
	switch err := t.FS.Rename(t.Dir, from, to); {
	case err == syscall.EINVAL:
		t.errorf("cannot move '%s' to a subdirectory of itself, '%s'", from, to)
	case err != nil:
		t.errorf("cannot move '%s' to '%s': %s", from, to, program.ErrorText(err))
	case c.verbose:
		fmt.Fprintf(t.out, "renamed '%s' -> '%s'\n", from, to)
	}
}

func install(t *cmd) {
	c := copyOptions{}
	dirs, parents, mode := false, false, fs.FileMode(0o755)
	files := t.options(
		"d directory", &dirs,
		"D", &parents,
		"m: mode", func(v string) { mode = t.mode(v) },
		"p preserve-timestamps", &c.preserve,
		"t: target-directory", &c.target,
		"T no-target-directory", &c.plain,
		"c v verbose", nil,
	)
	if dirs {
		for _, d := range files {
			t.report(t.FS.MkdirAll(t.Dir, d, mode), "cannot create directory '%s'", d)
		}
		return
	}
	if parents && len(files) > 0 {
		dir := path.Dir(files[len(files)-1])
		if c.target != "" {
			dir = c.target
		}
		t.report(t.FS.MkdirAll(t.Dir, dir, 0o755), "%s", dir)
	}
	for from, to := range t.pairs(files, &c) {
		t.copy(from, to, c, true)
		if t.status == 0 {
			t.report(t.FS.Chmod(t.Dir, to, mode), "%s", to)
		}
	}
}

// dd implements dd.
func dd(t *cmd) {
	in, out := "-", ""
	bs, count, skip, seek := int64(512), int64(-1), int64(0), int64(0)
	quiet, keep, full := false, false, false
	var countBytes, skipBytes, seekBytes, both bool
	convert := func(block []byte) []byte { return block }
	for _, a := range t.Args[1:] {
		key, value, _ := strings.Cut(a, "=")
		switch key {
		case "if":
			in = value
		case "of":
			out = value
		case "bs":
			bs, both = t.size("number", value), true
		case "ibs":
			if n := t.size("number", value); !both {
				bs = n
			}
		case "obs":
			t.size("number", value) // what is written does not depend on it
		case "count":
			count = t.size("number", value)
		case "skip", "iseek":
			skip = t.size("number", value)
		case "seek", "oseek":
			seek = t.size("number", value)
		case "status":
			quiet = value == "none"
		case "conv":
			for c := range strings.SplitSeq(value, ",") {
				switch c {
				case "notrunc":
					keep = true
				case "sync":
					convert = func(b []byte) []byte { return append(b, make([]byte, bs-int64(len(b)))...) }
				case "ucase":
					convert = bytes.ToUpper
				case "lcase":
					convert = bytes.ToLower
				case "noerror", "fsync", "fdatasync":
				default:
					t.fatal(1, "invalid conversion: '%s'", c)
				}
			}
		case "iflag":
			full = strings.Contains(value, "fullblock")
			countBytes, skipBytes = strings.Contains(value, "count_bytes"), strings.Contains(value, "skip_bytes")
		case "oflag":
			seekBytes = strings.Contains(value, "seek_bytes")
		default:
			t.fatal(1, "unrecognized operand '%s'", a)
		}
	}
	if bs < 1 || bs > maxWhole {
		t.fatal(1, "invalid number: '%d'", bs)
	}
	if !countBytes && count >= 0 {
		count *= bs
	}
	if !skipBytes {
		skip *= bs
	}
	if !seekBytes {
		seek *= bs
	}
	start := time.Now()
	n := t.ddCopy(ddRun{in: in, out: out, bs: bs, count: count, skip: skip, seek: seek, keep: keep, full: full, countBytes: countBytes, convert: convert})
	if quiet {
		return
	}
	t.flush()
	fmt.Fprintf(t.Stderr, "%d+%d records in\n%d+%d records out\n%d bytes copied, %.3g s\n", n.inFull, n.inPart, n.outFull, n.outPart, n.bytes, time.Since(start).Seconds())
}

// ddRun is the progress of dd, in bytes.
type ddRun struct {
	in, out                                 string
	bs, count, skip, seek                   int64
	keep, full, countBytes                  bool
	convert                                 func(block []byte) []byte
	inFull, inPart, outFull, outPart, bytes int64
}

func (t *cmd) ddCopy(d ddRun) ddRun {
	r, err := t.open(d.in)
	t.must(err, 1, "failed to open '%s'", d.in)
	defer r.Close()
	w, err := t.ddOutput(d.out, d.seek, d.keep)
	t.must(err, 1, "failed to open '%s'", d.out)
	defer w.Close()
	buf := make([]byte, d.bs)
	for at := int64(0); d.count < 0 || at < d.count; {
		size := d.bs
		if d.skip > 0 {
			size = min(d.bs, d.skip)
		} else if d.count >= 0 {
			size = min(d.bs, d.count-at)
		}
		n, err := readBlock(r, buf[:size], d.full)
		if n == 0 {
			if err != nil && err != io.EOF {
				t.failed(d.in, err)
			}
			break
		}
		if d.skip > 0 {
			d.skip -= int64(n)
			continue
		}
		if at += int64(n); !d.countBytes {
			at += size - int64(n) // short block counts as a whole one
		}
		count := func(n int, full, part *int64) {
			if int64(n) == d.bs {
				*full++
			} else {
				*part++
			}
		}
		count(n, &d.inFull, &d.inPart)
		block := d.convert(buf[:n])
		count(len(block), &d.outFull, &d.outPart)
		d.bytes += int64(len(block))
		if _, err := w.Write(block); err != nil {
			t.errorf("error writing '%s': %s", d.out, program.ErrorText(err))
			break
		}
	}
	return d
}

// readBlock reads one block; a complete one if full is set.
func readBlock(r io.Reader, buf []byte, full bool) (int, error) {
	if full {
		return io.ReadFull(r, buf)
	}
	return r.Read(buf)
}

// ddOutput opens the output of dd at an offset.
func (t *cmd) ddOutput(name string, offset int64, keep bool) (io.WriteCloser, error) {
	if name == "" {
		return nopCloser{t.out}, nil
	}
	flag := os.O_WRONLY | os.O_CREATE
	if !keep && offset == 0 {
		flag |= os.O_TRUNC
	}
	f, err := t.OpenFile(name, flag, 0o666)
	if err != nil {
		return nil, err
	}
	if s, ok := f.(*memfs.File); ok && offset > 0 {
		if !keep {
			if err := s.Truncate(offset); err != nil {
				return nil, err
			}
		}
		_, err = s.Seek(offset, io.SeekStart)
	}
	return f, err
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// mode parses the mode of a new file.
func (t *cmd) mode(text string) fs.FileMode {
	m, err := modes.Parse(text, 0, false, t.Umask)
	if err != nil {
		t.fatal(1, "invalid mode: '%s'", text)
	}
	return m
}
