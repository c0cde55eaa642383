package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// asked is a run of the built command.
type asked struct {
	env   []string
	args  []string
	stdin string
}

// answered is its result.
type answered struct {
	code           int
	stdout, stderr string
}

// run runs the command with an empty configuration, independent of this machine's.
func (a asked) run(t *testing.T) answered {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, testenv.Build(t, "cmd/sandbar"), a.args...)
	cmd.Env = append(append(environ(), "SANDBAR_CONFIG="+config, "SANDBAR_RUNTIME_DIR="+filepath.Join(dir, "run"),
		"SANDBAR_STATE_DIR="+filepath.Join(dir, "state"), "SANDBAR_ALLOW_DEGRADED=true"), a.env...)
	cmd.Stdin = strings.NewReader(a.stdin)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || !exit.Exited()) {
		t.Fatalf("%v: %v; it said:\n%s", a.args, err, errs.String())
	}
	return answered{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// One environment variable selects the driver; nothing else of "sandbar eval" depends on it.
func TestEvalOver(t *testing.T) {
	places := append(boundaries(),
		boundary{"native", []testenv.Requirement{testenv.UserNS, testenv.Python}, nil, func(*testing.T) []string { return nil }},
		boundary{"local", []testenv.Requirement{testenv.Python}, nil, func(*testing.T) []string { return nil }},
		boundary{"auto", []testenv.Requirement{testenv.UserNS, testenv.Python}, nil, func(*testing.T) []string { return nil }})
	for _, b := range places {
		t.Run(b.name, func(t *testing.T) {
			testenv.Need(t, b.needs...)
			env := b.environ(t)
			limit := "10" // seconds in which Python starts
			if b.name == "vm" {
				limit = "20"
			}
			for _, c := range []struct {
				name   string
				ask    asked
				code   int
				stdout string
				stderr string // a part of it
			}{
				{"output", asked{args: []string{"-c", "print(1)"}}, 0, "1\n", ""},
				{"exit code", asked{args: []string{"-c", "import sys\nprint('out')\nprint('err', file=sys.stderr)\nsys.exit(7)"}}, 7, "out\n", "err\n"},
				{"timeout", asked{env: []string{"SANDBOX_TIMEOUT_SEC=" + limit}, args: []string{"-c", "print('half', flush=True)\nwhile True: pass"}}, 124, "half\n", "killed: timeout (limit " + limit + "s)"},
				{"truncation", asked{env: []string{"SANDBOX_MAX_OUTPUT_KB=1"}, args: []string{"-c", "print('x' * 3000)"}}, 0, strings.Repeat("x", 1024), "stdout was truncated after 1KiB"},
				{"environment", asked{args: []string{"-e", "A=b=c d", "-c", "import os\nprint(os.environ['A'], 'SANDBOX_TYPE' in os.environ)"}}, 0, "b=c d False\n", ""},
				{"input", asked{args: []string{"-c", "import sys\nprint(sys.stdin.read().upper())"}, stdin: "in\nput"}, 0, "IN\nPUT\n", ""},
			} {
				t.Run(c.name, func(t *testing.T) {
					c.ask.env = append(c.ask.env, env...)
					c.ask.args = append([]string{"eval", "python"}, c.ask.args...)
					got := c.ask.run(t)
					if got.code != c.code || got.stdout != c.stdout || !strings.Contains(got.stderr, c.stderr) {
						t.Errorf("exit code %d, stdout %q, stderr %q; want %d, %q and %q", got.code, got.stdout, got.stderr, c.code, c.stdout, c.stderr)
					}
				})
			}
		})
	}
}

// With an unknown or unavailable driver the command fails with a hint, and the code does not run.
func TestEvalNowhere(t *testing.T) {
	testenv.Need(t, testenv.Linux)
	gvisor, oci := "/none/runsc", "/none/runc"
	if !testenv.Root.Met() { // the missing root is reported first
		gvisor, oci = "gvisor needs root", "oci needs root"
	}
	for name, c := range map[string]struct {
		env  []string
		code int
		says string
	}{
		"unknown":    {[]string{"SANDBOX_TYPE=dokcer"}, 2, "docker"},
		"no engine":  {[]string{"SANDBOX_TYPE=docker", "DOCKER_HOST=unix:///none/docker.sock"}, 125, "systemctl start docker"},
		"no gVisor":  {[]string{"SANDBOX_TYPE=gvisor", "SANDBAR_DRIVERS={gvisor: {runtime: /none/runsc}}"}, 125, gvisor},
		"no runtime": {[]string{"SANDBOX_TYPE=oci", "SANDBAR_DRIVERS={oci: {runtime: /none/runc}}"}, 125, oci},
		"e2b":        {[]string{"SANDBOX_TYPE=e2b", "E2B_API_KEY="}, 125, "set E2B_API_KEY"},
		"no cluster": {[]string{"SANDBOX_TYPE=kubernetes", "KUBECONFIG=/none/kubeconfig", "SANDBAR_DRIVERS={kubernetes: {agent_image: i}}"}, 125, "KUBECONFIG"},
	} {
		t.Run(name, func(t *testing.T) {
			ran := filepath.Join(t.TempDir(), "ran")
			got := asked{env: c.env, args: []string{"eval", "shell", "-c", "echo ran | tee " + ran}}.run(t)
			if got.code != c.code || got.stdout != "" || !strings.Contains(got.stderr, c.says) {
				t.Errorf("exit code %d, stdout %q, stderr %q; want %d and %q", got.code, got.stdout, got.stderr, c.code, c.says)
			}
			if _, err := os.Lstat(ran); err == nil {
				t.Error("the code has run all the same")
			}
		})
	}
}

// A missing module of warm_imports is reported once, and the Python template works without it.
func TestMissingWarmImport(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.Python)
	d := newDaemon(t, t.TempDir(), "SANDBAR_TEMPLATES=[{language: python, warm_imports: [no_such_module], min: 1}]")
	waitUntil(t, "the template is prepared", func() []string {
		if strings.Contains(d.said(), "template prepared") {
			return nil
		}
		return []string{d.said()}
	})
	d.works(t)
	if n := strings.Count(d.said(), "no_such_module"); n != 1 {
		t.Errorf("the module is named %d times, want once:\n%s", n, d.said())
	}
	d.ends(t)
}
