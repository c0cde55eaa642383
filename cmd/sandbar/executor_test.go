//go:build unix

package main

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sandbar-dev/sandbar/internal/cli"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// startExecutor starts an executor on free ports and waits until it listens.
func startExecutor(t *testing.T, environ []string, args ...string) (p *process, api, proxy string) {
	t.Helper()
	p = launchExecutor(t, &bytes.Buffer{}, environ, args...)
	found := p.stderr.await(t, `msg=listening address=http://127\.0\.0\.1:(\d+) proxy=127\.0\.0\.1:(\d+)`)
	return p, "127.0.0.1:" + found[1], "127.0.0.1:" + found[2]
}

func launchExecutor(t *testing.T, stdout io.Writer, environ []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, dir: t.TempDir(), stderr: transcript{changed: make(chan struct{})}}
	p.cmd = exec.Command("sandbar", append([]string{"executor"}, args...)...)
	p.cmd.Env = append(append(isolatedEnv(t, p.dir), "PORT=0", "PROXY_PORT=0"), environ...)
	p.cmd.Stdout, p.cmd.Stderr = stdout, &p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			p.cmd.Process.Kill()
			p.cmd.Wait()
		}
		if t.Failed() {
			text, _ := p.stderr.look()
			t.Logf("standard error:\n%s", text)
		}
	})
	return p
}

func post(t *testing.T, api, token, path, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequest("POST", "http://"+api+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "sandbox.example" // any name will do
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := (&http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

const runEnv = `{"cmd":"env; cat /proc/self/cgroup /proc/*/environ 2>/dev/null | tr '\\0' '\\n'"}`

func TestExecutor(t *testing.T) {
	eachDriver(t, func(t *testing.T, environ []string) {
		p, api, proxy := startExecutor(t, append(environ, "SANDBOX_SECRET=executor-secret", "LOG_LEVEL=debug"), "--env", "MINE=1")
		if code, body := post(t, api, "executor-secret", "/run", `{"cmd":"echo $MINE $SANDBOX_SECRET; env | grep -c SANDBOX"}`); code != 200 || !strings.Contains(body, `"stdout":"1\n0\n"`) {
			t.Errorf("%d %s", code, body)
		}
		for _, token := range []string{"", "wrong"} {
			if code, body := post(t, api, token, "/run", `{"cmd":"true"}`); code != 401 || strings.TrimSpace(body) != "Unauthorized" {
				t.Errorf("token %q: %d %s", token, code, body)
			}
		}
		if code, _ := post(t, api, "executor-secret", "/koyeb-sandbox/run", `{"cmd":"true"}`); code != 200 {
			t.Errorf("below the cloud's prefix: %d", code)
		}
		conn, err := net.Dial("tcp", proxy)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if b, err := io.ReadAll(conn); err != nil || len(b) > 0 {
			t.Errorf("the proxy with nothing bound: %q, %v", b, err)
		}
		p.ends(0, syscall.SIGTERM)
		text, _ := p.stderr.look()
		if strings.Contains(text, "executor-secret") || strings.Contains(text, "MINE") {
			t.Error("the log tells too much")
		}
	})
}

// No program in the sandbox finds the executor's secret, in its environment, files or processes.
func TestExecutorSecretStaysOutside(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS)
	p, api, _ := startExecutor(t, []string{"SANDBOX_SECRET=executor-secret"})
	if code, body := post(t, api, "executor-secret", "/run", runEnv); code != 200 || strings.Contains(body, "executor-secret") || !strings.Contains(body, "HOME=") {
		t.Errorf("%d %s", code, body)
	}
	p.ends(0, syscall.SIGINT)
}

func TestExecutorPool(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "dir", "secret")
	environ := []string{"SANDBAR_DRIVER=local", "SANDBAR_ALLOW_DEGRADED=true", "SANDBOX_AUTH_MODE=Pool", "SANDBOX_SECRET_PATH=" + secret}
	const first, second = "the-first-of-all-secrets", "the-second-of-all-secrets"
	for round, want := range []map[string]int{{first: 200, second: 401}, {second: 401, first: 200}} {
		p, api, _ := startExecutor(t, environ)
		for _, token := range []string{[]string{first, second}[round], []string{second, first}[round]} {
			if code, body := post(t, api, token, "/run", `{"cmd":"true"}`); code != want[token] {
				t.Errorf("round %d, %s: %d %s", round, token, code, body)
			}
		}
		p.ends(0, syscall.SIGTERM)
	}
	if info, err := os.Stat(secret); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// Beyond loopback the log lists the exposed files and ports, TLS can be configured, and a pool is
// claimed only with the operator's token.
func TestExecutorBeyondLoopback(t *testing.T) {
	local := []string{"SANDBAR_DRIVER=local", "SANDBAR_ALLOW_DEGRADED=true"}
	const listening = `msg=listening address=(https?)://\[::\]:(\d+) proxy=(\S+):\d+`
	pool := append(local, "SANDBOX_AUTH_MODE=pool", "SANDBOX_SECRET_PATH="+filepath.Join(t.TempDir(), "secret"), "SANDBOX_CLAIM_TOKEN=the-token-of-the-operator")
	p := launchExecutor(t, io.Discard, pool, "--bind", "0.0.0.0", "--proxy-bind", "127.0.0.1")
	found := p.stderr.await(t, listening)
	text, _ := p.stderr.look()
	if found[1] != "http" || found[3] != "127.0.0.1" || !strings.Contains(text, "without TLS") || strings.Contains(text, "the TCP proxy listens beyond") {
		t.Errorf("%v\n%s", found, text)
	}
	ask := func(scheme, port string, headers ...string) int {
		r, err := http.NewRequest("GET", scheme+"://127.0.0.1:"+port+"/list_processes", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer executor-secret-executor-secret")
		for _, h := range headers {
			r.Header.Set("X-Sandbox-Claim", h)
		}
		resp, err := (&http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	for i, step := range []struct {
		headers []string
		status  int
	}{{nil, 401}, {[]string{"a-token-of-somebody-else"}, 401}, {[]string{"the-token-of-the-operator"}, 200}, {nil, 200}} {
		if status := ask("http", found[2], step.headers...); status != step.status {
			t.Errorf("step %d: status %d, want %d", i, status, step.status)
		}
	}
	p.ends(0, syscall.SIGTERM)

	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writeCertificate(t, cert, key)
	p = launchExecutor(t, io.Discard, append(local, "SANDBOX_SECRET=executor-secret-executor-secret"), "--bind", "0.0.0.0", "--tls-cert", cert, "--tls-key", key)
	found = p.stderr.await(t, listening)
	text, _ = p.stderr.look()
	if found[1] != "https" || strings.Contains(text, "without TLS") || !strings.Contains(text, "the TCP proxy listens beyond") {
		t.Errorf("%v\n%s", found, text)
	}
	if status := ask("https", found[2]); status != 200 {
		t.Errorf("over TLS: %d", status)
	}
	p.ends(0, syscall.SIGTERM)
}

func TestExecutorMainCommand(t *testing.T) {
	eachDriver(t, func(t *testing.T, environ []string) {
		environ = append(environ, "SANDBOX_SECRET=s")
		for _, tc := range []struct {
			name, program string
			signal        syscall.Signal // sent when the program says "up"
			code          int
			stdout        string
		}{
			{name: "exit code", program: "echo up; echo err >&2; exit 7", code: 7, stdout: "up\n"},
			{name: "signal of its own", program: "echo up; kill -SEGV $$", code: 128 + 11, stdout: "up\n"},
			{name: "SIGTERM obeyed", program: "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done", signal: syscall.SIGTERM, code: 3, stdout: "up\nbye\n"},
			{name: "SIGINT not handled", program: "trap - INT; echo up; exec sleep 1000", signal: syscall.SIGINT, code: 128 + 2, stdout: "up\n"},
			{name: "SIGTERM ignored", program: "trap '' TERM; echo up; while :; do sleep 0.05; done", signal: syscall.SIGTERM, code: 128 + 9, stdout: "up\n"},
			{name: "what it left behind", program: "trap '' TERM HUP; setsid sleep 1000 & echo up; exit 0", code: 0, stdout: "up\n"},
		} {
			t.Run(tc.name, func(t *testing.T) {
				out := transcript{changed: make(chan struct{})}
				p := launchExecutor(t, &out, environ, "--", "sh", "-c", tc.program)
				if tc.signal != 0 {
					out.await(t, "up\n")
					p.ends(tc.code, tc.signal)
				} else {
					p.ends(tc.code)
				}
				if text, _ := out.look(); text != tc.stdout {
					t.Errorf("stdout %q, want %q", text, tc.stdout)
				}
			})
		}
		t.Run("no such program", func(t *testing.T) {
			p := launchExecutor(t, io.Discard, environ, "--", "/no/such/program")
			p.ends(cli.ExitNotFound)
		})
		t.Run("a second signal", func(t *testing.T) {
			out := transcript{changed: make(chan struct{})}
			p := launchExecutor(t, &out, environ, "--", "sh", "-c", "trap '' TERM INT; echo up; while :; do sleep 0.05; done")
			out.await(t, "up\n")
			p.cmd.Process.Signal(syscall.SIGTERM)
			p.stderr.await(t, `msg="shutting down"`)
			p.ends(128+9, syscall.SIGINT)
		})
	})
}

// The sandbox is served while the main command runs. When it ends, the clients' connections end.
func TestExecutorServesBesideItsCommand(t *testing.T) {
	p, api, _ := startExecutor(t, []string{"SANDBAR_DRIVER=local", "SANDBAR_ALLOW_DEGRADED=true", "SANDBOX_SECRET=s"}, "--",
		"sh", "-c", "while [ ! -e go ]; do sleep 0.05; done; exit 9")
	if code, body := post(t, api, "s", "/write_file", `{"path":"go","content":""}`); code != 200 || !strings.Contains(body, "true") {
		t.Errorf("%d %s", code, body)
	}
	p.ends(9)
}

func TestExecutorRefuses(t *testing.T) {
	taken, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := fmt.Sprint(taken.Addr().(*net.TCPAddr).Port)
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const s = "SANDBOX_SECRET=s3cret"
	for _, tc := range []struct {
		name    string
		environ []string
		args    []string
		code    int
		says    string
	}{
		{"no secret", nil, nil, 1, "sandbar: SANDBOX_SECRET environment variable not set\n"},
		{"empty secret", []string{"SANDBOX_SECRET="}, nil, 1, "sandbar: SANDBOX_SECRET environment variable not set\n"},
		{"unknown mode", []string{s, "SANDBOX_AUTH_MODE=open"}, nil, 2, `SANDBOX_AUTH_MODE: "open" is not known (allowed: static, pool)`},
		{"pool with a secret", []string{s, "SANDBOX_AUTH_MODE=pool"}, nil, 2, "SANDBOX_SECRET is set, but in mode pool"},
		{"pool with an empty file", []string{"SANDBOX_AUTH_MODE=pool", "SANDBOX_SECRET_PATH=" + empty}, nil, 2, "empty"},
		{"bad port", []string{s, "PORT=http"}, nil, 2, `PORT: "http" is not a port`},
		{"port out of range", []string{s, "PROXY_PORT=65536"}, nil, 2, `PROXY_PORT: "65536" is not a port`},
		{"bad port by flag", []string{s}, []string{"--port", "-1"}, 2, `--port: "-1" is not a port`},
		{"bad level", []string{s, "LOG_LEVEL=loud"}, nil, 2, `LOG_LEVEL: "loud" is not known (allowed: TRACE, DEBUG, INFO, WARN, ERROR)`},
		{"port in use", []string{s}, []string{"--port", port}, 1, `cannot listen on "127.0.0.1:` + port + `"`},
		{"proxy port in use", []string{s, "PORT=0"}, []string{"--proxy-port", port}, 1, `cannot listen on "127.0.0.1:` + port + `"`},
		{"a secret to be guessed", []string{s}, []string{"--bind", "0.0.0.0"}, 2, "SANDBOX_SECRET can be guessed: it has 6 bytes (at least 16)"},
		{"a secret to be guessed on all addresses", []string{s}, []string{"--bind", ""}, 2, "SANDBOX_SECRET can be guessed: it has 6 bytes (at least 16)"},
		{"a claim token to be guessed", []string{"SANDBOX_AUTH_MODE=pool", "SANDBOX_CLAIM_TOKEN=s3cret"}, nil, 2, "SANDBOX_CLAIM_TOKEN can be guessed: it has 6 bytes (at least 16)"},
		{"an empty claim token", []string{"SANDBOX_AUTH_MODE=pool", "SANDBOX_CLAIM_TOKEN="}, nil, 2, "SANDBOX_CLAIM_TOKEN can be guessed: it has 0 bytes (at least 16)"},
		{"a claim token without a pool", []string{s, "SANDBOX_CLAIM_TOKEN=s3cret-s3cret-s3cret"}, nil, 2, "only mode pool uses it"},
		{"certificate alone", []string{s}, []string{"--tls-cert", "c.pem"}, 2, "is set without tls.key"},
		{"foreign address", []string{s + "-s3cret-s3cret", "PORT=0"}, []string{"--bind", "192.0.2.1"}, 1, "choose an address of this machine"},
		{"the secret for the sandbox", []string{s}, []string{"--env", "SANDBOX_SECRET"}, 2, "must not be passed into the sandbox"},
		{"command without dashes", []string{s}, []string{"ls"}, 2, `the command comes after "--"`},
		{"no command", []string{s}, []string{"--"}, 2, `no command was given after "--"`},
		{"bad limit", []string{s}, []string{"--memory", "lots"}, 2, `--memory: "lots"`},
		{"no such image", []string{s, "PORT=0", "PROXY_PORT=0", "SANDBAR_DRIVER=local", "SANDBAR_ALLOW_DEGRADED=true"}, []string{"--image", "no-such-image"}, -1, "image"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, stdout, stderr := invocation{args: append([]string{"executor"}, tc.args...), environ: tc.environ}.run(t)
			if code != tc.code && (tc.code >= 0 || code == 0) || stdout != "" || !strings.Contains(stderr, tc.says) || strings.Contains(stderr, "s3cret") {
				t.Errorf("exit code %d, want %d\n%s%s", code, tc.code, stdout, stderr)
			}
			if tc.code == 1 && strings.Count(stderr, "\n") != 1 {
				t.Errorf("more than one sentence: %s", stderr)
			}
		})
	}
}
