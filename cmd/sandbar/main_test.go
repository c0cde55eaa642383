package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sandbar-dev/sandbar/internal/driver/all"
	"github.com/sandbar-dev/sandbar/internal/driver/kubernetes/agentimage"
	"github.com/sandbar-dev/sandbar/internal/image"
	"github.com/sandbar-dev/sandbar/internal/linux/egress/netstack"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// agentVariable names the agent's program for a test binary that is run as
// sandbar. The agent is a program of its own in these tests, as in a release:
// with the race detector, which needs cgo, the test binary cannot be one.
const agentVariable = "TESTENV_AGENT"

// Scripts and tests run the test binary as sandbar. It is also the unpacker of images and the
// process of the TCP/IP stacks.
func TestMain(m *testing.M) {
	netstack.Main()
	image.Main()
	testscript.Main(m, map[string]func(){"sandbar": func() {
		program, err := os.ReadFile(os.Getenv(agentVariable))
		if err != nil {
			panic(err) // an error of the test
		}
		os.Exit(newApp(program, nil).main(os.Args[1:]))
	}})
}

// script runs the scripts of one directory. The configuration of this machine has no effect on
// them.
func script(t *testing.T, dir string) {
	agentProgram := testenv.Build(t, "cmd/sandbar-agent")
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", dir),
		Setup: func(e *testscript.Env) error {
			e.Setenv("SANDBAR_CONFIG", filepath.Join(e.WorkDir, "default.yaml"))
			e.Setenv("SANDBAR_RUNTIME_DIR", filepath.Join(e.WorkDir, ".run"))
			e.Setenv("SANDBAR_STATE_DIR", filepath.Join(e.WorkDir, ".state"))
			e.Setenv(agentVariable, agentProgram)
			e.Setenv("DEBIAN_IMAGE", testenv.DebianArchive())
			return os.WriteFile(filepath.Join(e.WorkDir, "default.yaml"), nil, 0o600)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"code": exitsWith},
	})
}

// exitsWith is the script command "code N PROGRAM ARGUMENT...": run it and expect the exit code N.
func exitsWith(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N PROGRAM ARGUMENT...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func TestCommandLine(t *testing.T) { script(t, "cli") }

func TestNativeCommandLine(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS)
	script(t, "native")
}

// Root only, because root has control groups. Without them the memory watchdog enforces the limit,
// and an allocation may fail before it kills.
func TestOutOfMemory(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.Root)
	script(t, "memory")
}

func TestPython(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.Python)
	script(t, "python")
}

func TestJavaScript(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.Node)
	script(t, "javascript")
}

func TestElixir(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.Elixir)
	script(t, "elixir")
}

func TestLocalCommandLine(t *testing.T) {
	testenv.Need(t, testenv.Linux)
	script(t, "local")
}

// invocation is one run of the command line inside the test's own process.
type invocation struct {
	args     []string
	environ  []string
	stdin    string
	programs agentimage.Programs
}

// run returns the exit code and the output.
func (i invocation) run(t *testing.T) (code int, stdout, stderr string) {
	t.Helper()
	dir := t.TempDir()
	stdin := filepath.Join(dir, "stdin")
	config := filepath.Join(dir, "config.yaml")
	for _, f := range [][2]string{{stdin, i.stdin}, {config, ""}} {
		if err := os.WriteFile(f[0], []byte(f[1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in, err := os.Open(stdin)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var out, errs bytes.Buffer
	a := &app{stdin: in, stdout: &out, stderr: &errs, factories: all.Factories(nil, nil), podPrograms: i.programs,
		environ: append([]string{"HOME=" + dir, "SANDBAR_CONFIG=" + config, "SANDBAR_RUNTIME_DIR=" + filepath.Join(dir, "run"),
			"SANDBAR_STATE_DIR=" + filepath.Join(dir, "state")}, i.environ...)}
	code = a.main(i.args)
	return code, out.String(), errs.String()
}

// A plain "go build" embeds no agent; the command starts itself as the agent.
func TestPlainBuild(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS)
	dir := t.TempDir()
	cmd := exec.Command(testenv.Build(t, "cmd/sandbar"), "eval", "shell", "-c", "echo $((2+2))")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "SANDBAR_RUNTIME_DIR=" + filepath.Join(dir, "run"), "SANDBAR_CONFIG=/dev/null"}
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "4\n" {
		t.Errorf("%v, %q", err, out)
	}
}
