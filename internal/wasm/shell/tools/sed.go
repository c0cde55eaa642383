package tools

import (
	"bufio"
	"io"
	"os"
	"strings"

	"github.com/sandbar-dev/sandbar/internal/wasm/shell/program"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/sed"
)

func sedTool(t *cmd) {
	var o sed.Options
	var script []string
	inPlace, suffix := false, ""
	files := t.options(
		"n quiet silent", &o.Quiet,
		"E r regexp-extended", &o.Extended,
		"e: expression", &script,
		"f: file", func(v string) { script = append(script, t.scriptFile(v)) },
		"i:: in-place", func(v string) { inPlace, suffix, o.Separate = true, v, true },
		"s separate", &o.Separate,
		"z null-data", &o.Null,
		"u unbuffered posix sandbox", nil,
	)
	if script == nil {
		if len(files) == 0 {
			t.fatal(1, "no script was given")
		}
		script, files = files[:1], files[1:]
	}
	prog, err := sed.Compile(strings.Join(script, "\n"), o)
	t.valid(err, 1)
	r := &sedRun{t: t, inPlace: inPlace, suffix: suffix, files: files}
	if len(files) == 0 {
		r.files = []string{"-"}
	}
	defer r.closeAll()
	status, err := prog.Run(sed.Env{Next: r.next, Output: r.output, Read: r.read, Open: r.open, Create: r.create, Check: t.check})
	if err != nil {
		t.fatal(4, "%s", program.ErrorText(err))
	}
	r.finish()
	if status != 0 {
		t.status = status
	}
}

func (t *cmd) scriptFile(name string) string {
	r, err := t.open(name)
	t.must(err, 1, "couldn't open file %s", name)
	defer r.Close()
	return strings.TrimSuffix(string(t.readAll(name, r)), "\n")
}

// sedRun provides the files of sed and replaces those that are edited in place.
type sedRun struct {
	t       *cmd
	inPlace bool
	suffix  string
	files   []string
	current string
	opened  []io.Closer
	edited  *strings.Builder
	out     *bufio.Writer
}

func (r *sedRun) next() *sed.Input {
	for len(r.files) > 0 {
		name := r.files[0]
		r.files = r.files[1:]
		if name != "-" && r.t.isDir(name) {
			r.t.warn("couldn't edit %s: not a regular file", name)
			r.t.status = 4
			continue
		}
		f, err := r.t.open(name)
		if err != nil {
			r.t.warn("can't read %s: %s", name, program.ErrorText(err))
			r.t.status = 2
			continue
		}
		r.opened = append(r.opened, f)
		return &sed.Input{Name: name, Reader: f}
	}
	return nil
}

// output returns standard output, or the new version of the file.
func (r *sedRun) output(in *sed.Input) *bufio.Writer {
	if !r.inPlace || in.Name == "-" {
		return r.t.out
	}
	if r.current == in.Name && r.out != nil {
		return r.out
	}
	r.finish()
	r.current, r.edited = in.Name, &strings.Builder{}
	r.out = bufio.NewWriter(r.edited)
	return r.out
}

// finish replaces the edited file.
func (r *sedRun) finish() {
	if r.out == nil {
		return
	}
	t := r.t
	_ = r.out.Flush()
	r.out = nil
	info, err := t.FS.Stat(t.Dir, r.current)
	if err != nil {
		t.failed(r.current, err)
		return
	}
	if r.suffix != "" {
		backup := r.current + r.suffix
		if strings.Contains(r.suffix, "*") {
			backup = strings.ReplaceAll(r.suffix, "*", lastElem(r.current))
		}
		if err := t.FS.Rename(t.Dir, r.current, backup); err != nil {
			t.errorf("cannot rename %s: %s", r.current, program.ErrorText(err))
			return
		}
	}
	if err := t.FS.WriteFile(t.Dir, r.current, []byte(r.edited.String()), info.Mode()&perm); err != nil {
		t.warnStatus(4, "couldn't write %s: %s", r.current, program.ErrorText(err))
	}
}

func (r *sedRun) read(name string) ([]byte, bool) {
	f, err := r.t.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	return r.t.readAll(name, f), true
}

func (r *sedRun) open(name string) *bufio.Reader {
	f, err := r.t.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil
	}
	r.opened = append(r.opened, f)
	return bufio.NewReader(f)
}

func (r *sedRun) create(name string) (io.Writer, error) {
	f, err := r.t.create(name, false)
	if err != nil {
		return nil, err
	}
	r.opened = append(r.opened, f)
	return f, nil
}

func (r *sedRun) closeAll() {
	for _, c := range r.opened {
		_ = c.Close()
	}
}
