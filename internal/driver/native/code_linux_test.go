package native

import (
	"bytes"
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// The interpreter writes a program's file as the agent does, and only what surely
// fits.
func TestEvalCode(t *testing.T) {
	d := newDriver(t)
	s := pythonTemplate(d)
	tmpl := newTemplate(t, d, s)
	const program = "import os\nst = os.stat('main.py')\nprint(oct(st.st_mode), st.st_uid, st.st_gid, st.st_nlink, open('main.py').read() == open(__file__).read(), os.listdir('.'), os.listdir('/proc/self/fd'))\n"
	want := eval(t, newFork(t, tmpl), program)
	var out bytes.Buffer
	f := newFork(t, tmpl).(*fork)
	p, err := f.EvalCode(t.Context(), driver.Evaluation{Path: "main.py"}, program, driver.Stdio{Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); err != nil || out.String() != want {
		t.Errorf("%q, %v; want %q", out.String(), err, want)
	}
	r, err := f.FS().Open(t.Context(), sandbar.DefaultDir+"/main.py")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if b, err := io.ReadAll(r); err != nil || string(b) != program || r.Info().Mode&fs.ModePerm != 0o644 {
		t.Errorf("the file has %q, mode %v, %v", b, r.Info().Mode, err)
	}

	large := newFork(t, tmpl).(*fork)
	if large.TakesCode(maxCode+1) || !large.TakesCode(maxCode) {
		t.Error("what it takes is not bounded")
	}
	if _, err := large.EvalCode(t.Context(), driver.Evaluation{Path: "main.py"}, strings.Repeat("#", maxCode+1), driver.Stdio{}); sandbar.CodeOf(err) != sandbar.Unsupported {
		t.Errorf("a large program: %v", err)
	}
	s.Spec.Limits.Disk = codeDisk / 2
	if newFork(t, newTemplate(t, d, s)).(*fork).TakesCode(1) {
		t.Error("it takes a program for a disk that may have no room")
	}
}

// An archive is run as the interpreter runs archives.
func TestEvalCodeThatIsAnArchive(t *testing.T) {
	d := newDriver(t)
	tmpl := newTemplate(t, d, pythonTemplate(d))
	archive := eval(t, newFork(t, tmpl), "import zipfile, sys, io\nb = io.BytesIO()\nz = zipfile.ZipFile(b, 'w')\nz.writestr('__main__.py', 'print(6 * 7)')\nz.close()\nsys.stdout.buffer.write(b.getvalue())")
	var out bytes.Buffer
	p, err := newFork(t, tmpl).(*fork).EvalCode(t.Context(), driver.Evaluation{Path: "main.py"}, archive, driver.Stdio{Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); err != nil || out.String() != "42\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}
