//go:build unix

package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/sandbar-dev/sandbar/internal/cli"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// TestNetwork: the flag --network.
func TestNetwork(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.TUN)
	script(t, "network")
}

// engineAt returns the address at which a daemon serves as an iii engine.
func (p *process) engineAt() string {
	p.t.Helper()
	return "ws" + strings.TrimPrefix(p.stderr.await(p.t, `msg="listening as an iii engine" address=(http[^ ]+)`)[1], "http")
}

// iiiClient is a connection to an iii engine.
type iiiClient struct {
	t   *testing.T
	ctx context.Context
	ws  *websocket.Conn
}

func dialIII(t *testing.T, url string, header http.Header) (*iiiClient, int, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	ws, resp, err := websocket.Dial(ctx, url, &websocket.DialOptions{HTTPHeader: header, Host: header.Get("Host")})
	if err != nil {
		status := 0
		if resp != nil {
			status = resp.StatusCode
		}
		return nil, status, err
	}
	t.Cleanup(func() { ws.CloseNow() })
	ws.SetReadLimit(1 << 20)
	return &iiiClient{t, ctx, ws}, 101, nil
}

func connectIII(t *testing.T, url string, header http.Header) *iiiClient {
	t.Helper()
	c, status, err := dialIII(t, url, header)
	if err != nil {
		t.Fatalf("%d: %v", status, err)
	}
	return c
}

// invoke calls a function and returns its result, or the message of its error.
func (c *iiiClient) invoke(function string, data any) (result map[string]any, failed string) {
	c.t.Helper()
	b, err := json.Marshal(map[string]any{"type": "invokefunction", "invocation_id": "i", "function_id": function, "data": data})
	if err == nil {
		err = c.ws.Write(c.ctx, websocket.MessageText, b)
	}
	for {
		var m struct {
			Type   string
			Result map[string]any
			Error  *struct{ Code, Message string }
		}
		if err == nil {
			_, b, err = c.ws.Read(c.ctx)
		}
		if err == nil {
			err = json.Unmarshal(b, &m)
		}
		if err != nil {
			c.t.Fatal(err)
		}
		if m.Type != "invocationresult" {
			continue
		}
		if m.Error != nil {
			return nil, m.Error.Code + ": " + m.Error.Message
		}
		return m.Result, ""
	}
}

// works creates a sandbox, runs a program in it and does not stop it.
func (c *iiiClient) works() {
	c.t.Helper()
	made, failed := c.invoke("sandbox::create", map[string]any{"image": "python"})
	if failed != "" {
		c.t.Fatal(failed)
	}
	got, failed := c.invoke("sandbox::exec", map[string]any{"sandbox_id": made["sandbox_id"], "cmd": "echo hello"})
	if failed != "" || got["stdout"] != "hello\n" {
		c.t.Errorf("%v, %s", got, failed)
	}
}

// pythonOnly returns the environment of most tests.
func pythonOnly() []string {
	return []string{"SANDBAR_III_IMAGE_ALLOWLIST=python", "SANDBAR_TOKEN=0123456789abcdef"}
}

func TestServeIII(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.Python)
	p := serve(t, "", pythonOnly(), "--iii", "127.0.0.1:0")
	url := p.engineAt()
	connectIII(t, url, nil).works()
	for name, c := range map[string]struct {
		path   string
		header http.Header
		want   int
	}{
		"another page":         {"", http.Header{"Origin": {"https://evil.example"}}, 403},
		"another page, otel":   {"/otel", http.Header{"Origin": {"https://evil.example"}}, 403},
		"another page, stream": {"/ws/channels/x?key=y&dir=read", http.Header{"Origin": {"https://evil.example"}}, 403},
		"another name":         {"", http.Header{"Host": {"evil.example"}}, 421},
		"a guessed channel":    {"/ws/channels/x?key=y&dir=read", nil, 404},
		"telemetry":            {"/otel", nil, 101},
		"elsewhere":            {"/ws", http.Header{"Authorization": {"Bearer 0123456789abcdef"}}, 404},
	} {
		if _, status, err := dialIII(t, url+c.path, c.header); status != c.want {
			t.Errorf("%s: %d, %v, want %d", name, status, err, c.want)
		}
	}
	p.ends(0, syscall.SIGTERM)
	if text, _ := p.stderr.look(); !strings.Contains(text, `"shutdown complete"`) || !strings.Contains(text, "leftover=0") {
		t.Errorf("no clean end:\n%s", text)
	}
}

func TestServeIIIWithToken(t *testing.T) {
	for name, c := range map[string]struct {
		listen  string
		environ []string
	}{
		"closed on loopback": {"127.0.0.1:0", []string{"SANDBAR_III_OPEN=false"}},
		"beyond loopback":    {"0.0.0.0:0", nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := serve(t, "", append(c.environ, "SANDBAR_DRIVER=local", "SANDBAR_ALLOW_DEGRADED=true", "SANDBAR_TOKEN=0123456789abcdef"), "--iii", c.listen)
			url := p.engineAt()
			url = "ws://127.0.0.1" + url[strings.LastIndexByte(url, ':'):]
			for token, want := range map[string]int{"": 401, "Bearer wrong": 401, "0123456789abcdef": 401, "Bearer 0123456789abcdef": 101} {
				header := http.Header{}
				if token != "" {
					header.Set("Authorization", token)
				}
				for _, path := range []string{"", "/otel"} {
					if _, status, err := dialIII(t, url+path, header); status != want {
						t.Errorf("%q at %q: %d, %v", token, path, status, err)
					}
				}
			}
			p.ends(0, syscall.SIGTERM)
		})
	}
}

// Beyond loopback the engine refuses to serve without a token that the operator chose.
func TestServeIIINeedsToken(t *testing.T) {
	dir := t.TempDir()
	p := launch(t, dir, []string{"SANDBAR_DRIVER=local"}, nil, "serve", "--listen", "unix:"+filepath.Join(dir, "s"), "--iii", "0.0.0.0:0")
	p.ends(1)
	text, _ := p.stderr.look()
	if !strings.Contains(text, "iii.listen: listening on") || !strings.Contains(text, "no token was set") || strings.Contains(text, "kept in") {
		t.Errorf("it said:\n%s", text)
	}
}

func TestServeIIIAllowsNothing(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS)
	p := serve(t, "", []string{"SANDBAR_TOKEN=t"}, "--iii", "127.0.0.1:0")
	p.stderr.await(t, "no image is allowed")
	if _, failed := connectIII(t, p.engineAt(), nil).invoke("sandbox::create", map[string]any{"image": "python"}); !strings.Contains(failed, `"code":"S100"`) {
		t.Errorf("%s", failed)
	}
	p.ends(0, syscall.SIGTERM)
}

// A worker serves an engine that has no sandboxes of its own, reconnects after the engine's
// restart, and exits cleanly.
func TestWorker(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.Python)
	hub := append([]string{"SANDBAR_III_SANDBOXES=false", "SANDBAR_III_OPEN=false"}, pythonOnly()...)
	address := testenv.FreeAddress(t) // of both daemons
	p := serve(t, "", hub, "--iii", address)
	url := p.engineAt()
	tokens := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(tokens, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "iii-config.yaml")
	if err := os.WriteFile(file, []byte("workers:\n  - name: iii-sandbox\n    config:\n      image_allowlist: [python]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := launch(t, "", nil, nil, "worker", "--engine", url, "--token-file", tokens, "--config", file)
	w.stderr.await(t, "connected to the engine")
	authorized := http.Header{"Authorization": {"Bearer 0123456789abcdef"}}
	connectIII(t, url, authorized).waitFor("sandbox::create").works()

	p.ends(0, syscall.SIGTERM)
	w.stderr.await(t, "trying again")
	p = serve(t, "", hub, "--iii", address)
	connectIII(t, url, authorized).waitFor("sandbox::create").works()
	w.ends(0, syscall.SIGTERM)
	if text, _ := w.stderr.look(); !strings.Contains(text, "leftover=0") || strings.Contains(text, "0123456789abcdef") {
		t.Errorf("it said:\n%s", text)
	}
	if _, failed := connectIII(t, url, authorized).invoke("sandbox::list", nil); !strings.HasPrefix(failed, "function_not_found") {
		t.Errorf("the worker is gone, and its functions: %s", failed)
	}
	p.ends(0, syscall.SIGTERM)
}

// waitFor waits until the function exists. A worker registers it after the connection is open and
// prints nothing.
func (c *iiiClient) waitFor(function string) *iiiClient {
	c.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if _, failed := c.invoke("engine::functions::info", map[string]any{"function_id": function}); failed == "" {
			return c
		} else if time.Now().After(end) {
			c.t.Fatalf("%s is not there: %s", function, failed)
		}
	}
}

func TestWorkerRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		i    invocation
		want string
	}{
		"no engine":      {invocation{args: []string{"worker", "--engine", "http://127.0.0.1"}}, "ws://HOST:PORT"},
		"bad variable":   {invocation{args: []string{"worker"}, environ: []string{"III_URL=nowhere"}}, "III_URL"},
		"two tokens":     {invocation{args: []string{"worker", "--token", "a", "--token-file", "b"}}, "both set"},
		"no token":       {invocation{args: []string{"worker", "--token-file", "/no/file"}}, "iii.worker.token_file"},
		"an argument":    {invocation{args: []string{"worker", "x"}}, "takes no arguments"},
		"bad engine":     {invocation{args: []string{"serve", "--iii", "here"}}, "HOST:PORT"},
		"unnamed images": {invocation{args: []string{"worker"}, environ: []string{`SANDBAR_III_CUSTOM_IMAGES={"": x}`}}, "no name"},
	} {
		code, _, stderr := c.i.run(t)
		if code != cli.ExitUsage || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: %d, %s", name, code, stderr)
		}
	}
}

// A configuration of the original iii-sandbox worker has the same meaning here.
func TestForeignConfiguration(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "iii.yaml")
	for _, c := range []struct{ text, want string }{
		{"- name: iii-sandbox\n  config: {image_allowlist: [python], default_idle_timeout_secs: 99999999999999999999}\n", "cannot be read"},
		{"- name: iii-sandbox\n  config: {image_allowlist: [python], max_exec_timeout_ms: 9999999999999999999, per_image_caps: {python: {max_cpus: 2}}}\n", "max_exec_timeout_ms: 31536000000"},
		{"iii-sandbox:\n  custom_images: {python: x}\n", "preset"},
		{"sandbox: {image_allowlist: [python]}\nimage_allowlist: [python]\n", "older layout"},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, stdout, stderr := invocation{args: []string{"serve", "--config", file, "--print-config"}}.run(t)
		if !strings.Contains(stdout+stderr, c.want) {
			t.Errorf("%s: %s%s", c.text, stdout, stderr)
		}
	}
}
