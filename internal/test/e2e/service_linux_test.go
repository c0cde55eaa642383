package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// unit parses the service file: all values of each setting.
func unit(t *testing.T) (path string, settings map[string][]string) {
	t.Helper()
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(root, "packaging", "sandbar.service")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	settings = map[string][]string{}
	for line := range strings.Lines(string(b)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
			settings[key] = append(settings[key], value)
		}
	}
	return path, settings
}

// systemd accepts the service file, which has none of the settings that prevent sandboxes.
func TestServiceFile(t *testing.T) {
	path, settings := unit(t)
	for _, never := range []string{"ProtectKernelTunables", "ProtectKernelLogs", "ProtectProc", "ProcSubset", "ProtectControlGroups", "RestrictNamespaces",
		"ProtectHostname", "PrivateUsers", "PrivateNetwork", "PrivateDevices", "MemoryDenyWriteExecute", "RestrictSUIDSGID", "LockPersonality"} {
		if v, ok := settings[never]; ok {
			t.Errorf("%s=%v: no sandbox, or no program in it, can work under that", never, v)
		}
	}
	for key, want := range map[string]string{"OOMPolicy": "continue", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "yes"} {
		if !slices.Equal(settings[key], []string{want}) {
			t.Errorf("%s=%v, want %s", key, settings[key], want)
		}
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		return // only the settings above can be checked
	}
	// systemd-analyze needs an existing command, and Sandbar may not be installed on this host.
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "sandbar.service")
	if err := os.WriteFile(copied, []byte(strings.Replace(string(b), "/usr/local/bin/sandbar ", "/bin/true ", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(within(t, 2*time.Minute), analyze, "verify", "--man=no", copied).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v: %s", err, out)
	}
}

// confined runs its arguments with the confinement of the service file: every mount is read-only
// but the kernel's file systems and the directory $1, there are no home directories, and the
// capabilities are $2, without new ones.
const confined = `set -eu
dir=$1 caps=$2
shift 2
mount --bind "$dir" "$dir"
awk '{print $5}' /proc/self/mountinfo | while read -r m; do
	case $m in
	/dev|/dev/*|/proc|/proc/*|/sys|/sys/*|"$dir") ;;
	*) mount -o remount,bind,ro "$m" 2>/dev/null || true ;;
	esac
done
if touch /usr/sandbar-test 2>/dev/null; then echo "not confined" >&2; exit 1; fi
exec setpriv --no-new-privs --inh-caps=-all --bounding-set="-all,$caps" "$@"
`

// The daemon and its sandboxes work within the confinement of the service file.
func TestServiceIsEnough(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.Root, testenv.UserNS, testenv.Python)
	_, settings := unit(t)
	var caps []string
	for _, c := range strings.Fields(strings.Join(settings["CapabilityBoundingSet"], " ")) {
		caps = append(caps, "+"+strings.ToLower(strings.TrimPrefix(c, "CAP_")))
	}
	dir := t.TempDir()
	program := testenv.Build(t, "cmd/sandbar")
	d := &daemon{addr: testenv.FreeAddress(t), dir: dir}
	var err error
	if d.logs, err = os.CreateTemp(dir, "log-"); err != nil {
		t.Fatal(err)
	}
	d.cmd = exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", confined, "sh", dir, strings.Join(caps, ","), program, "serve", "--listen", d.addr)
	d.cmd.Env = append(environ(), "SANDBAR_TOKEN="+token, "SANDBAR_ALLOW_DEGRADED=true", "SANDBAR_DRIVER=native", "SANDBAR_SHUTDOWN_TIMEOUT=1s", "TMPDIR="+dir,
		"SANDBAR_STATE_DIR="+filepath.Join(dir, "state"), "SANDBAR_RUNTIME_DIR="+filepath.Join(dir, "run"))
	d.cmd.Stdout, d.cmd.Stderr = d.logs, d.logs
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.kill)
	waitUntil(t, "the daemon answers", func() []string {
		r, err := http.Get("http://" + d.addr + "/health")
		if err != nil {
			return []string{err.Error(), d.said()}
		}
		r.Body.Close()
		return nil
	})
	start(t, d, 2)
	l := leaks{t: t, d: d, s: secrets{token: token}}
	status, b := l.request("POST", "/sandboxes", object{"image": "host", "network": "outbound"})
	if status != http.StatusCreated {
		t.Errorf("a sandbox with a way out: status %d: %s\n%s", status, b, d.said())
	}
	if err := d.stop(); err != nil {
		t.Errorf("the daemon ended with %v; it said:\n%s", err, d.said())
	}
	if left := leftovers(t, d); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
