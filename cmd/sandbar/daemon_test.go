//go:build unix

package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// patience bounds every wait of a test. No test depends on a duration.
const patience = 60 * time.Second

// process is a running sandbar command.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	dir    string
	stderr transcript
}

// transcript collects the output of a process, and can wait for text in it.
type transcript struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{}
}

func (w *transcript) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(p)
	close(w.changed)
	w.changed = make(chan struct{})
	return len(p), nil
}

func (w *transcript) look() (string, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String(), w.changed
}

// await waits until the text matches.
func (w *transcript) await(t *testing.T, pattern string) []string {
	t.Helper()
	m, _ := w.awaitAfter(t, 0, pattern)
	return m
}

// awaitAfter waits until the text after an offset matches, and returns the offset of the match's
// end.
func (w *transcript) awaitAfter(t *testing.T, offset int, pattern string) (match []string, end int) {
	t.Helper()
	re, late := regexp.MustCompile(pattern), time.After(patience)
	for {
		text, changed := w.look()
		text = text[offset:]
		if m := re.FindStringSubmatch(text); m != nil {
			return m, offset + re.FindStringIndex(text)[1]
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("no %q in\n%s", pattern, text)
		}
	}
}

// isolatedEnv returns an environment that is independent of this machine's configuration.
func isolatedEnv(t *testing.T, dir string) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "SANDBAR_RUNTIME_DIR=" + filepath.Join(dir, "run"),
		"SANDBAR_STATE_DIR=" + filepath.Join(dir, "state"), "SANDBAR_CONFIG=/dev/null", agentVariable + "=" + testenv.Build(t, "cmd/sandbar-agent")}
}

// launch starts sandbar in dir ("" for a new one) with a clean environment and with stdin (nil
// for an empty one).
func launch(t *testing.T, dir string, environ []string, stdin *os.File, args ...string) *process {
	t.Helper()
	if dir == "" {
		dir = t.TempDir()
	}
	p := &process{t: t, dir: dir, cmd: exec.Command("sandbar", args...), stderr: transcript{changed: make(chan struct{})}}
	p.cmd.Env = append(isolatedEnv(t, dir), environ...)
	p.cmd.Stderr = &p.stderr
	if stdin != nil {
		p.cmd.Stdin = stdin
	}
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

// serve starts a daemon on a socket and waits until it listens.
func serve(t *testing.T, dir string, environ []string, args ...string) *process {
	t.Helper()
	if dir == "" {
		dir = t.TempDir()
	}
	p := launch(t, dir, environ, nil, append([]string{"serve", "--listen", "unix:" + filepath.Join(dir, "s")}, args...)...)
	p.stderr.await(t, "msg=listening")
	return p
}

// ends sends a signal to the process and checks its exit code.
func (p *process) ends(want int, signals ...os.Signal) {
	p.t.Helper()
	for _, s := range signals {
		p.cmd.Process.Signal(s)
	}
	done := make(chan struct{})
	go func() { p.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(patience):
		p.cmd.Process.Signal(syscall.SIGQUIT) // the stacks tell where it hangs
		<-done
		p.t.Fatal("it does not end")
	}
	if got := p.cmd.ProcessState.ExitCode(); got != want {
		p.t.Errorf("exit code %d, want %d", got, want)
	}
}

// client talks to the daemon through its socket.
func (p *process) client() *http.Client {
	return &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(p.dir, "s"))
		}}}
}

func (p *process) get(path, token string) (int, string) {
	p.t.Helper()
	r, err := http.NewRequest("GET", "http://localhost"+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := p.client().Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// dial opens a Fathom connection.
func (p *process) dial(token string) (*websocket.Conn, context.Context) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	p.t.Cleanup(cancel)
	ws, _, err := websocket.Dial(ctx, "ws://localhost/ws", &websocket.DialOptions{HTTPClient: p.client(),
		HTTPHeader: http.Header{"Authorization": {"Bearer " + token}, "X-Protocol-Version": {"1"}}})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { ws.CloseNow() })
	return ws, ctx
}

// message has the fields of a Fathom message that these tests read.
type message struct {
	Type, Status, Data, Code string
	ExitCode                 *int `json:"exit_code"`
}

func execute(ctx context.Context, t *testing.T, ws *websocket.Conn, language, code string) {
	t.Helper()
	m, err := json.Marshal(map[string]any{"v": 1, "type": "execute", "id": "exec_1", "ts": "2026-01-01T00:00:00.000Z",
		"language": language, "code": code, "limits": map[string]any{"timeout_ms": 30000, "memory_mb": 64}})
	if err != nil {
		t.Fatal(err)
	}
	if err := ws.Write(ctx, websocket.MessageText, m); err != nil {
		t.Fatal(err)
	}
}

// until reads messages up to the first of the given types, or up to the end of the execution, and
// returns all of them.
func until(ctx context.Context, t *testing.T, ws *websocket.Conn, kinds ...string) []message {
	t.Helper()
	var all []message
	for {
		_, b, err := ws.Read(ctx)
		if err != nil {
			t.Fatalf("%v after %v", err, all)
		}
		var m message
		if err := json.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
		if slices.Contains(kinds, m.Type) {
			return all
		}
		if m.Type == "result" || m.Type == "error" {
			t.Fatalf("%s, want %v", b, kinds)
		}
	}
}

// eachDriver runs a test with a daemon over each driver.
func eachDriver(t *testing.T, f func(t *testing.T, environ []string)) {
	t.Run("local", func(t *testing.T) {
		f(t, []string{"SANDBAR_DRIVER=local", "SANDBAR_ALLOW_DEGRADED=true"})
	})
	t.Run("native", func(t *testing.T) {
		testenv.Need(t, testenv.Linux, testenv.UserNS)
		f(t, []string{"SANDBAR_DRIVER=native"})
	})
}

func TestDaemon(t *testing.T) {
	eachDriver(t, func(t *testing.T, environ []string) {
		p := serve(t, "", append(environ, "SANDBAR_TOKEN=t"))
		if code, body := p.get("/health", ""); code != 200 || !strings.HasPrefix(body, `{"status":"ok","version":"`) || strings.Contains(body, "load") {
			t.Errorf("health: %d %s", code, body)
		}
		if code, body := p.get("/health", "t"); code != 200 || !strings.Contains(body, `"load":{"active":0,"queued":0,"sandboxes":0,"capacity":64,"removing":0}`) {
			t.Errorf("health with token: %d %s", code, body)
		}
		if code, _ := p.get("/ws", ""); code != 401 {
			t.Errorf("/ws without token: %d", code)
		}
		ws, ctx := p.dial("t")
		execute(ctx, t, ws, "shell", "echo hello; exit 3")
		var got []string
		for _, m := range until(ctx, t, ws, "result") {
			got = append(got, strings.TrimSpace(m.Type+" "+m.Status+m.Data))
			if m.Type == "result" && (m.ExitCode == nil || *m.ExitCode != 3) {
				t.Errorf("exit code %v", m.ExitCode)
			}
		}
		if want := "[ack status running stdout hello status failed result]"; fmt.Sprint(got) != want {
			t.Errorf("messages %v, want %s", got, want)
		}
		if code, body := p.get("/metrics", "t"); code != 200 || !strings.Contains(body, `,language="shell",outcome="exited"} 1`) {
			t.Errorf("metrics: %d\n%s", code, body)
		}
		ws.CloseNow()
		p.ends(0, syscall.SIGTERM)
		text, _ := p.stderr.look()
		if strings.Contains(text, "hello") || strings.Contains(text, "token=") {
			t.Errorf("the log tells too much:\n%s", text)
		}
		if _, err := os.Stat(filepath.Join(p.dir, "s")); err == nil {
			t.Error("the socket is still there")
		}
	})
}

// On SIGTERM the daemon lets running executions finish and sends their results.
func TestDaemonEndsInOrder(t *testing.T) {
	eachDriver(t, func(t *testing.T, environ []string) {
		p := serve(t, "", append(environ, "SANDBAR_TOKEN=t", "SANDBAR_SHUTDOWN_TIMEOUT=50s"))
		ws, ctx := p.dial("t")
		execute(ctx, t, ws, "shell", "echo started; sleep 0.5; exit 4")
		until(ctx, t, ws, "stdout")
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		all := until(ctx, t, ws, "result")
		if last := all[len(all)-1]; last.ExitCode == nil || *last.ExitCode != 4 {
			t.Errorf("result %+v", last)
		}
		if _, _, err := ws.Read(ctx); websocket.CloseStatus(err) != websocket.StatusGoingAway {
			t.Errorf("the connection ended with %v", err)
		}
		p.ends(0)
	})
}

// Executions that exceed shutdown_timeout are cancelled, and the exit code is 0.
func TestDaemonRunsOutOfPatience(t *testing.T) {
	eachDriver(t, func(t *testing.T, environ []string) {
		p := serve(t, "", append(environ, "SANDBAR_TOKEN=t", "SANDBAR_SHUTDOWN_TIMEOUT=100ms"))
		ws, ctx := p.dial("t")
		execute(ctx, t, ws, "shell", "echo started; sleep 60")
		until(ctx, t, ws, "stdout")
		p.cmd.Process.Signal(syscall.SIGTERM)
		all := until(ctx, t, ws, "error")
		if last := all[len(all)-1]; last.Code != "NETWORK_ERROR" { // the one that a client may retry elsewhere
			t.Errorf("error %+v", last)
		}
		p.ends(0)
	})
}

// A second signal kills all programs at once and leaves nothing behind.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	eachDriver(t, func(t *testing.T, environ []string) {
		for s, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
			p := serve(t, "", append(environ, "SANDBAR_TOKEN=t", "SANDBAR_SHUTDOWN_TIMEOUT=1h"))
			ws, ctx := p.dial("t")
			execute(ctx, t, ws, "shell", "trap '' TERM; echo started; sleep 1000; sleep 1000")
			until(ctx, t, ws, "stdout")
			p.cmd.Process.Signal(s)
			p.stderr.await(t, `msg="shutting down" `)
			p.ends(want, s)
			if text, _ := p.stderr.look(); !strings.Contains(text, `msg="second signal: killing all programs and exiting" `) {
				t.Error("the log does not explain the second signal")
			}
			ws.CloseNow()
		}
	})
}

// The token is generated once, printed once, and stored readable for its owner only.
func TestMadeToken(t *testing.T) {
	dir := t.TempDir()
	first := serve(t, dir, []string{"SANDBAR_DRIVER=local"})
	token := first.stderr.await(t, `not shown again:\n\n    ([0-9a-f]{64})\n\n`)[1]
	if code, _ := first.get("/metrics", token); code != 200 {
		t.Errorf("the made token is not taken: %d", code)
	}
	if info, err := os.Stat(filepath.Join(dir, "state", "token")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("token file: %v, %v", info, err)
	}
	first.ends(0, syscall.SIGTERM)
	second := serve(t, dir, []string{"SANDBAR_DRIVER=local"})
	if code, _ := second.get("/metrics", token); code != 200 {
		t.Errorf("the token changed: %d", code)
	}
	second.ends(0, syscall.SIGINT)
	if text, _ := second.stderr.look(); strings.Contains(text, token) {
		t.Error("the token is printed a second time")
	}
}

// The first Ctrl-C ends the program with its grace period; the exit code is the signal's.
func TestSignalsToARun(t *testing.T) {
	eachDriver(t, func(t *testing.T, environ []string) {
		for s, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143, syscall.SIGHUP: 129} {
			p := launch(t, "", append(environ, "SANDBAR_GRACE=50s"), nil, "run", "host", "--", "sh", "-c",
				`trap 'echo graceful >&2; exit 0' TERM; echo started >&2; while :; do sleep 0.01; done`)
			p.stderr.await(t, "started")
			p.ends(want, s)
			p.stderr.await(t, "graceful")
		}
	})
}

// The second Ctrl-C kills a program that ignores the first.
func TestSecondSignalKillsARun(t *testing.T) {
	eachDriver(t, func(t *testing.T, environ []string) {
		p := launch(t, "", append(environ, "SANDBAR_GRACE=5m"), nil, "run", "host", "--", "sh", "-c",
			`trap 'echo ignored >&2' TERM; echo started >&2; while :; do sleep 0.01; done`)
		p.stderr.await(t, "started")
		p.cmd.Process.Signal(os.Interrupt)
		p.stderr.await(t, "ignored")
		p.ends(130, os.Interrupt)
	})
}

// A program whose output has no reader ends with the exit code of SIGPIPE.
func TestBrokenPipe(t *testing.T) {
	eachDriver(t, func(t *testing.T, environ []string) {
		cmd := exec.Command("sandbar", "run", "host", "--", "yes")
		cmd.Env = append(isolatedEnv(t, t.TempDir()), environ...)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, 4)); err != nil {
			t.Error(err)
		}
		out.Close()
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 141 {
			t.Errorf("exit code %d, want 141", code)
		}
	})
}

// Output is streamed: the program waits for a reply to its first line.
func TestOutputIsStreamed(t *testing.T) {
	eachDriver(t, func(t *testing.T, environ []string) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		p := launch(t, "", environ, r, "run", "host", "--", "sh", "-c", "echo first >&2; read line; echo got $line >&2")
		r.Close()
		p.stderr.await(t, "first")
		io.WriteString(w, "answer\n")
		p.stderr.await(t, "got answer")
		p.ends(0)
	})
}

// A second daemon cannot use the first one's address and does not affect it.
func TestAddressInUse(t *testing.T) {
	first := serve(t, "", []string{"SANDBAR_DRIVER=local", "SANDBAR_TOKEN=t"})
	second := launch(t, "", []string{"SANDBAR_DRIVER=local", "SANDBAR_TOKEN=t"}, nil, "serve", "--listen", "unix:"+filepath.Join(first.dir, "s"))
	second.ends(1)
	second.stderr.await(t, "another process listens there")
	if code, _ := first.get("/health", ""); code != 200 {
		t.Errorf("health of the first: %d", code)
	}
	first.ends(0, syscall.SIGTERM)
}

// gc lists and removes the leftovers of a killed daemon, and keeps the files of a live one.
func TestCollect(t *testing.T) {
	eachDriver(t, func(t *testing.T, environ []string) {
		environ = append(environ, "SANDBAR_TOKEN=t")
		name := strings.TrimPrefix(environ[0], "SANDBAR_DRIVER=")
		dir := t.TempDir()
		killed := serve(t, dir, environ)
		ws, ctx := killed.dial("t")
		execute(ctx, t, ws, "shell", "echo started; sleep 1000")
		until(ctx, t, ws, "stdout")
		gc := func(args ...string) gcReport {
			t.Helper()
			cmd := exec.Command("sandbar", append([]string{"gc", "--json", "--driver", name}, args...)...)
			cmd.Env = killed.cmd.Env
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("gc: %v: %s", err, out)
			}
			var c gcReport
			if err := json.Unmarshal(out, &c); err != nil {
				t.Fatal(err)
			}
			return c
		}
		pid := fmt.Sprint(killed.cmd.Process.Pid)
		gc()
		if code, body := killed.get("/health", "t"); code != 200 || !strings.Contains(body, `"active":1`) {
			t.Errorf("gc disturbed a daemon that lives: %d %s", code, body)
		}
		killed.cmd.Process.Kill()
		killed.cmd.Wait()
		found := false
		for _, l := range gc("--dry-run").Leftovers {
			if l.Removed || l.Error != "" || l.Driver != name {
				t.Errorf("dry run: %+v", l)
			}
			found = found || strings.Contains(l.Name, dir)
		}
		if name == "local" && !found {
			t.Error("the directory of the killed daemon is not in the dry run")
		}
		for _, l := range gc().Leftovers {
			if !l.Removed {
				t.Errorf("not removed: %+v", l)
			}
		}
		for _, l := range gc("--dry-run").Leftovers {
			if strings.Contains(l.Name, dir) || strings.Contains(l.Name, pid) {
				t.Errorf("still there: %+v", l)
			}
		}
		next := serve(t, dir, environ)
		next.ends(0, syscall.SIGTERM)
	})
}

// The listener obeys its settings: TLS, the token's file, further host names.
func TestListenerSettings(t *testing.T) {
	dir := t.TempDir()
	cert, key, tokenFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "t")
	writeCertificate(t, cert, key)
	if err := os.WriteFile(tokenFile, []byte("from-a-file-and-long-enough\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := launch(t, dir, []string{"SANDBAR_ALLOWED_HOSTS=box.example"}, nil, "serve", "--driver", "local",
		"--listen", "0.0.0.0:0", "--token-file", tokenFile, "--tls-cert", cert, "--tls-key", key)
	address := p.stderr.await(t, `msg=listening address=https://(\S+:\d+) `)[1]
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for host, want := range map[string]int{"127.0.0.1:" + port: 200, "box.example": 200, "other.example": 421} {
		r, err := http.NewRequest("GET", "https://127.0.0.1:"+port+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		r.Header.Set("Authorization", "Bearer from-a-file-and-long-enough")
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: status %d, want %d", host, resp.StatusCode, want)
		}
	}
	p.ends(0, syscall.SIGTERM)
}

// writeCertificate writes a self-signed certificate and its key.
func writeCertificate(t *testing.T, cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A daemon creates sandboxes with its allowed drivers only.
func TestDaemonAllowsDrivers(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS)
	p := serve(t, "", []string{"SANDBAR_TOKEN=t", "SANDBAR_ALLOW_DEGRADED=true", "SANDBAR_DRIVER=native", "SANDBAR_ALLOWED_DRIVERS=local"})
	p.expect(0, `sb_[a-z2-7]{26}\n`, ``, "create", "--name", "plain", "--driver", "local")
	p.expect(0, `sb_[a-z2-7]{26}\n`, ``, "create", "--name", "strong")
	p.expect(0, `(?s).*"name": "plain",\s*"image": "host",\s*"driver": "local".*"name": "strong",\s*"image": "host",\s*"driver": "native".*`, ``, "list", "--json")
	p.expect(0, `hi\n`, ``, "exec", "plain", "--", "echo", "hi")
	p.expect(1, ``, `sandbar: the driver "docker" is not allowed; allowed: native, local .*\n`, "create", "--driver", "docker")
}
