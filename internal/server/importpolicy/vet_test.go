package importpolicy_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine/lang"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
	"github.com/sandbar-dev/sandbar/internal/driver/local"
	"github.com/sandbar-dev/sandbar/internal/server/importpolicy"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var modules = []string{"os", "subprocess", "shutil", "socket", "pathlib"}

// box is a sandbox that is destroyed at the test's end.
func box(t *testing.T, d driver.Driver) driver.Sandbox {
	t.Helper()
	s, err := d.Create(t.Context(), sandbar.NewID(), sandbar.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func python(t *testing.T) lang.Language {
	t.Helper()
	c, err := lang.New(lang.Default()...)
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.Find("python")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// An import is what Python's own parser parses as one.
func TestImports(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.Python)
	d, err := local.New(driver.Host{RuntimeDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.(driver.Closer).Close() })
	for _, c := range []struct{ name, code, want string }{
		{"nothing", "", ""},
		{"harmless", "import json, re\nfrom math import pi\nprint(pi)", ""},
		{"plain", "import os", "os"},
		{"one of several", "import json, socket, re", "socket"},
		{"several, as they come", "import socket, os\nimport subprocess", "socket os subprocess"},
		{"twice", "import os\nimport os.path\nfrom os import path", "os"},
		{"under another name", "import os as harmless", "os"},
		{"a part of it", "import os.path", "os"},
		{"from", "from shutil import rmtree", "shutil"},
		{"from a part", "from os.path import join", "os"},
		{"within", "def f():\n    try:\n        import pathlib\n    finally:\n        pass", "pathlib"},
		{"after a semicolon", "x = 1; import os", "os"},
		{"call", "__import__('subprocess').run(['true'])", "subprocess"},
		{"importlib", "import importlib\nimportlib.import_module('os.path')", "os"},
		{"continued", "import \\\n  os", "os"},
		{"text", "x = 'import os'\n# import os\n'''\nimport os\n'''", ""},
		{"a name that begins alike", "import ossaudiodev_not, socketserver2 as s", ""},
		{"relative", "from . import os\nfrom .os import x", ""},
		{"variable", "os = 1\nprint(os)", ""},
		{"attribute", "import sys\nsys.os", ""},
		{"hidden, which is what it cannot see", "__import__('o' + 's')", ""},
		{"syntax, which does not run", "import os\nprint(", ""},
		{"encoding", "# -*- coding: latin-1 -*-\nimport os\nx = '\xe9'", "os"},
		{"a line of its own making", "exec('import os')", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := importpolicy.Imports(modules)(t.Context(), box(t, d), python(t), c.code)
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			b, ok := errors.AsType[*importpolicy.Blocked](err)
			if !ok || strings.Join(b.Imports, " ") != c.want || sandbar.CodeOf(err) != sandbar.Denied || sandbar.AsError(err).Field != "code" {
				t.Fatalf("%v; want %s", err, c.want)
			}
			if !strings.Contains(err.Error(), "blocked imports: "+strings.Join(b.Imports, ", ")) {
				t.Errorf("the error does not name them: %v", err)
			}
		})
	}
	// Code that cannot be parsed in the way it would run is refused.
	for name, code := range map[string]string{
		"nested too deeply": "x = " + strings.Repeat("(", 150) + strings.Repeat("-", 60000) + "1" + strings.Repeat(")", 150),
		"an archive":        "PK\x05\x06" + strings.Repeat("\x00", 18),
	} {
		t.Run(name, func(t *testing.T) {
			err := importpolicy.Imports(modules)(t.Context(), box(t, d), python(t), code)
			if _, named := errors.AsType[*importpolicy.Blocked](err); named || sandbar.CodeOf(err) != sandbar.Denied {
				t.Errorf("%v; want it refused", err)
			}
		})
	}
}

// If the check does not exit successfully, the code is refused, whatever the check has printed. The
// python3 of the test's driver runs the driver's own scripts, and "check" is one of them.
func TestImportsFailClosed(t *testing.T) {
	for _, c := range []struct {
		name, script string
		code         sandbar.Code
	}{
		{"empty", `write stdout "[]"`, ""},
		{"exit", `write stdout "[]"; exit 1`, sandbar.Denied},
		{"killed", `write stdout "[]"; signal 9`, sandbar.Denied},
		{"out of memory", `write stdout "[]"; oom`, sandbar.Denied},
		{"no answer", ``, sandbar.Denied},
		{"not JSON", `write stdout "none"`, sandbar.Denied},
		{"two answers", `write stdout "[]{}"`, sandbar.Denied},
		{"endless", `flood stdout 100000`, sandbar.Denied},
		{"lost", `lost`, sandbar.Denied},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := faulty.New()
			s := scripted{box(t, d), strings.ReplaceAll(c.script, "; ", "\n")}
			err := importpolicy.Imports(modules)(t.Context(), s, python(t), "import os")
			if sandbar.CodeOf(err) != c.code {
				t.Errorf("%v; want %q", err, c.code)
			}
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		d := faulty.New()
		ctx, cancel := context.WithCancel(t.Context())
		s := scripted{box(t, d), "block-until never"}
		go func() { <-d.Reached("never"); cancel() }()
		if err := importpolicy.Imports(modules)(ctx, s, python(t), "import os"); !errors.Is(err, context.Canceled) {
			t.Errorf("%v; want that it was cancelled", err)
		}
	})
	t.Run("no interpreter", func(t *testing.T) {
		d := faulty.New()
		d.Missing = []string{"python3"}
		if err := importpolicy.Imports(modules)(t.Context(), box(t, d), python(t), "import os"); err != nil {
			t.Errorf("%v; want that starting the program tells", err)
		}
	})
	t.Run("another language", func(t *testing.T) {
		if err := importpolicy.Imports(modules)(t.Context(), nil, lang.Language{Name: "shell"}, "import os"); err != nil {
			t.Error(err)
		}
	})
	t.Run("no modules", func(t *testing.T) {
		if err := importpolicy.Imports(nil)(t.Context(), nil, python(t), "import os"); err != nil {
			t.Error(err)
		}
	})
}

// scripted is a sandbox whose programs are all one script.
type scripted struct {
	driver.Sandbox
	script string
}

func (s scripted) Unwrap() any { return s.Sandbox }

func (s scripted) Start(ctx context.Context, c sandbar.Cmd, std driver.Stdio) (driver.Process, error) {
	return s.Sandbox.Start(ctx, sandbar.Cmd{Args: []string{c.Args[0], "-c", s.script}}, std)
}
