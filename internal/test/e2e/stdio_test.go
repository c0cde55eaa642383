package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// stdioSandbox is the command under the name that the protocol specifies.
type stdioSandbox struct {
	path    string
	config  string
	modules string // a unique text in the arguments of each of its processes
}

func newStdioSandbox(t *testing.T) *stdioSandbox {
	t.Helper()
	testenv.Need(t, testenv.Once, testenv.Linux, testenv.WasmModules)
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := &stdioSandbox{path: filepath.Join(dir, "wasm-sandbox"), config: filepath.Join(dir, "config.yaml"), modules: filepath.Join(dir, "modules")}
	for name, target := range map[string]string{s.path: testenv.Build(t, "cmd/sandbar"), s.modules: filepath.Join(root, "internal", "wasm", "artefact")} {
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
	cache, err := testenv.Kept("wasm")
	if err != nil {
		t.Fatal(err)
	}
	s.configure(t, cache)
	if out, err := s.prepare(t); err != nil {
		t.Fatalf("prepare: %v: %s", err, out)
	}
	return s
}

// prepare compiles the interpreters ahead of time. The first caller sees the progress message.
func (s *stdioSandbox) prepare(t *testing.T) (said string, err error) {
	cmd := exec.CommandContext(t.Context(), testenv.Build(t, "cmd/sandbar"), append([]string{"prepare"}, s.args()...)...)
	cmd.Env = environ()
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (s *stdioSandbox) configure(t *testing.T, cache string) {
	t.Helper()
	text := fmt.Sprintf("drivers:\n  wasm:\n    modules: %s\n    cache: %s\n", s.modules, cache)
	if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (s *stdioSandbox) args(more ...string) []string {
	return append([]string{"--config", s.config}, more...)
}

// run runs the command with an input and returns its outputs and exit code.
func (s *stdioSandbox) run(t *testing.T, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.path, args...)
	cmd.Env = environ()
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// The first compilation of the interpreters prints one progress message. Later sandboxes, and
// "sandbar prepare", reuse the result.
func TestFirstCompilationIsTold(t *testing.T) {
	s := newStdioSandbox(t)
	s.configure(t, filepath.Join(t.TempDir(), "cache"))
	const request = `{"type":"shell","command":"echo hi","id":"1"}` + "\n"
	out, errs, code := s.run(t, request, s.args()...)
	if code != 0 || !strings.Contains(out, `"stdout":"hi\n"`) || errs != "sandbar: compiling the WebAssembly interpreters for this machine, once; this takes up to a minute\n" {
		t.Errorf("the first: exit code %d, %s, %q", code, out, errs)
	}
	if out, errs, code := s.run(t, request, s.args()...); code != 0 || !strings.Contains(out, `"stdout":"hi\n"`) || errs != "" {
		t.Errorf("the second: exit code %d, %s, %q", code, out, errs)
	}
	if said, err := s.prepare(t); err != nil || said != "the driver wasm is ready\n" {
		t.Errorf("prepare: %v, %q", err, said)
	}
}

// The example session of the specification runs unchanged.
func TestStdioExample(t *testing.T) {
	s := newStdioSandbox(t)
	out, errs, code := s.run(t, `{"type":"shell","command":"echo 'Hello'","id":"1","time_limit_ms":1000}
{"type":"write_file","path":"/tmp/test","content":"data","id":"2"}
{"type":"shell","command":"cat /tmp/test","id":"3","time_limit_ms":1000}
{"type":"reset","id":"4"}
`, s.args("--memory-limit", "128")...)
	want := `{"type":"shell","id":"1","stdout":"Hello\n","stderr":"","exit_code":0,"timed_out":false}
{"type":"write_file","id":"2","success":true,"error":null}
{"type":"shell","id":"3","stdout":"data","stderr":"","exit_code":0,"timed_out":false}
{"type":"reset","id":"4","success":true}
`
	if out != want || errs != "" || code != 0 {
		t.Errorf("exit code %d, stderr %q, stdout\n%s\nwant\n%s", code, errs, out, want)
	}
}

// Callers in Python and Node.js, each with a thousand requests of all kinds.
func TestStdioCallers(t *testing.T) {
	s := newStdioSandbox(t)
	const requests = "1000"
	for _, caller := range []struct {
		need    testenv.Requirement
		program string
		script  string
	}{{testenv.Python, "/usr/bin/python3", "caller.py"}, {testenv.Node, "/usr/bin/node", "caller.js"}} {
		t.Run(caller.script, func(t *testing.T) {
			testenv.Need(t, caller.need)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			args := append([]string{filepath.Join("testdata", "stdio", caller.script), requests, s.path}, s.args()...)
			cmd := exec.CommandContext(ctx, caller.program, args...)
			cmd.Env = environ()
			out, err := cmd.CombinedOutput()
			if err != nil || string(out) != "answered "+requests+"\n" {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// A mistake on the command line gives exit code 2 and a message.
func TestStdioUsage(t *testing.T) {
	s := newStdioSandbox(t)
	for _, tc := range []struct {
		args []string
		text string // on stderr
	}{
		{[]string{"--mode", "v86"}, "--mode v86 needs --disk-image"},
		{[]string{"--mode", "hard"}, `unknown mode "hard"`},
		{[]string{"--memory-limit", "0"}, "4 to 4096 MB"},
		{[]string{"--memory-limit", "9999999"}, "4 to 4096 MB"},
		{[]string{"--memory-limit", "lots"}, "lots"},
		{[]string{"--disk-image", "x.img"}, "--disk-image is for --mode v86"},
		{[]string{"--nope"}, "nope"},
		{[]string{"argument"}, "takes no arguments"},
		{[]string{"--driver", "nope"}, "nope"},
	} {
		out, errs, code := s.run(t, "", s.args(tc.args...)...)
		if code != 2 || out != "" || !strings.Contains(errs, tc.text) {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q", tc.args, code, out, errs)
		}
	}
	s.configure(t, "/proc/no-such-place")
	if out, errs, code := s.run(t, "", s.args()...); code != 2 || out != "" || !strings.Contains(errs, "directory for compiled modules") || strings.Count(errs, "\n") != 1 {
		t.Errorf("a cache that cannot be written: exit code %d, stdout %q, stderr %q", code, out, errs)
	}
	for flag, text := range map[string]string{"--help": "--memory-limit MB", "--version": "wasm-sandbox "} {
		if out, errs, code := s.run(t, "", flag); code != 0 || !strings.Contains(out, text) || errs != "" {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", flag, code, out, errs)
		}
	}
}

// processes returns the processes that have a text in their arguments.
func processes(t *testing.T, text string) (found []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		if b, err := os.ReadFile(name); err == nil && bytes.Contains(b, []byte(text)) {
			found = append(found, strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return found
}

// A command that is killed with SIGKILL while programs run leaves nothing, and so does one whose
// caller has closed its input.
func TestStdioKilled(t *testing.T) {
	s := newStdioSandbox(t)
	for _, end := range []string{"killed", "abandoned"} {
		t.Run(end, func(t *testing.T) {
			cmd := exec.Command(s.path, s.args()...)
			cmd.Env = environ()
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Process.Kill()
			io.WriteString(in, `{"type":"shell","command":"python3 -c '1' && node -e '1' && echo ready","id":"1","time_limit_ms":60000}`+"\n")
			var r map[string]any
			if err := json.NewDecoder(out).Decode(&r); err != nil || r["stdout"] != "ready\n" {
				t.Fatalf("%v, %v", r, err)
			}
			io.WriteString(in, `{"type":"shell","command":"yes | python3 -c 'while True: pass' | node -e 'for(;;);'","id":"2","time_limit_ms":3000}`+"\n")
			waitUntil(t, "programs run", func() []string {
				if n := len(processes(t, s.modules)); n < 3 {
					return []string{fmt.Sprintf("%d processes", n)}
				}
				return nil
			})
			if end == "killed" {
				cmd.Process.Kill()
				cmd.Wait()
			} else {
				out.Close()
				in.Close()
			}
			waitUntil(t, "nothing is left", func() []string { return processes(t, s.modules) })
			if end == "abandoned" {
				cmd.Wait()
			}
		})
	}
}

// newMachineSandbox returns the command in the mode v86, with a booted machine.
func newMachineSandbox(t *testing.T) *stdioSandbox {
	t.Helper()
	testenv.Need(t, testenv.Once, testenv.Linux, testenv.V86)
	cache, err := testenv.V86Cache()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := &stdioSandbox{path: filepath.Join(dir, "wasm-sandbox"), config: filepath.Join(dir, "config.yaml"), modules: testenv.V86Modules()}
	if err := os.Symlink(testenv.Build(t, "cmd/sandbar"), s.path); err != nil {
		t.Fatal(err)
	}
	s.configureMachine(t, cache)
	return s
}

func (s *stdioSandbox) configureMachine(t *testing.T, cache string) {
	t.Helper()
	text := fmt.Sprintf("drivers:\n  v86:\n    modules: %s\n    cache: %s\n", s.modules, cache)
	if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The example session in the mode v86. Boot messages are not part of the responses.
func TestStdioMachine(t *testing.T) {
	s := newMachineSandbox(t)
	out, errs, code := s.run(t, `{"type":"shell","command":"uname -m","id":"1","time_limit_ms":600000}
{"type":"write_file","path":"/tmp/test","content":"data","id":"2"}
{"type":"shell","command":"cat /tmp/test","id":"3","time_limit_ms":600000}
{"type":"reset","id":"4"}
{"type":"shell","command":"cat /tmp/test","id":"5","time_limit_ms":600000}
`, s.args("--mode", "v86", "--disk-image", testenv.V86Image())...)
	want := `{"type":"shell","id":"1","stdout":"i686\n","stderr":"","exit_code":0,"timed_out":false}
{"type":"write_file","id":"2","success":true,"error":null}
{"type":"shell","id":"3","stdout":"data","stderr":"","exit_code":0,"timed_out":false}
{"type":"reset","id":"4","success":true}
{"type":"shell","id":"5","stdout":"","stderr":"cat: can't open '/tmp/test': No such file or directory\n","exit_code":1,"timed_out":false}
`
	if out != want || code != 0 {
		t.Errorf("exit code %d, stderr %q, stdout\n%s\nwant\n%s", code, errs, out, want)
	}
}

// If the mode v86 cannot start, the exit code is 2 with one message.
func TestStdioMachineUsage(t *testing.T) {
	s := newMachineSandbox(t)
	image := testenv.V86Image()
	for _, tc := range []struct {
		args []string
		text string // on stderr
	}{
		{nil, "--mode v86 needs --disk-image"},
		{[]string{"--disk-image", ""}, "--mode v86 needs --disk-image"},
		{[]string{"--disk-image", "/no/such/image"}, "no such file"},
		{[]string{"--disk-image", s.config}, "it is of none of the known types"},
		{[]string{"--disk-image", "/dev/null"}, "neither a file nor a directory"},
		{[]string{"--disk-image", t.TempDir()}, "a directory without a kernel"},
		{[]string{"--disk-image", image, "--memory-limit", "8"}, "16 to 2048 MB"},
		{[]string{"--disk-image", image, "--driver", "wasm"}, "--driver is for --mode simple"},
	} {
		out, errs, code := s.run(t, "", s.args(append([]string{"--mode", "v86"}, tc.args...)...)...)
		if code != 2 || out != "" || !strings.Contains(errs, tc.text) {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q", tc.args, code, out, errs)
		}
	}
	s.configureMachine(t, "/proc/no-such-place")
	out, errs, code := s.run(t, "", s.args("--mode", "v86", "--disk-image", image)...)
	if code != 2 || out != "" || !strings.Contains(errs, "directory for snapshots") || strings.Count(errs, "\n") != 1 {
		t.Errorf("a cache that cannot be written: exit code %d, stdout %q, stderr %q", code, out, errs)
	}
}
