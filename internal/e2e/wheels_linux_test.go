package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sandbar-dev/sandbar/internal/testenv"
)

// What pip installs below /usr of this machine is in its sandboxes at once. The installation
// goes to a file system of the test's own, in its own mount namespace.
func TestPackagesOfTheHost(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.Root, testenv.UserNS, testenv.PyWheels)
	pip, err := filepath.Glob(filepath.Join(testenv.WheelsDir(), "pip-*.whl"))
	if err != nil || len(pip) == 0 {
		t.Fatalf("no wheel of pip: %v", err)
	}
	script := `set -e
mount --make-rprivate /
mount -t tmpfs none /usr/local
/usr/bin/python3 "$PIP/pip" install --quiet --disable-pip-version-check --root-user-action ignore --break-system-packages --no-compile --no-index --find-links "$WHEELS" numpy
"$SANDBAR" eval python --timeout 2m -c 'import numpy; print(numpy.arange(4).sum())'`
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
	cmd.Env = append(environ(), "PIP="+pip[0], "WHEELS="+testenv.WheelsDir(), "SANDBAR="+testenv.Build(t, "cmd/sandbar"), "SANDBAR_STATE_DIR="+t.TempDir(),
		"PYTHONDONTWRITEBYTECODE=1", "HOME="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "6" {
		t.Errorf("%v: %s", err, out)
	}
}
