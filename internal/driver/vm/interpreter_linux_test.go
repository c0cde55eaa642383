package vm

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// evaluate runs a Python program in a machine of a template, and returns its output and the times
// of both steps.
func evaluate(t *testing.T, template driver.Template, id, code string) (out string, forked, evaluated time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	began := time.Now()
	box, err := template.Fork(ctx, sandbar.ID("sb_"+id))
	if err != nil {
		t.Fatal(err)
	}
	forked = time.Since(began)
	defer func() {
		if err := box.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	v, ok := driver.As[driver.Evaluator](box)
	if !ok {
		t.Fatal("the sandbox has no interpreter")
	}
	began = time.Now()
	var stdout, stderr bytes.Buffer
	p, err := v.Eval(ctx, driver.Evaluation{Path: "main.py", Code: code, Args: []string{"one"}, Env: map[string]string{"A": "b"}},
		driver.Stdio{Stdin: strings.NewReader("input"), Stdout: &stdout, Stderr: &stderr})
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Wait()
	if err != nil || r.Outcome != sandbar.Exited || r.ExitCode != 0 {
		t.Errorf("%+v, %v: %s", r, err, stderr.String())
	}
	return stdout.String(), forked, time.Since(began)
}

// TestInterpreter checks that Python waits in restored machines, and that two of them are
// strangers: 4 of them, or 100 in "make test-all".
func TestInterpreter(t *testing.T) {
	n := 4
	if testenv.Long() {
		n = 100
	}
	d := newDriver(t, testOptions(t))
	templater, ok := driver.As[driver.Templater](driver.Driver(d))
	if !ok {
		t.Fatal("the driver has no templates")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	template, err := templater.Prepare(ctx, driver.TemplateSpec{Spec: spec(), Language: "python", Argv: []string{"python3"}, File: "main.py"})
	if err != nil {
		t.Fatal(err)
	}
	out, _, _ := evaluate(t, template, "first", "import os, sys\nprint(sys.argv, os.environ['A'], sys.stdin.read())")
	if want := "['main.py', 'one'] b input\n"; out != want {
		t.Errorf("the program prints %q, want %q", out, want)
	}
	seen := map[string]int{}
	for i := range n {
		out, forked, evaluated := evaluate(t, template, fmt.Sprint("clone", i), identity)
		t.Logf("machine %d: restored in %v, evaluated in %v", i, forked, evaluated)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if len(lines) != identities {
			t.Fatalf("%d lines: %q", len(lines), lines)
		}
		for _, line := range lines {
			if other, ok := seen[line]; ok {
				t.Errorf("machine %d has %q, like machine %d", i, line, other)
			}
			seen[line] = i
		}
	}
	if err := template.Close(); err != nil {
		t.Error(err)
	}
}

// TestInterpreterRefused checks that only an interpreter without random numbers of its own waits in
// a snapshot.
func TestInterpreterRefused(t *testing.T) {
	d := newDriver(t, testOptions(t))
	templater, _ := driver.As[driver.Templater](driver.Driver(d))
	for _, s := range []driver.TemplateSpec{
		{Spec: spec(), Language: "javascript", Argv: []string{"node"}, File: "main.js"},
		{Spec: spec(), Language: "python", Argv: []string{"python3"}, File: "main.py", Imports: []string{"random"}},
		{Spec: spec(), Language: "python", Argv: []string{"python3", "-S"}, File: "main.py"},
	} {
		if _, err := templater.Prepare(t.Context(), s); sandbar.CodeOf(err) != sandbar.Unsupported {
			t.Errorf("%s %q: %v", s.Language, s.Argv, err)
		}
	}
}
