package e2e

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// E2B's SDKs from npm work with a daemon: every public method that docs/e2b.md lists as served.
func TestE2BNpm(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.Linux, testenv.UserNS, testenv.Freezer, testenv.NpmE2B, testenv.Python, testenv.Git)
	runE2B(t, 31, "NODE_PATH="+testenv.NpmE2BModules(), "/usr/bin/node", "client.mjs")
}

// So do those from PyPI, with both of their clients.
func TestE2BPython(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.Linux, testenv.UserNS, testenv.Freezer, testenv.PyE2B)
	for _, mode := range []string{"sync", "async"} {
		t.Run(mode, func(t *testing.T) {
			runE2B(t, 10, "PYTHONPATH="+testenv.PyE2BPath(), "/usr/bin/python3", "client.py", mode)
		})
	}
}

// Templates are built by the SDKs without a Docker daemon, and sandboxes are made of them.
func TestE2BTemplates(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.Linux, testenv.UserNS, testenv.Freezer, testenv.NpmE2B, testenv.PyE2B, testenv.Python)
	t.Run("npm", func(t *testing.T) {
		runE2B(t, 7, "NODE_PATH="+testenv.NpmE2BModules(), "/usr/bin/node", "template.mjs")
	})
	for _, mode := range []string{"sync", "async"} {
		t.Run(mode, func(t *testing.T) {
			runE2B(t, 3, "PYTHONPATH="+testenv.PyE2BPath(), "/usr/bin/python3", "template.py", mode)
		})
	}
}

// runE2B runs a test program of testdata/e2b against a daemon. All its checks must hold, and
// nothing of the daemon may be left.
func runE2B(t *testing.T, checks int, env, program string, args ...string) {
	t.Helper()
	d := newDaemon(t, t.TempDir(), "SANDBAR_E2B=true")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // of checks in emulated machines
	defer cancel()
	args[0] = filepath.Join("testdata", "e2b", args[0])
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(environ(), env, "E2B_API_URL=http://"+d.addr, "E2B_SANDBOX_URL=http://"+d.addr, "E2B_API_KEY="+token,
		"PYTHONDONTWRITEBYTECODE=1", "NO_PROXY=*")
	if testenv.Freezer.Err() == nil {
		cmd.Env = append(cmd.Env, "E2B_TEST_GROUPS=1") // the driver can measure and save sandboxes
	}
	out, err := cmd.CombinedOutput()
	if n := bytes.Count(out, []byte("ok ")) - bytes.Count(out, []byte("not ok ")); err != nil || n != checks {
		t.Errorf("%v; %d checks held, want %d:\n%s", err, n, checks, out)
	}
	if err := d.stop(); err != nil {
		t.Errorf("the daemon ended with %v; it said:\n%s", err, d.said())
	}
	if left := leftovers(t, d); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
