package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// buildSDKs builds the packages and installs them into dir: dir/py for Python, dir/node_modules for
// node, with the test programs beside them.
func buildSDKs(t *testing.T, dir string) {
	t.Helper()
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	do := func(in, name string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(within(t, 10*time.Minute), name, args...)
		cmd.Dir = in
		cmd.Env = append(environ(), "TESTENV_CACHE="+testenv.Cache(), "PYTHONDONTWRITEBYTECODE=1", "HOME="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v: %s", name, args, err, out)
		}
	}
	packages := filepath.Join(dir, "packages")
	do(root, "sh", "scripts/sdk.sh", "v1.0.0", packages)
	wheel := testenv.WheelsDir()
	do(dir, "/usr/bin/python3", glob(t, filepath.Join(wheel, "pip-*.whl"))[0]+"/pip", "install", "--quiet", "--no-index", "--no-compile", "--root-user-action", "ignore",
		"--find-links", wheel, "--target", filepath.Join(dir, "py"), glob(t, filepath.Join(packages, "*-any.whl"))[0])
	do(dir, "/usr/bin/npm", "install", "--prefix", dir, "--offline", "--no-audit", "--no-fund", glob(t, filepath.Join(packages, "*.tgz"))[0])
	for _, name := range []string{"conformance.py", "conformance.mjs", "adapters.py", "adapters.mjs"} {
		b, err := os.ReadFile(filepath.Join("testdata", "sdk", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
