package iii

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/settings"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/backend"
)

// The clients of testdata/clients drive the real SDKs.

func TestClientNpm(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.NpmIII, testenv.Python)
	if strings.HasPrefix(t.Name(), throughAWorker) { // the large transfer takes long, and does not depend on the worker
		checkClient(t, clientRig(t).ws(), npm("lifecycle,exec,run,files,channels,aborted,errors,concurrent,functions,reconnect"), 10)
		return
	}
	if !backend.Has(t, "javascript") {
		checkClient(t, clientRig(t).ws(), npm("lifecycle,exec,files,channels,large,aborted,errors,concurrent,functions,reconnect"), 10)
		return
	}
	checkClient(t, clientRig(t).ws(), npm(""), 11)
}

// TestClientNpmIdle sends nothing for 70 s, so that the server must answer the SDK's own heartbeat.
func TestClientNpmIdle(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.NpmIII)
	t.Parallel()
	checkClient(t, clientRig(t).ws(), npm("idle"), 1)
}

func TestClientPython(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.PyIII)
	checkClient(t, clientRig(t).ws(), python("client.py"), 7)
}

func npm(checks string) *exec.Cmd {
	cmd := exec.Command("/usr/bin/node", "client.mjs")
	cmd.Env = append(os.Environ(), "NODE_PATH="+testenv.NpmIIIModules())
	if checks != "" {
		cmd.Env = append(cmd.Env, "III_CHECKS="+checks)
	}
	return cmd
}

func python(script string) *exec.Cmd {
	cmd := exec.Command("/usr/bin/python3", script)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+testenv.PyIIIPath(), "PYTHONDONTWRITEBYTECODE=1")
	return cmd
}

// clientRig returns a server with the settings of the client tests.
func clientRig(t *testing.T) *rig {
	return newRealWith(t, Options{Config: config(func(c *settings.Config) {
		c.ImageAllowlist = append(c.ImageAllowlist, "broken", "capped")
		c.CustomImages = map[string]string{"broken": "registry.invalid/broken", "capped": "registry.invalid/capped"}
		c.PerImageCaps = map[string]settings.Caps{"capped": {MaxCPUs: 1, MaxMemoryMB: 512}}
		c.MaxConcurrentExecPerSandbox = 8
		c.DefaultMemoryMB = 1024
	})}, func(c *engine.Config) { c.Default.Disk = largeDisk })
}

// summary is a client's report.
type summary struct {
	Client string
	OK     bool
	Checks []struct {
		Name, Detail string
		OK           bool
	}
}

func checkClient(t *testing.T, url string, cmd *exec.Cmd, checks int) {
	t.Helper()
	cmd.Dir = filepath.Join("testdata", "clients")
	cmd.Env = append(cmd.Env, "III_URL="+url)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { cmd.Process.Kill() })
	err := cmd.Wait()
	stop()
	var s summary
	// The SDK prints to the same output.
	lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
	if e := json.Unmarshal(lines[len(lines)-1], &s); e != nil {
		t.Fatalf("%v; the client printed %q\n%s", err, out.Bytes(), stderr.Bytes())
	}
	for _, c := range s.Checks {
		if !c.OK {
			t.Errorf("%s: %s: %s", s.Client, c.Name, c.Detail)
		}
	}
	if err != nil || !s.OK || len(s.Checks) != checks {
		t.Errorf("%s: %v, %d checks, ok=%v\n%s", s.Client, err, len(s.Checks), s.OK, stderr.Bytes())
	}
}

// The examples of the protocol's specification, unchanged except for the port.

func TestExampleNpm(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.NpmIII, testenv.Python)
	r := newReal(t, Options{})
	example, err := os.ReadFile(filepath.Join("testdata", "clients", "example.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	example = bytes.Replace(example, []byte("ws://127.0.0.1:49134"), []byte(r.ws()), 1)
	if err := os.WriteFile(filepath.Join(dir, "example.mjs"), example, 0o600); err != nil {
		t.Fatal(err)
	}
	// The example does not exit by itself, because its connection is open.
	end := filepath.Join(dir, "main.mjs")
	if err := os.WriteFile(end, []byte("await import('./example.mjs')\nprocess.exit(0)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(testenv.NpmIIIModules(), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/usr/bin/node", end)
	cmd.Env = append(os.Environ(), "OTEL_ENABLED=false")
	checkExample(t, r, cmd)
}

func TestExamplePython(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.PyIII)
	r := newReal(t, Options{})
	cmd := python("run_example.py")
	cmd.Dir = filepath.Join("testdata", "clients")
	cmd.Env = append(cmd.Env, "III_URL="+r.ws())
	checkExample(t, r, cmd)
}

func checkExample(t *testing.T, r *rig, cmd *exec.Cmd) {
	t.Helper()
	stop := time.AfterFunc(5*time.Minute, func() { cmd.Process.Kill() })
	defer stop.Stop()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || !bytes.Contains(append([]byte("\n"), out...), []byte("\n4\n")) {
		t.Errorf("%v; it printed %q\n%s", err, out, stderr.Bytes())
	}
	if n := r.engine.Stats().Sandboxes; n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
}
