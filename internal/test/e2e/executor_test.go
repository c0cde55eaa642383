package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// executor is a running `sandbar executor`.
type executor struct {
	cmd         *exec.Cmd
	addr, proxy string // host:port
	secret, dir string
	logs        *os.File
}

// newExecutor starts an executor and waits until it answers. args come before the test's own
// arguments.
func newExecutor(t *testing.T, args []string, env ...string) *executor {
	t.Helper()
	x := &executor{addr: testenv.FreeAddress(t), proxy: testenv.FreeAddress(t), secret: "end-to-end-secret", dir: t.TempDir()}
	var err error
	if x.logs, err = os.CreateTemp(x.dir, "log-"); err != nil {
		t.Fatal(err)
	}
	x.cmd = exec.Command(testenv.Build(t, "cmd/sandbar"), append([]string{"executor"}, args...)...)
	_, port, _ := net.SplitHostPort(x.addr)
	_, proxy, _ := net.SplitHostPort(x.proxy)
	x.cmd.Env = append(append(environ(), "SANDBOX_SECRET="+x.secret, "PORT="+port, "PROXY_PORT="+proxy,
		"SANDBAR_ALLOW_DEGRADED=true", "SANDBAR_RUNTIME_DIR="+x.dir+"/run"), env...)
	x.cmd.Stdout, x.cmd.Stderr = x.logs, x.logs
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		x.cmd.Process.Kill()
		x.cmd.Wait()
		x.logs.Close()
	})
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if r, err := http.Get("http://" + x.addr + "/health"); err == nil {
			r.Body.Close()
			return x
		}
		if time.Now().After(end) {
			b, _ := os.ReadFile(x.logs.Name())
			t.Fatalf("the executor does not answer; it said:\n%s", b)
		}
	}
}

// ask sends a POST with a body, or a GET without one, and decodes the response.
func (x *executor) ask(t *testing.T, path string, body, answer any) {
	t.Helper()
	method, reader := http.MethodGet, io.Reader(nil)
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		method, reader = http.MethodPost, bytes.NewReader(b)
	}
	r, err := http.NewRequest(method, "http://"+x.addr+path, reader)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+x.secret)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode > 299 {
		t.Fatalf("%s %s: %v %s: %s", method, path, err, resp.Status, b)
	}
	decode(t, b, answer)
}
