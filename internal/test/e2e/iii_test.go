package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// iiiEnviron is the server's environment for the SDKs' test programs.
func iiiEnviron() []string {
	return []string{
		"SANDBAR_III_IMAGE_ALLOWLIST=python,node,broken,capped",
		"SANDBAR_III_CUSTOM_IMAGES={broken: registry.invalid/broken, capped: registry.invalid/capped}",
		"SANDBAR_III_PER_IMAGE_CAPS={capped: {max_cpus: 1, max_memory_mb: 512}}",
		"SANDBAR_III_MAX_CONCURRENT_EXEC_PER_SANDBOX=8",
		"SANDBAR_III_DEFAULT_MEMORY_MB=1024",
		"SANDBAR_LIMITS_DEFAULT_DISK=600MiB",
		"SANDBAR_NETWORK_OUTBOUND=false",
	}
}

// iiiDaemon starts a daemon that serves as an iii engine, and returns its address.
func iiiDaemon(t *testing.T, dir string, env ...string) (*daemon, string) {
	t.Helper()
	address := testenv.FreeAddress(t)
	return newDaemon(t, dir, append(env, "SANDBAR_III_LISTEN="+address)...), "ws://" + address
}

// iiiWorker starts a worker and waits until the engine has its functions.
func iiiWorker(t *testing.T, dir, engine string, env ...string) *daemon {
	t.Helper()
	d := &daemon{dir: dir}
	var err error
	if d.logs, err = os.CreateTemp(dir, "log-"); err != nil {
		t.Fatal(err)
	}
	d.cmd = exec.Command(testenv.Build(t, "cmd/sandbar"), "worker", "--engine", engine)
	d.cmd.Env = append(append(environ(), "SANDBAR_ALLOW_DEGRADED=true",
		"SANDBAR_STATE_DIR="+filepath.Join(dir, "state"), "SANDBAR_RUNTIME_DIR="+filepath.Join(dir, "run")), env...)
	d.cmd.Stdout, d.cmd.Stderr = d.logs, d.logs
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.kill)
	c := dialIII(t, engine)
	defer c.ws.CloseNow()
	waitUntil(t, "the worker has joined", func() []string {
		if m := c.invoke("sandbox::list", object{}); m.Error != nil {
			return []string{m.Error.Message}
		}
		return nil
	})
	return d
}

// iiiPlaces are the two servers of the functions: a daemon, and a worker that is connected to
// another daemon without functions.
func iiiPlaces(t *testing.T, test func(t *testing.T, url string)) {
	t.Run("serve", func(t *testing.T) {
		d, url := iiiDaemon(t, t.TempDir(), iiiEnviron()...)
		test(t, url)
		if err := d.stop(); err != nil {
			t.Errorf("the daemon ended with %v; it said:\n%s", err, d.said())
		}
		if left := leftovers(t, d); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
	t.Run("worker", func(t *testing.T) {
		d, url := iiiDaemon(t, t.TempDir(), "SANDBAR_III_SANDBOXES=false")
		w := iiiWorker(t, t.TempDir(), url, iiiEnviron()...)
		test(t, url)
		for _, p := range []*daemon{w, d} {
			if err := p.stop(); err != nil {
				t.Errorf("%v ended with %v; it said:\n%s", p.cmd.Args, err, p.said())
			}
		}
		if left := leftovers(t, w); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
}

// The SDKs from npm and PyPI work with the built command.
func TestIIINpm(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.Linux, testenv.UserNS, testenv.NpmIII, testenv.Python)
	iiiPlaces(t, func(t *testing.T, url string) {
		runIII(t, url, 11, "NODE_PATH="+testenv.NpmIIIModules(), "/usr/bin/node", "client.mjs")
	})
}

func TestIIIPython(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.Linux, testenv.UserNS, testenv.PyIII, testenv.Node)
	iiiPlaces(t, func(t *testing.T, url string) {
		runIII(t, url, 7, "PYTHONPATH="+testenv.PyIIIPath(), "/usr/bin/python3", "client.py")
	})
}

// iiiClients is the directory of the SDKs' test programs, which the protocol's tests use too.
func iiiClients(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", "protocol", "iii", "testdata", "clients"))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// runIII runs a test program of an SDK. All its checks must pass.
func runIII(t *testing.T, url string, checks int, env string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute) // of checks in emulated machines
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = iiiClients(t)
	cmd.Env = append(environ(), env, "III_URL="+url, "PYTHONDONTWRITEBYTECODE=1", "NO_PROXY=*")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var said struct {
		OK     bool
		Checks []struct {
			Name, Detail string
			OK           bool
		}
	}
	// The SDK prints to the same stream.
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	if e := json.Unmarshal(lines[len(lines)-1], &said); e != nil {
		t.Fatalf("%v; it printed %q\n%s", err, out, stderr.Bytes())
	}
	for _, c := range said.Checks {
		if !c.OK {
			t.Errorf("%s: %s", c.Name, c.Detail)
		}
	}
	if err != nil || !said.OK || len(said.Checks) != checks {
		t.Errorf("%v, %d checks, ok=%v\n%s", err, len(said.Checks), said.OK, stderr.Bytes())
	}
}

// asDocumented is the setting that docs/iii.md recommends.
const asDocumented = "SANDBAR_III_IMAGE_ALLOWLIST=python,node"

// The quickstart of the protocol's text, unchanged: the two ways to run a program, and the three
// forms of a command.
func TestIIIQuickstart(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.NpmIII, testenv.PyIII)
	d, url := iiiDaemon(t, t.TempDir(), asDocumented)
	runQuickstart(t, url)
	d.endClean(t)
}

// runQuickstart runs the quickstart with both SDKs.
func runQuickstart(t *testing.T, url string) {
	t.Helper()
	for _, args := range [][]string{{"/usr/bin/node", "quickstart.mjs"}, {"/usr/bin/python3", "quickstart.py"}} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Dir = iiiClients(t)
		cmd.Env = append(environ(), "III_URL="+url, "NODE_PATH="+testenv.NpmIIIModules(), "PYTHONPATH="+testenv.PyIIIPath(), "PYTHONDONTWRITEBYTECODE=1", "NO_PROXY=*")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		cancel()
		var said []string
		for line := range strings.Lines(string(out)) {
			text, ok := strings.CutPrefix(line, "RESULT ")
			if !ok {
				continue // the SDK prints to the same stream
			}
			var r struct {
				Stdout  string
				Success bool
				Path    string
				Stopped bool
			}
			if err := json.Unmarshal([]byte(text), &r); err != nil {
				t.Fatal(err)
			}
			said = append(said, fmt.Sprintf("%q %v %s %v", r.Stdout, r.Success, r.Path, r.Stopped))
		}
		want := []string{`"hello from sandbox\n" true  false`, `"" false  false`, `"" false /home/app/main.js false`,
			`"hi\n" true  false`, `"hi\n" true  false`, `"hi\n" true  false`, `"" false  true`}
		if err != nil || !slices.Equal(said, want) {
			t.Errorf("%v: %v; %q, want %q\n%s%s", args, err, said, want, out, stderr.Bytes())
		}
	}
}

// The examples of the protocol's text, unchanged, except that their address is replaced if it is
// in use.
func TestIIIExamples(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.NpmIII, testenv.PyIII)
	address := standard
	if !unused(standard) {
		address = testenv.FreeAddress(t)
	}
	d := newDaemon(t, t.TempDir(), asDocumented, "SANDBAR_III_LISTEN="+address)
	dir := t.TempDir()
	for _, name := range []string{"example.mjs", "example.py", "run_example.py"} {
		b, err := os.ReadFile(filepath.Join(iiiClients(t), name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), bytes.ReplaceAll(b, []byte(standard), []byte(address)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// The example does not exit by itself: its open connection keeps it running.
	if err := os.WriteFile(filepath.Join(dir, "main.mjs"), []byte("await import('./example.mjs')\nprocess.exit(0)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(testenv.NpmIIIModules(), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"/usr/bin/node", "main.mjs"}, {"/usr/bin/python3", "run_example.py"}} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Dir = dir
		cmd.Env = append(environ(), "OTEL_ENABLED=false", "III_URL=ws://"+address, "PYTHONPATH="+testenv.PyIIIPath(), "PYTHONDONTWRITEBYTECODE=1", "NO_PROXY=*")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		cancel()
		if err != nil || !bytes.Contains(append([]byte("\n"), out...), []byte("\n4\n")) {
			t.Errorf("%v: %v; it printed %q\n%s", args, err, out, stderr.Bytes())
		}
	}
	if err := d.stop(); err != nil {
		t.Errorf("the daemon ended with %v; it said:\n%s", err, d.said())
	}
}

// standard is the default address of iii engines.
const standard = "127.0.0.1:49134"

// unused reports whether nothing listens on an address.
func unused(address string) bool {
	l, err := net.Listen("tcp", address)
	return err == nil && l.Close() == nil
}

// iiiClient is a minimal client.
type iiiClient struct {
	t   *testing.T
	ws  *websocket.Conn
	ctx context.Context
}

type iiiAnswer struct {
	Type   string
	Result map[string]any
	Error  *struct{ Code, Message string }
}

func dialIII(t *testing.T, url string) *iiiClient {
	t.Helper()
	return dialIIIWith(t, url, "")
}

// dialIIIWith is dialIII with a token.
func dialIIIWith(t *testing.T, url, token string) *iiiClient {
	t.Helper()
	ctx := within(t, 5*time.Minute)
	o := &websocket.DialOptions{HTTPHeader: http.Header{}}
	if token != "" {
		o.HTTPHeader.Set("Authorization", "Bearer "+token)
	}
	ws, _, err := websocket.Dial(ctx, url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ws.CloseNow() })
	ws.SetReadLimit(-1)
	return &iiiClient{t, ws, ctx}
}

// send begins a call.
func (c *iiiClient) send(function string, data object) {
	c.t.Helper()
	b, err := json.Marshal(object{"type": "invokefunction", "invocation_id": "1", "function_id": function, "data": data})
	if err == nil {
		err = c.ws.Write(c.ctx, websocket.MessageText, b)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// receive returns the next result.
func (c *iiiClient) receive() iiiAnswer {
	c.t.Helper()
	for {
		var m iiiAnswer
		_, b, err := c.ws.Read(c.ctx)
		if err == nil {
			err = json.Unmarshal(b, &m)
		}
		if err != nil {
			c.t.Fatal(err)
		}
		if m.Type == "invocationresult" {
			return m
		}
	}
}

func (c *iiiClient) invoke(function string, data object) iiiAnswer {
	c.t.Helper()
	c.send(function, data)
	return c.receive()
}

// call makes a call that must succeed.
func (c *iiiClient) call(function string, data object) map[string]any {
	c.t.Helper()
	m := c.invoke(function, data)
	if m.Error != nil {
		c.t.Fatalf("%s: %s: %s", function, m.Error.Code, m.Error.Message)
	}
	return m.Result
}

func (c *iiiClient) sh(id any, script string) string {
	c.t.Helper()
	r := c.call("sandbox::exec", object{"sandbox_id": id, "argv": []string{"sh", "-c", script}})
	if r["success"] != true {
		c.t.Fatalf("%s: %v", script, r)
	}
	return r["stdout"].(string)
}

// Sandboxes of the preset "python" use an imported Debian image, and two of them share no
// writable file.
func TestIIIImage(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.DebianImage)
	dir := t.TempDir()
	cli := exec.Command(testenv.Build(t, "cmd/sandbar"), "images", "import", testenv.DebianArchive(), "python")
	cli.Env = append(environ(), "SANDBAR_STATE_DIR="+filepath.Join(dir, "state"), "SANDBAR_RUNTIME_DIR="+filepath.Join(dir, "run"))
	if out, err := cli.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	d, url := iiiDaemon(t, dir, "SANDBAR_III_IMAGE_ALLOWLIST=python")
	c := dialIII(t, url)
	var ids []any
	for range 2 {
		made := c.call("sandbox::create", object{"image": "python"})
		if made["note"] != nil {
			t.Errorf("a note: %v", made["note"])
		}
		ids = append(ids, made["sandbox_id"])
	}
	if got := c.sh(ids[0], "id -u; . /etc/os-release; echo $ID; python3 -c 'import pip'"); got != "0\ndebian\n" {
		t.Errorf("the image: %q", got)
	}
	for _, place := range []string{"/tmp", "/var", "/usr", "/home", "/dev/shm", "/etc", "/root", "/run", "/opt", "/"} {
		file := strings.TrimSuffix(place, "/") + "/mark"
		c.sh(ids[0], "echo secret >"+file)
		if got := c.sh(ids[1], "cat "+file+" 2>/dev/null; echo end"); got != "end\n" {
			t.Errorf("%s: the other sandbox sees %q", place, got)
		}
	}
	c.sh(ids[0], "rm -rf /usr/share/doc; echo changed >/etc/os-release")
	if got := c.sh(ids[1], "ls -d /usr/share/doc; cat /etc/os-release"); strings.Contains(got, "changed") || !strings.HasPrefix(got, "/usr/share/doc\n") {
		t.Errorf("the other sandbox has %q", got)
	}
	fresh := c.call("sandbox::create", object{"image": "python"})["sandbox_id"]
	if got := c.sh(fresh, "ls /mark /etc/mark /usr/mark 2>/dev/null; ls -d /usr/share/doc"); got != "/usr/share/doc\n" {
		t.Errorf("a new sandbox has %q", got)
	}
	if err := d.stop(); err != nil {
		t.Errorf("the daemon ended with %v; it said:\n%s", err, d.said())
	}
}

// A worker that is killed while its sandboxes run leaves nothing, and its engine reports the
// loss to waiting callers; so does a daemon whose client is killed.
func TestKilledIII(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.Python)
	before := mounts(t)
	d, url := iiiDaemon(t, t.TempDir(), "SANDBAR_III_SANDBOXES=false")
	w := iiiWorker(t, t.TempDir(), url, "SANDBAR_III_IMAGE_ALLOWLIST=python")
	c := dialIII(t, url)
	id := c.call("sandbox::create", object{"image": "python"})["sandbox_id"]
	c.sh(id, "(setsid sh -c 'trap \"\" TERM HUP INT; sleep 1000' >/dev/null 2>&1 &)")
	c.send("sandbox::exec", object{"sandbox_id": id, "argv": []string{"sh", "-c", "trap '' TERM; : >/tmp/up; sleep 1000"}})
	watch := dialIII(t, url)
	waitUntil(t, "the program runs", func() []string {
		if m := watch.invoke("sandbox::fs::stat", object{"sandbox_id": id, "path": "/tmp/up"}); m.Error != nil {
			return []string{m.Error.Message}
		}
		return nil
	})
	w.kill()
	if m := c.receive(); m.Error == nil || m.Error.Code != "invocation_stopped" {
		t.Errorf("who waits for a killed worker is told %+v", m)
	}
	gc := exec.Command(testenv.Build(t, "cmd/sandbar"), "gc")
	gc.Env = append(environ(), "SANDBAR_RUNTIME_DIR="+w.dir+"/run")
	waitUntil(t, "the processes of the killed worker have ended", func() (left []string) {
		for _, l := range leftovers(t, w) {
			if strings.HasPrefix(l, "/proc/") {
				left = append(left, l)
			}
		}
		return left
	})
	if out, err := gc.CombinedOutput(); err != nil {
		t.Errorf("gc: %v\n%s", err, out)
	}
	waitUntil(t, "nothing of the killed worker is left", func() []string { return leftovers(t, w) })
	if m := c.invoke("sandbox::list", object{}); m.Error == nil || m.Error.Code != "function_not_found" {
		t.Errorf("the functions of a killed worker: %+v", m)
	}
	// The daemon still works.
	if r, err := http.Get("http://" + d.addr + "/health"); err != nil || r.StatusCode != http.StatusOK {
		t.Errorf("health: %v", err)
	} else {
		r.Body.Close()
	}
	if err := d.stop(); err != nil {
		t.Errorf("the daemon ended with %v; it said:\n%s", err, d.said())
	}
	waitUntil(t, "namespaces and mounts are as before", func() []string { return remains(t, before, w, d) })
}
