package sandbox_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/dockerd"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/e2bservice"
	"github.com/sandbar-dev/sandbar/sandbox"
)

// shared is the Docker daemon of these tests, started on first use.
var shared dockerd.Shared

// services is the E2B service of these tests, started on first use.
var services e2bservice.Shared

// Drivers start the test binary as their helper processes.
func TestMain(m *testing.M) {
	sandbox.Self()
	code := m.Run()
	if err := shared.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "the engine could not be stopped:", err)
		code = 1
	}
	if err := services.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "the E2B service could not be stopped:", err)
		code = 1
	}
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// backend is a driver and its requirements on the host.
type backend struct {
	name  string
	needs []testenv.Requirement
	vars  func(testing.TB) []string // further variables; nil for none
}

// backends are the drivers that behave identically.
func backends() []backend {
	return []backend{
		{"native", []testenv.Requirement{testenv.Linux, testenv.UserNS, testenv.Python}, nil},
		{"local", []testenv.Requirement{testenv.Linux, testenv.Python}, nil},
		{"wasm", []testenv.Requirement{testenv.Linux, testenv.WasmModules}, nil},
		{"docker", []testenv.Requirement{testenv.Linux, testenv.Docker, testenv.DebianImage}, func(t testing.TB) []string {
			return []string{"SANDBAR_DRIVERS={docker: {host: " + shared.Engine(t).Host() + "}}", "DOCKER_IMAGE=" + dockerd.Image}
		}},
		{"e2b", append(e2bservice.Needs(), testenv.Python), func(t testing.TB) []string { return services.Service(t).Environ() }},
		{"oci", []testenv.Requirement{testenv.Linux, testenv.UserNS, testenv.Python, testenv.Runc}, func(testing.TB) []string {
			return []string{"SANDBAR_DRIVERS={oci: {runtime: runc}}"}
		}},
		{"gvisor", []testenv.Requirement{testenv.Linux, testenv.UserNS, testenv.Python, testenv.Runsc}, func(testing.TB) []string {
			return []string{"SANDBAR_DRIVERS={gvisor: {runtime: " + testenv.RunscProgram() + "}}"}
		}},
	}
}

// environ selects the driver.
func (b backend) environ(t testing.TB, more ...string) []string {
	t.Helper()
	vars := append([]string{"SANDBOX_TYPE=" + b.name}, more...)
	if b.vars != nil {
		vars = append(vars, b.vars(t)...)
	}
	return vars
}

// environ is a complete environment for settings, independent of this machine's configuration.
func environ(t testing.TB, more ...string) []string {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	kept, err := testenv.Kept("wasm")
	if err != nil {
		t.Fatal(err)
	}
	modules, err := filepath.Abs("../internal/wasm/artefact")
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{"HOME=" + dir, "SANDBAR_CONFIG=" + config, "SANDBAR_RUNTIME_DIR=" + filepath.Join(dir, "run"),
		"SANDBAR_STATE_DIR=" + filepath.Join(dir, "state"), "SANDBAR_CODE_ARTIFACTS=" + filepath.Join(dir, "artifacts"),
		"SANDBAR_DRIVERS={wasm: {modules: " + modules + ", cache: " + kept + "}}"}, more...)
}

// open makes a Sandbox that is closed at the test's end.
func open(t testing.TB, vars ...string) *sandbox.Sandbox {
	t.Helper()
	program, err := os.ReadFile(testenv.Build(t, "cmd/sandbar-agent"))
	if err != nil {
		t.Fatal(err)
	}
	box, err := sandbox.Open(sandbox.Options{Agent: sandbox.AgentProgram(program), Environ: environ(t, vars...)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	})
	return box
}

// want is the expected result, the same with all drivers.
type want struct {
	stdout, stderr string // stderr: a part of it
	exitCode       int
	truncated      bool
	timedOut       bool
	outcome        string
	answer         string // a part of Compact; "": not compared
}

// The result of a program for another architecture gives the reason of its end, if a system-call
// filter ended it.
func TestForeignArchitecture(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Log("there is no program of another architecture that this processor executes")
		return
	}
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.Python)
	box := open(t, "SANDBOX_TYPE=native")
	// A 32-bit ELF: one segment with exit(0) by int 0x80.
	const code = `import os, struct
text = bytes([0x31, 0xdb, 0x31, 0xc0, 0x40, 0xcd, 0x80])
base, size = 0x8048000, 84 + len(text)
elf = b"\x7fELF\x01\x01\x01" + bytes(9) + struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, base + 84, 52, 0, 0, 52, 32, 1, 0, 0, 0)
elf += struct.pack("<8I", 1, 0, base, base, size, size, 5, 4096) + text
with open("p", "wb") as f: f.write(elf)
os.chmod("p", 0o755)
os.execv("p", ["p"])
`
	r, err := box.Execute(context.Background(), sandbox.Request{Code: code})
	if err != nil {
		t.Fatal(err)
	}
	if r.ExitCode != 128+31 || !strings.Contains(r.Stderr, "Killed by signal 31 (bad system call: the program is built for another architecture, such as 32-bit x86, which sandboxes do not run)") {
		t.Errorf("%+v", r)
	}
}

// What a program sees and its result do not depend on the driver: output, exit codes, time,
// truncation, environment, input and arguments (docs/protocols.md, Execution).
func TestSameEverywhere(t *testing.T) {
	cases := []struct {
		name  string
		in    sandbox.Request
		want  want
		stdin string
	}{
		{"output", sandbox.Request{Code: "print('Hello')"}, want{stdout: "Hello\n", outcome: "exited", answer: "Hello\n"}, ""},
		{"nothing", sandbox.Request{Code: ""}, want{outcome: "exited", answer: "(no output)"}, ""},
		{"both streams", sandbox.Request{Code: "import sys\nprint('out')\nprint('err', file=sys.stderr)"}, want{stdout: "out\n", stderr: "err\n", outcome: "exited", answer: "out\n"}, ""},
		{"no newline", sandbox.Request{Code: "print('x', end='')"}, want{stdout: "x", outcome: "exited"}, ""},
		{"text", sandbox.Request{Code: "print('né €')"}, want{stdout: "né €\n", outcome: "exited"}, ""},
		{"bytes", sandbox.Request{Code: "import sys\nsys.stdout.buffer.write(b'a\\xff\\xfeb')"}, want{stdout: "a\ufffd\ufffdb", outcome: "exited"}, ""},
		{"exit code", sandbox.Request{Code: "import sys\nprint('half')\nsys.exit(3)"}, want{stdout: "half\n", exitCode: 3, outcome: "exited", answer: "Error (exit_code=3):\nstdout:\nhalf"}, ""},
		{"exit code, the greatest", sandbox.Request{Code: "import sys\nsys.exit(255)"}, want{exitCode: 255, outcome: "exited"}, ""},
		{"exception", sandbox.Request{Code: "raise ValueError('went wrong')"}, want{stderr: "ValueError: went wrong", exitCode: 1, outcome: "exited", answer: "Error (exit_code=1): Traceback"}, ""},
		{"syntax", sandbox.Request{Code: "print("}, want{stderr: "SyntaxError", exitCode: 1, outcome: "exited"}, ""},
		{"timeout", sandbox.Request{Code: "print('half', flush=True)\nimport time; time.sleep(600)", Timeout: 8 * time.Second},
			want{stdout: "half\n", stderr: "Execution timed out after 8s\n", exitCode: -1, timedOut: true, outcome: "timeout", answer: "Error (exit_code=-1): Execution timed out after 8s\nstdout:\nhalf"}, ""},
		{"truncation", sandbox.Request{Code: "import sys\nsys.stdout.write('x' * 3000)\nsys.stderr.write('y' * 10)\nsys.exit(4)"},
			want{stdout: strings.Repeat("x", 2048) + "\n... (output truncated)\n", stderr: "yyyyyyyyyy", exitCode: 4, truncated: true, outcome: "exited"}, ""},
		{"truncation of stderr", sandbox.Request{Code: "import sys\nsys.stderr.write('y' * 3000)"},
			want{stderr: "yy\n... (output truncated)\n", truncated: true, outcome: "exited", answer: "(no output)"}, ""},
		{"truncation within a character", sandbox.Request{Code: "print('x' + '€' * 1000)"}, want{stdout: "x" + strings.Repeat("€", 682) + "\n... (output truncated)\n", truncated: true, outcome: "exited"}, ""},
		{"environment", sandbox.Request{Code: "import os\nprint(os.environ['A'], os.environ.get('SANDBAR_CONFIG'), os.environ.get('SANDBOX_TYPE'))", Env: map[string]string{"A": "b=c d"}}, want{stdout: "b=c d None None\n", outcome: "exited"}, ""},
		{"input", sandbox.Request{Code: "import sys\nprint(sys.stdin.read().upper())"}, want{stdout: "LINE 1\nLINE 2\n", outcome: "exited"}, "line 1\nline 2"},
		{"no input", sandbox.Request{Code: "import sys\nprint(repr(sys.stdin.read()))"}, want{stdout: "''\n", outcome: "exited"}, ""},
		{"arguments", sandbox.Request{Code: "import sys\nprint(sys.argv[1:])", Args: []string{"a", "b c", ""}}, want{stdout: "['a', 'b c', '']\n", outcome: "exited"}, ""},
		{"a directory of its own", sandbox.Request{Code: "open('test.txt', 'w').write('data')\nprint(open('test.txt').read())"}, want{stdout: "data\n", outcome: "exited"}, ""},
		{"nothing of the one before", sandbox.Request{Code: "import os\nprint(os.path.exists('test.txt'))"}, want{stdout: "False\n", outcome: "exited"}, ""},
		{"shell", sandbox.Request{Language: "shell", Code: "echo \"$1-$A\"; cat; echo err >&2; exit 5", Args: []string{"one"}, Env: map[string]string{"A": "b"}},
			want{stdout: "one-b\nin\n", stderr: "err\n", exitCode: 5, outcome: "exited"}, "in\n"},
	}
	for _, b := range backends() {
		t.Run(b.name, func(t *testing.T) {
			testenv.Need(t, b.needs...)
			box := open(t, b.environ(t, "SANDBOX_MAX_OUTPUT_KB=2")...)
			for _, c := range cases {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					in := c.in
					if c.stdin != "" {
						in.Stdin = strings.NewReader(c.stdin)
					}
					got, err := box.Execute(t.Context(), in)
					if err != nil {
						t.Fatal(err)
					}
					c.want.check(t, got)
					if got.Meta.Runtime != b.name || got.Meta.Boundary != box.Driver().Boundary {
						t.Errorf("meta tells of %s, %s", got.Meta.Runtime, got.Meta.Boundary)
					}
				})
			}
		})
	}
}

func (w want) check(t *testing.T, r sandbox.Result) {
	t.Helper()
	if r.Stdout != w.stdout || !strings.Contains(r.Stderr, w.stderr) || w.stderr == "" && r.Stderr != "" {
		t.Errorf("stdout %q, stderr %q; want %q and %q", r.Stdout, r.Stderr, w.stdout, w.stderr)
	}
	if r.ExitCode != w.exitCode || r.Truncated != w.truncated || r.TimedOut != w.timedOut || r.Meta.Outcome != w.outcome {
		t.Errorf("exit code %d, truncated %v, timed out %v, %s; want %+v", r.ExitCode, r.Truncated, r.TimedOut, r.Meta.Outcome, w)
	}
	if r.Meta.Truncated != r.Truncated || r.Meta.TimedOut != r.TimedOut || r.Duration <= 0 {
		t.Errorf("%+v after %v", r.Meta, r.Duration)
	}
	if !strings.Contains(r.Compact(), w.answer) {
		t.Errorf("the answer is %q, want %q in it", r.Compact(), w.answer)
	}
}

// Blocked imports are found with every driver before the code runs.
func TestBlockedEverywhere(t *testing.T) {
	for _, b := range backends() {
		t.Run(b.name, func(t *testing.T) {
			testenv.Need(t, b.needs...)
			box := open(t, b.environ(t, "SANDBOX_BLOCK_DANGEROUS_IMPORTS=true")...)
			got, err := box.Execute(t.Context(), sandbox.Request{Code: "print('ran')\nimport subprocess, json, os.path"})
			if err != nil {
				t.Fatal(err)
			}
			if strings.Join(got.Meta.BlockedImports, " ") != "subprocess os" || got.Stdout != "" || got.ExitCode != sandbox.ExitBlocked || got.Meta.Outcome != "blocked" {
				t.Errorf("%+v", got)
			}
			got, err = box.Execute(t.Context(), sandbox.Request{Code: "import json\nprint(json.dumps('os'))"})
			if err != nil || got.Stdout != "\"os\"\n" {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// A driver that is named and not available is an error that says so. The code does not run
// elsewhere.
func TestNeverElsewhere(t *testing.T) {
	testenv.Need(t, testenv.Linux)
	// An ordinary user first gets the error that container runtimes need root.
	asRoot := func(says string) string {
		if testenv.Root.Met() {
			return says
		}
		return "needs root"
	}
	for name, c := range map[string]struct {
		vars []string
		code sandbar.Code
		says string
	}{
		"unknown":    {[]string{"SANDBOX_TYPE=bwrap"}, sandbar.Invalid, "bwrap"},
		"e2b":        {[]string{"SANDBOX_TYPE=e2b"}, sandbar.Unsupported, "set E2B_API_KEY"},
		"no cluster": {[]string{"SANDBOX_TYPE=kubernetes", "SANDBAR_DRIVERS={kubernetes: {agent_image: i, kubeconfig: /none/kubeconfig}}"}, sandbar.Unsupported, "/none/kubeconfig"},
		"two names":  {[]string{"SANDBOX_TYPE=local", "SANDBAR_DRIVER=native"}, sandbar.Invalid, "both set"},
		"no runsc":   {[]string{"SANDBOX_TYPE=gvisor", "SANDBAR_DRIVERS={gvisor: {runtime: /none/runsc}}"}, sandbar.Unsupported, asRoot("not on this host")},
		"not gvisor": {[]string{"SANDBOX_TYPE=gvisor", "SANDBAR_DRIVERS={gvisor: {runtime: /bin/true}}"}, sandbar.Unsupported, asRoot("is not supported by this driver")},
		"no modules": {[]string{"SANDBOX_TYPE=wasm", "SANDBAR_DRIVERS={wasm: {modules: /none}}"}, sandbar.Unsupported, "WebAssembly"},
		"no engine":  {[]string{"SANDBOX_TYPE=docker", "SANDBAR_DRIVERS={docker: {host: \"unix:///none/docker.sock\"}}"}, sandbar.Unsupported, "/none/docker.sock"},
		"no runtime": {[]string{"SANDBOX_TYPE=oci", "SANDBAR_DRIVERS={oci: {runtime: /none/runc}}"}, sandbar.Unsupported, asRoot("/none/runc")},
		"allowed":    {[]string{"SANDBOX_TYPE=local", "SANDBAR_ALLOWED_DRIVERS=wasm", "SANDBAR_DRIVERS={wasm: {modules: /none}}"}, sandbar.Unsupported, "WebAssembly"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := sandbox.Execute(t.Context(), sandbox.Options{Agent: sandbox.Self(), Environ: environ(t, c.vars...)},
				sandbox.Request{Language: "shell", Code: "echo ran > " + filepath.Join(t.TempDir(), "ran")})
			if sandbar.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v; want %s, with %q", err, c.code, c.says)
			}
		})
	}
}

// A request can name an allowed driver. Any other name is an error.
func TestDriverOfARequest(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS)
	box := open(t, "SANDBOX_TYPE=native", "SANDBAR_ALLOWED_DRIVERS=local")
	for ask, runs := range map[string]string{"": "native", "native": "native", "local": "local"} {
		got, err := box.Execute(t.Context(), sandbox.Request{Driver: ask, Language: "shell", Code: "echo hi"})
		if err != nil || got.Meta.Runtime != runs || got.Stdout != "hi\n" {
			t.Errorf("%q: %+v, %v", ask, got, err)
		}
	}
	_, err := box.Execute(t.Context(), sandbox.Request{Driver: "docker", Language: "shell", Code: "echo hi"})
	if e := sandbar.AsError(err); e == nil || e.Code != sandbar.Unsupported || e.Field != "driver" {
		t.Error(err)
	}
}

// A caller that cancels ends its program, and gets the outcome "cancelled".
func TestCancelled(t *testing.T) {
	testenv.Need(t, testenv.Linux)
	box := open(t, "SANDBOX_TYPE=local")
	ctx, cancel := context.WithCancel(t.Context())
	runs := filepath.Join(t.TempDir(), "runs")
	go func() {
		for _, err := os.Stat(runs); err != nil && t.Context().Err() == nil; _, err = os.Stat(runs) {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	got, err := box.Execute(ctx, sandbox.Request{Language: "shell", Code: "echo >" + runs + "; sleep 600"})
	if err != nil || got.Meta.Outcome != "cancelled" || got.ExitCode != sandbox.ExitNone {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := box.Execute(ctx, sandbox.Request{Code: ""}); sandbar.CodeOf(err) != sandbar.Canceled {
		t.Error(err)
	}
}
