package tools

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/sandbar-dev/sandbar/internal/wasm/shell/program"
)

// cmd is a running utility.
type cmd struct {
	*program.Context
	ctx    context.Context
	name   string
	out    *bufio.Writer
	status int
}

// ended is the panic value that ends a utility early. Its message has been written.
type ended struct{ status int }

// tool returns a program for a function. Output is buffered; a write error ends the utility.
func tool(f func(*cmd)) program.Program {
	return func(ctx context.Context, c *program.Context) (status int) {
		t := &cmd{Context: c, ctx: ctx, name: path.Base(c.Args[0])}
		t.out = bufio.NewWriterSize(output{t}, 16<<10)
		defer func() {
			switch v := recover().(type) {
			case nil:
				status = t.status
			case ended:
				status = v.status
			default:
				panic(v)
			}
		}()
		t.exit(f)
		t.flush()
		return t.status
	}
}

// exit runs f until it returns or calls fatal, and then flushes the output.
func (t *cmd) exit(f func(*cmd)) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case ended:
			t.status = v.status
		default:
			panic(v)
		}
	}()
	f(t)
}

func (t *cmd) flush() { _ = t.out.Flush() }

// output is standard output. A write error ends the utility.
type output struct{ t *cmd }

func (o output) Write(p []byte) (int, error) {
	n, err := o.t.Stdout.Write(p)
	if err != nil {
		o.t.fatal(usageStatus(o.t.name), "write error: %s", program.ErrorText(err))
	}
	return n, nil
}

// errorf writes a message and sets the exit status to 1 if it is 0.
func (t *cmd) errorf(format string, args ...any) {
	t.warn(format, args...)
	t.status = max(t.status, 1)
}

func (t *cmd) warn(format string, args ...any) {
	_, _ = io.WriteString(t.Stderr, t.name+": "+fmt.Sprintf(format, args...)+"\n")
}

// warnStatus writes a message and sets the exit status.
func (t *cmd) warnStatus(status int, format string, args ...any) {
	t.warn(format, args...)
	t.status = status
}

// fatal writes a message and ends the utility with status.
func (t *cmd) fatal(status int, format string, args ...any) {
	t.warn(format, args...)
	panic(ended{status})
}

// need ends the utility if there are fewer than n operands.
func (t *cmd) need(operands []string, n int) {
	if len(operands) < n {
		t.fatal(usageStatus(t.name), "missing operand")
	}
}

// valid ends the utility with err as its message if err is not nil.
func (t *cmd) valid(err error, status int) {
	if err != nil {
		t.fatal(status, "%v", err)
	}
}

// must ends the utility with a message and err if err is not nil.
func (t *cmd) must(err error, status int, format string, args ...any) {
	if err != nil {
		t.fatal(status, format+": %s", append(args, program.ErrorText(err))...)
	}
}

// report writes a message and err if err is not nil, and continues.
func (t *cmd) report(err error, format string, args ...any) {
	if err != nil {
		t.errorf(format+": %s", append(args, program.ErrorText(err))...)
	}
}

// failed reports a system call's error about a file.
func (t *cmd) failed(name string, err error) { t.errorf("%s: %s", name, program.ErrorText(err)) }

// check ends the utility if it was killed. Reads and writes check this, too; check is for long
// computations.
func (t *cmd) check() {
	if t.ctx.Err() != nil {
		panic(ended{137})
	}
}

// usageStatus returns the exit status for wrong arguments.
func usageStatus(name string) int {
	switch name {
	case "grep", "egrep", "fgrep", "ls", "sort", "diff", "cmp", "jq", "tar", "awk":
		return 2
	case "env", "timeout", "nice", "nohup":
		return 125
	}
	return 1
}

// open opens a file for reading; "-" is standard input.
func (t *cmd) open(name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(t.Stdin), nil
	}
	f, err := t.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// create opens a file for writing, truncated or for appending (extend).
func (t *cmd) create(name string, extend bool) (io.ReadWriteCloser, error) {
	flag := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	if extend {
		flag = os.O_WRONLY | os.O_CREATE | os.O_APPEND
	}
	return t.OpenFile(name, flag, 0o666)
}

// each calls f for each operand, opened as a file, or for standard input if there are none. It
// reports files that cannot be opened.
func (t *cmd) each(operands []string, f func(name string, r io.Reader)) {
	if len(operands) == 0 {
		operands = []string{"-"}
	}
	for _, name := range operands {
		r, err := t.open(name)
		if err != nil {
			t.failed(name, err)
			continue
		}
		f(name, r)
		r.Close()
	}
}

// maxLine bounds a line, in bytes.
const maxLine = 64 << 20

// lines iterates over the lines of r: the text without its end, and whether an end was present. The
// text is valid until the next line. An error is reported for name.
func (t *cmd) lines(name string, r io.Reader, end byte) iter.Seq2[[]byte, bool] {
	return func(yield func([]byte, bool) bool) {
		b := bufio.NewReaderSize(r, 32<<10)
		var long []byte
		for {
			piece, err := b.ReadSlice(end)
			if err == nil && len(long) == 0 {
				if !yield(piece[:len(piece)-1], true) {
					return
				}
				continue
			}
			long = append(long, piece...)
			switch {
			case err == nil:
				if !yield(long[:len(long)-1], true) {
					return
				}
				long = long[:0]
			case errors.Is(err, bufio.ErrBufferFull):
				if len(long) > maxLine {
					t.fatal(1, "%s: line is too long", name)
				}
			default:
				if err != io.EOF {
					t.failed(name, err)
				}
				if len(long) > 0 {
					yield(long, false)
				}
				return
			}
		}
	}
}

// readAll reads r to its end, up to maxWhole bytes.
func (t *cmd) readAll(name string, r io.Reader) []byte {
	var b bytes.Buffer
	n, err := io.Copy(&b, io.LimitReader(r, maxWhole+1))
	if err != nil {
		t.failed(name, err)
	}
	if n > maxWhole {
		t.fatal(2, "%s: file is too large", name)
	}
	return b.Bytes()
}

// maxWhole bounds a file that is read into memory, in bytes.
const maxWhole = 256 << 20

// number parses a decimal argument. what names it in messages.
func (t *cmd) number(what, text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		t.fatal(1, "invalid %s: '%s'", what, text)
	}
	return n
}

// size parses a number with a suffix such as k or MB.
func (t *cmd) size(what, text string) int64 {
	digits := strings.TrimRight(text, "kKmMgGtTpPeEiBbcw")
	n, err := strconv.ParseInt(digits, 10, 64)
	if digits == "" && text != "" {
		n, err = 1, nil
	}
	factor, ok := int64(1), true
	switch suffix := text[len(digits):]; suffix {
	case "", "c":
	case "w":
		factor = 2
	case "b":
		factor = 512
	default:
		i := strings.IndexByte("KMGTPE", strings.ToUpper(suffix[:1])[0])
		base := int64(1024)
		switch suffix[1:] {
		case "", "iB", "i":
		case "B":
			base = 1000
		default:
			ok = false
		}
		for range i + 1 {
			factor *= base
		}
		ok = ok && i >= 0
	}
	if err != nil || !ok {
		t.fatal(1, "invalid %s: '%s'", what, text)
	}
	return n * factor
}

// isDir reports whether a path is a directory.
func (t *cmd) isDir(name string) bool {
	info, err := t.FS.Stat(t.Dir, name)
	return err == nil && info.IsDir()
}

// confirm asks a question on standard error and reports whether the answer is yes.
func (t *cmd) confirm(format string, args ...any) bool {
	fmt.Fprintf(t.Stderr, t.name+": "+format, args...)
	var answer []byte
	for b := make([]byte, 1); len(answer) < 80; {
		if n, err := t.Stdin.Read(b); n == 0 || err != nil || b[0] == '\n' {
			break
		}
		answer = append(answer, b[0])
	}
	return len(answer) > 0 && answer[0]|0x20 == 'y'
}

// exists reports whether a path exists. It does not follow symbolic links.
func (t *cmd) exists(name string) bool {
	_, err := t.FS.Lstat(t.Dir, name)
	return err == nil
}

// join appends a name to a directory without cleaning the path.
func join(dir, name string) string {
	if strings.HasSuffix(dir, "/") {
		return dir + name
	}
	return dir + "/" + name
}

// perm has the permission bits of a mode.
const perm = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky
