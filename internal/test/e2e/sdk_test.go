package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// buildSDKs builds the packages into dir/packages and installs them into dir: dir/py for Python,
// dir/node_modules for node, with the test programs beside them. settings are variables of
// scripts/sdk.sh; with SDK_ARCHS, the packages with the command are installed.
func buildSDKs(t *testing.T, dir string, settings ...string) {
	t.Helper()
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	do := func(in, name string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(within(t, 10*time.Minute), name, args...)
		cmd.Dir = in
		cmd.Env = append(append(environ(), "TESTENV_CACHE="+testenv.Cache(), "PYTHONDONTWRITEBYTECODE=1", "HOME="+dir), settings...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v: %s", name, args, err, out)
		}
	}
	packages := filepath.Join(dir, "packages")
	do(root, "sh", "scripts/sdk.sh", "v1.0.0", packages)
	wheel, file := testenv.WheelsDir(), "*-any.whl"
	npm := []string{"install", "--prefix", dir, "--offline", "--no-audit", "--no-fund", filepath.Join(packages, "sandbar-1.0.0.tgz")}
	if len(settings) > 0 {
		file = "*_" + map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH] + ".whl"
		npm = append(npm, filepath.Join(packages, "sandbar-linux-"+npmCPU(runtime.GOARCH)+"-1.0.0.tgz"))
	}
	do(dir, "/usr/bin/python3", glob(t, filepath.Join(wheel, "pip-*.whl"))[0]+"/pip", "install", "--quiet", "--no-index", "--no-compile", "--root-user-action", "ignore",
		"--find-links", wheel, "--target", filepath.Join(dir, "py"), glob(t, filepath.Join(packages, file))[0])
	do(dir, "/usr/bin/npm", npm...)
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

// npmCPU returns npm's name of a processor of Go.
func npmCPU(arch string) string {
	if arch == "amd64" {
		return "x64"
	}
	return arch
}
