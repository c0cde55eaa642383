package native

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/testenv"
)

// pythonTemplate is what the engine asks for where Python is warm.
func pythonTemplate(d *Driver) driver.TemplateSpec {
	s := spec(d)
	s.AllowDegraded = true
	return driver.TemplateSpec{Spec: s, Language: "python", Argv: []string{"python3"}, File: "main.py",
		Env: map[string]string{"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}}
}

// newTemplate prepares a template that is closed at the test's end.
func newTemplate(t *testing.T, d *Driver, s driver.TemplateSpec) driver.Template {
	t.Helper()
	testenv.Need(t, testenv.Python)
	tmpl, err := d.Prepare(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tmpl.Close(); err != nil {
			t.Error(err)
		}
	})
	return tmpl
}

// newFork makes a fork that is destroyed at the test's end.
func newFork(t *testing.T, tmpl driver.Template) driver.Sandbox {
	t.Helper()
	b, err := tmpl.Fork(t.Context(), sandbar.NewID())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// put writes a program to where the language has it.
func put(b driver.Sandbox, program string) error {
	f, _ := driver.As[driver.Filer](b)
	w, err := f.FS().Create(context.Background(), sandbar.DefaultDir+"/main.py", sandbar.CreateOptions{Mode: 0o644})
	if err != nil {
		return err
	}
	if _, err := io.WriteString(w, program); err != nil {
		w.Abort()
		return err
	}
	return w.Commit()
}

func TestHello(t *testing.T) {
	d := newDriver(t)
	tmpl := newTemplate(t, d, pythonTemplate(d))
	b := newFork(t, tmpl)
	if err := put(b, "print('hello')\n"); err != nil {
		t.Fatal(err)
	}
	e, _ := driver.As[driver.Evaluator](b)
	var out, errOut bytes.Buffer
	p, err := e.Eval(t.Context(), driver.Evaluation{Path: "main.py"}, driver.Stdio{Stdout: &out, Stderr: &errOut})
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Wait()
	t.Log(r, err, out.String(), errOut.String())
}
