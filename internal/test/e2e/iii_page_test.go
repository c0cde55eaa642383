package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// runExample runs a program that uses an SDK and returns its output.
func runExample(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = append(environ(), "OTEL_ENABLED=false", "PYTHONPATH="+testenv.PyIIIPath(), "PYTHONDONTWRITEBYTECODE=1", "NO_PROXY=*")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%v: %v\n%s\n%s", args, err, out, stderr.Bytes())
	}
	return string(out)
}

// cli runs the built command as a client of a daemon and returns its output.
func (d *daemon) cli(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, testenv.Build(t, "cmd/sandbar"), args...)
	cmd.Env = append(environ(), "SANDBAR_URL=http://"+d.addr, "SANDBAR_TOKEN="+token,
		"SANDBAR_STATE_DIR="+filepath.Join(d.dir, "state"), "SANDBAR_RUNTIME_DIR="+filepath.Join(d.dir, "run"))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("sandbar %v: %v\n%s%s", args, err, out, stderr.Bytes())
	}
	return string(out)
}

// shared uses a sandbox of the command line with iii-sdk and leaves one of its own
// for the command line.
const shared = `import json, sys
from iii import register_worker
url, theirs = sys.argv[1:]
iii = register_worker(url)
def call(function, **payload):
    return iii.trigger({"function_id": "sandbox::" + function, "payload": payload, "timeout_ms": 60_000})
seen = [s for s in call("list")["sandboxes"] if s["name"] == "by-cli"]
uuid = seen[0]["sandbox_id"]
call("fs::write", sandbox_id=uuid, path="/tmp/from-iii", content="written over iii\n")
read = call("exec", sandbox_id=theirs, cmd="cat /tmp/from-cli")["stdout"]
own = call("create", image="python", name="by-iii")["sandbox_id"]
call("fs::write", sandbox_id=own, path="/tmp/from-iii", content="written over iii\n")
doomed = call("create", image="python")["sandbox_id"]
print("RESULT" + json.dumps({"uuid": uuid, "read": read, "own": own, "doomed": doomed}))
sys.stdout.flush()
iii.shutdown()
`

// The command line and iii-sdk see, use and stop each other's sandboxes, under both
// spellings of their ids.
func TestIIIAndCommandLineShareSandboxes(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.Linux, testenv.UserNS, testenv.Python, testenv.PyIII)
	d, url := iiiDaemon(t, t.TempDir(), "SANDBAR_III_IMAGE_ALLOWLIST=python")
	dir := t.TempDir()
	local := filepath.Join(dir, "local")
	if err := os.WriteFile(local, []byte("uploaded\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "shared.py"), []byte(shared), 0o600); err != nil {
		t.Fatal(err)
	}
	byCLI := strings.TrimSpace(d.cli(t, "create", "--name", "by-cli"))
	d.cli(t, "upload", byCLI, local, "/tmp/from-cli")
	_, result, _ := strings.Cut(runExample(t, dir, "/usr/bin/python3", "shared.py", url, byCLI), "RESULT")
	var r struct{ UUID, Read, Own, Doomed string }
	if err := json.NewDecoder(strings.NewReader(result)).Decode(&r); err != nil {
		t.Fatalf("%v: %q", err, result)
	}
	if r.Read != "uploaded\n" {
		t.Errorf("iii reads %q of the command line's file", r.Read)
	}
	var listed struct {
		Sandboxes []struct{ ID, UUID, Name string }
	}
	if err := json.Unmarshal([]byte(d.cli(t, "list", "--json")), &listed); err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{}
	for _, s := range listed.Sandboxes {
		ids[s.UUID] = s.ID
	}
	if len(ids) != 3 || ids[r.UUID] != byCLI || ids[r.Own] == "" || ids[r.Doomed] == "" {
		t.Errorf("listed are %v; want %s and %+v", listed, byCLI, r)
	}
	for _, id := range []string{byCLI, r.UUID, r.Own, ids[r.Own], "by-iii"} {
		if got := d.cli(t, "exec", id, "--", "cat", "/tmp/from-iii"); got != "written over iii\n" {
			t.Errorf("exec %s: %q", id, got)
		}
	}
	d.cli(t, "upload", r.Own, local, "/tmp/up")
	d.cli(t, "download", r.Own, "/tmp/up", filepath.Join(dir, "down"))
	if b, err := os.ReadFile(filepath.Join(dir, "down")); string(b) != "uploaded\n" {
		t.Errorf("downloaded %q, %v", b, err)
	}
	d.cli(t, "stop", r.Doomed)
	c := dialIII(t, url)
	if m := c.invoke("sandbox::exec", object{"sandbox_id": r.Doomed, "cmd": "true"}); m.Error == nil || !strings.Contains(m.Error.Message, `"S002"`) {
		t.Errorf("iii after the command line's stop: %+v", m)
	}
	c.call("sandbox::stop", object{"sandbox_id": r.UUID, "wait": true})
	if text := d.cli(t, "list"); strings.Contains(text, byCLI) || !strings.Contains(text, "by-iii") {
		t.Errorf("listed after iii's stop:\n%s", text)
	}
	if err := d.stop(); err != nil {
		t.Errorf("the daemon ended with %v; it said:\n%s", err, d.said())
	}
}

// Clients of iii that need no token cannot use sandboxes with a client's token or their own secret.
func TestIIIOpenDoorSparesSecrets(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS)
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("0123456789abcdef0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for open, want := range map[string]int{"true": 0, "false": 2} {
		d, url := iiiDaemon(t, t.TempDir(), "SANDBAR_III_OPEN="+open, "SANDBAR_CLIENTS=[{name: ci, token_file: "+secret+"}]")
		guarded := strings.TrimSpace(d.cli(t, "create", "--secret-file", secret))
		cmd := exec.Command(testenv.Build(t, "cmd/sandbar"), "create", "--token-file", secret)
		cmd.Env = append(environ(), "SANDBAR_URL=http://"+d.addr, "SANDBAR_STATE_DIR="+filepath.Join(d.dir, "state"), "SANDBAR_RUNTIME_DIR="+filepath.Join(d.dir, "run"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("a client with a token of its own: %v\n%s", err, out)
		}
		c := dialIIIWith(t, url, token)
		if got := c.call("sandbox::list", object{})["sandboxes"].([]any); len(got) != want {
			t.Errorf("open: %s: %d sandboxes are listed, want %d", open, len(got), want)
		}
		if m := c.invoke("sandbox::fs::ls", object{"sandbox_id": guarded, "path": "/"}); (m.Error == nil) != (want > 0) {
			t.Errorf("open: %s: %+v", open, m)
		}
		if err := d.stop(); err != nil {
			t.Errorf("the daemon ended with %v; it said:\n%s", err, d.said())
		}
	}
}

// The settings determine the image of a preset, and responses name it.
func TestIIIPresets(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.Linux, testenv.UserNS, testenv.Python, testenv.Node)
	for name, x := range map[string]struct {
		env    []string
		code   string // of sandbox::create's error; "" for none
		ref    string
		source string
	}{
		"by default":             {nil, "", "host", "host"},
		"nothing is installed":   {[]string{"SANDBAR_III_AUTO_INSTALL=false"}, "S101", "docker.io/iiidev/python:latest", "missing"},
		"the operator says host": {[]string{"SANDBAR_III_AUTO_INSTALL=false", "SANDBAR_III_PRESETS=host"}, "", "host", "host"},
		"the operator says image": {[]string{"SANDBAR_III_PRESETS=image", "SANDBAR_III_AUTO_INSTALL=false"}, "S101",
			"docker.io/iiidev/python:latest", "missing"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			d, url := iiiDaemon(t, dir, append(x.env, "SANDBAR_III_IMAGE_ALLOWLIST=python,node")...)
			c := dialIII(t, url)
			m := c.invoke("sandbox::create", object{"image": "python"})
			if (m.Error == nil) != (x.code == "") || m.Error != nil && !strings.Contains(m.Error.Message, `"`+x.code+`"`) {
				t.Errorf("create: %+v, want %q", m, x.code)
			}
			images := c.call("sandbox::catalog::list", object{})["images"].([]any)
			if got := images[0].(map[string]any)["oci_ref"]; got != x.ref {
				t.Errorf("the catalogue has %v, want %s", got, x.ref)
			}
			doctor := exec.Command(testenv.Build(t, "cmd/sandbar"), "doctor", "--json")
			doctor.Env = append(append(environ(), x.env...), "SANDBAR_STATE_DIR="+filepath.Join(dir, "other"), "SANDBAR_RUNTIME_DIR="+filepath.Join(dir, "other-run"))
			out, err := doctor.Output()
			var report struct {
				Presets []struct {
					Name, Source string
					Ref          string `json:"oci_ref"`
				}
			}
			if err := json.Unmarshal(out, &report); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if err != nil || len(report.Presets) != 2 || report.Presets[0].Source != x.source || report.Presets[0].Ref != x.ref {
				t.Errorf("doctor, %v: %+v", err, report)
			}
			if err := d.stop(); err != nil {
				t.Errorf("the daemon ended with %v; it said:\n%s", err, d.said())
			}
		})
	}
}

// The daemon's defaults allow all requests that the protocol allows: memory and processors beyond
// the host's, "python", bash.
func TestIIIDefaultsOfTheText(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.Python)
	d, url := iiiDaemon(t, t.TempDir(), "SANDBAR_III_IMAGE_ALLOWLIST=python")
	c := dialIII(t, url)
	id := c.call("sandbox::create", object{"image": "python", "cpus": runtime.NumCPU() + 100, "memory_mb": 1 << 20})["sandbox_id"]
	if got := c.sh(id, "python -c 'import sys; print(sys.version_info[0])'"); got != "3\n" {
		t.Errorf("python: %q", got)
	}
	ran := c.call("sandbox::run", object{"image": "python", "lang": "shell", "code": "a=(x y); [[ ${a[1]} == y ]] && echo ${BASH_VERSION:0:1}"})
	if _, err := os.Stat("/bin/bash"); err == nil && (ran["success"] != true || ran["stdout"] == "\n") {
		t.Errorf("bash: %v", ran)
	}
	if err := d.stop(); err != nil {
		t.Errorf("the daemon ended with %v; it said:\n%s", err, d.said())
	}
}

// "sandbar eval bash" runs bash if the host has it; shell does not change.
func TestEvalBash(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.Linux, testenv.UserNS)
	want := "bash\n"
	if _, err := os.Stat("/bin/bash"); err != nil {
		want = "sh\n"
	}
	cmd := exec.Command(testenv.Build(t, "cmd/sandbar"), "eval", "bash", "--allow-degraded", "-c", `[ "${BASH_VERSION-}$1" = "$1" ] && echo sh || echo bash`, "--", "z")
	cmd.Env = append(environ(), "SANDBAR_RUNTIME_DIR="+filepath.Join(t.TempDir(), "run"))
	if out, err := cmd.CombinedOutput(); string(out) != want {
		t.Errorf("%q, %v", out, err)
	}
}

// "sandbar iii worker add iii-sandbox" creates a file that the daemon accepts as configuration.
func TestIIIWorkerAdd(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.Linux, testenv.UserNS, testenv.Python)
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte("workers:\n  - name: iii-http # ours\n    config: {port: 3111}\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	for _, said := range []string{"added the worker iii-sandbox to config.yaml\n", "config.yaml already has the worker iii-sandbox; nothing was changed\n"} {
		cmd := exec.Command(testenv.Build(t, "cmd/sandbar"), "iii", "worker", "add", "iii-sandbox")
		cmd.Dir, cmd.Env = dir, environ()
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != said {
			t.Errorf("%v: %q", err, out)
		}
	}
	b, err := os.ReadFile(file)
	if info, serr := os.Stat(file); err != nil || serr != nil || info.Mode().Perm() != 0o640 || !strings.Contains(string(b), "- name: iii-http # ours\n") {
		t.Errorf("%v, %v: %s", err, info.Mode(), b)
	}
	d, url := iiiDaemon(t, t.TempDir(), "SANDBAR_CONFIG="+file)
	dialIII(t, url).call("sandbox::create", object{"image": "python"})
	if err := d.stop(); err != nil {
		t.Errorf("the daemon ended with %v; it said:\n%s", err, d.said())
	}
}
