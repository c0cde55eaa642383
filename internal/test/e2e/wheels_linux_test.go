package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// installThere installs the packages $3 from the wheels of $1 by "pip install" into an overlay over
// /usr/local, which has its files in the directory $2 and ends with the process, and then runs the
// other arguments.
const installThere = `set -eu
wheels=$1 dir=$2 packages=$3
shift 3
mount -t tmpfs tmpfs "$dir"
mkdir "$dir/upper" "$dir/work"
mount -t overlay -o "lowerdir=/usr/local,upperdir=$dir/upper,workdir=$dir/work" overlay /usr/local
/usr/bin/python3 "$(echo "$wheels"/pip-*.whl)/pip" install --quiet --root-user-action ignore --break-system-packages --no-index --find-links "$wheels" --no-deps \
	--no-compile $packages >&2
exec "$@"
`

// Sandboxes have the packages that the host has installed for all users, without a setting, as
// docs/packages.md says.
func TestInstalledPackages(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.Root, testenv.UserNS, testenv.PyWheels)
	dir := t.TempDir()
	for _, sub := range []string{"overlay", "home"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	code := "import numpy; print(numpy.arange(4).sum())"
	cmd := exec.CommandContext(within(t, 5*time.Minute), "unshare", "--mount", "--propagation", "private", "sh", "-c", installThere, "sh",
		testenv.WheelsDir(), filepath.Join(dir, "overlay"), "numpy", testenv.Build(t, "cmd/sandbar"), "eval", "python", "--driver", "native", "-c", code)
	cmd.Env = append(environ(), "SANDBAR_STATE_DIR="+filepath.Join(dir, "home", "state"), "SANDBAR_RUNTIME_DIR="+filepath.Join(dir, "home", "run"), "PYTHONDONTWRITEBYTECODE=1")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || string(out) != "6\n" {
		t.Errorf("%v: %q: %s", err, out, stderr.String())
	}
}
