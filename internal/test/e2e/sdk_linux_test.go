package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// plotting are the packages of the programs in examples/sdk inside the sandbox.
const plotting = "numpy pandas python-dateutil tzdata matplotlib contourpy cycler fonttools kiwisolver packaging pillow pyparsing six"

// The tools of examples/adapters work with the libraries that they are for, which call them as they
// do for a model.
func TestAdapters(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.UserNS, testenv.Python, testenv.PyWheels, testenv.NpmTypeScript, testenv.PyAgents, testenv.NpmAgents)
	dir := t.TempDir()
	buildSDKs(t, dir)
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	adapters := filepath.Join(root, "examples", "adapters")
	for _, name := range []string{"ai", "zod"} {
		if err := os.Symlink(filepath.Join(testenv.NpmAgentsModules(), name), filepath.Join(dir, "node_modules", name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range glob(t, filepath.Join(adapters, "*.mjs")) {
		b, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(name)), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	d := newDaemon(t, t.TempDir())
	for _, args := range [][]string{
		{"/usr/bin/python3", "adapters.py", "langchain"}, {"/usr/bin/python3", "adapters.py", "smolagents"},
		{"/usr/bin/python3", "adapters.py", "functions"}, {"/usr/bin/node", "adapters.mjs"},
	} {
		t.Run(args[len(args)-1], func(t *testing.T) {
			cmd := exec.CommandContext(within(t, 5*time.Minute), args[0], args[1:]...)
			cmd.Dir = dir
			cmd.Env = append(environ(), "SANDBAR_URL=http://"+d.addr, "SANDBAR_TOKEN="+token, "HOME="+dir, "ADAPTERS="+adapters, "WHEELS="+testenv.WheelsDir(),
				"PYTHONPATH="+filepath.Join(dir, "py")+":"+testenv.PyAgentsPath(), "PYTHONDONTWRITEBYTECODE=1", "NO_PROXY=*", "LANGSMITH_TRACING=false")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	d.endClean(t)
}

// The programs of examples/sdk have at most 8 lines and work without a daemon, with a wheel that
// has the command.
func TestSDKExamples(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.Root, testenv.UserNS, testenv.PyWheels, testenv.NpmTypeScript)
	dir := t.TempDir()
	buildSDKs(t, dir)
	sandbar := testenv.Build(t, "cmd/sandbar")
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	python := filepath.Join(dir, "with-command")
	for _, args := range [][]string{
		{"/usr/bin/python3", filepath.Join(root, "sdk", "python", "build.py"), "v1.0.1", dir, runtime.GOARCH, sandbar},
		{"/usr/bin/python3", glob(t, filepath.Join(testenv.WheelsDir(), "pip-*.whl"))[0] + "/pip", "install", "--quiet", "--no-index", "--no-compile",
			"--root-user-action", "ignore", "--find-links", testenv.WheelsDir(), "--find-links", dir, "--target", python, "sandbar"},
	} {
		if out, err := exec.CommandContext(within(t, 5*time.Minute), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	for name, program := range map[string]string{"first.py": "/usr/bin/python3", "first.mjs": "/usr/bin/node"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(root, "examples", "sdk", name))
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(text, []byte("\n")); n > 8 {
				t.Errorf("the program has %d lines", n)
			}
			file := filepath.Join(dir, name)
			if err := os.WriteFile(file, text, 0o644); err != nil {
				t.Fatal(err)
			}
			overlay := t.TempDir()
			cmd := exec.CommandContext(within(t, 5*time.Minute), "unshare", "--mount", "--propagation", "private", "sh", "-c", installThere, "sh",
				testenv.WheelsDir(), overlay, plotting, program, file)
			cmd.Dir = dir
			cmd.Env = append(environ(), "PYTHONPATH="+python, "PYTHONDONTWRITEBYTECODE=1", "NO_PROXY=*")
			if name == "first.mjs" {
				cmd.Env = append(cmd.Env, "SANDBAR_BIN="+sandbar)
			}
			var said bytes.Buffer
			cmd.Stderr = &said
			out, err := cmd.Output()
			if err != nil || !regexp.MustCompile(`^(\d{4,} )?24\nhttp://8000-\S+\n$`).Match(out) {
				t.Errorf("%v: %s%s", err, out, &said)
			}
			if name == "first.py" {
				png, err := os.ReadFile(filepath.Join(dir, "chart.png"))
				if err != nil || !bytes.HasPrefix(png, []byte("\x89PNG")) {
					t.Errorf("chart.png: %.20q, %v", png, err)
				}
			}
		})
	}
}
