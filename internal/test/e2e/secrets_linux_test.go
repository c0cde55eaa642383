package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// secrets are values that must reach only their recipient. Each is a unique word.
type secrets struct{ token, env, code, input, file, argument string }

func newSecrets() secrets {
	word := func(kind string) string { return "zq-" + kind + "-" + strconv.Itoa(os.Getpid()) + "-qz" }
	return secrets{token: word("token"), env: word("env"), code: word("code"), input: word("input"), file: word("file"), argument: word("argument")}
}

func (s secrets) all() []string { return []string{s.token, s.env, s.code, s.input, s.file, s.argument} }

// found returns the words that a text contains.
func found(text []byte, words ...string) (in []string) {
	for _, w := range words {
		if bytes.Contains(text, []byte(w)) {
			in = append(in, w)
		}
	}
	return in
}

// leaks is a client with the secrets to search for.
type leaks struct {
	t *testing.T
	d *daemon
	s secrets
}

// Tokens, code, environments, inputs, files and arguments of all protocols, with failures of every
// kind, are afterwards in no debug log, no metric, no error, no audit log, no file of the daemon,
// no argument or environment of its processes, and nowhere that another sandbox can read.
func TestSecretsStay(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.Python)
	s := newSecrets()
	log := filepath.Join(t.TempDir(), "audit.log")
	d, engine := iiiDaemon(t, t.TempDir(), "SANDBAR_AUDIT_FILE="+log, "SANDBAR_TOKEN="+s.token, "SANDBAR_LOG_LEVEL=debug", "SANDBAR_III_IMAGE_ALLOWLIST=python",
		"SANDBAR_III_OPEN=true", "SANDBAR_LIMITS_MAX_OUTPUT=1MiB")
	l := leaks{t, d, s}
	l.fathom()
	l.iii(engine)
	id := l.sandbox()
	l.processes()
	l.neighbour()
	l.refusals()
	l.lost(id)
	for _, path := range []string{"/metrics", "/health", "/sandboxes"} {
		l.quiet("GET", path, nil, s.all()...)
	}
	l.directories()
	audit, err := os.ReadFile(log)
	if in := found(audit, s.all()...); err != nil || len(in) > 0 {
		t.Errorf("the audit log holds %v: %v\n%s", in, err, audit)
	}
	for _, action := range []string{"execute", "sandbox.create", "program.run", "program.start", "file.write", "file.read"} {
		if !bytes.Contains(audit, []byte(`"action":"`+action+`"`)) {
			t.Errorf("the audit log has no %s:\n%s", action, audit)
		}
	}
	if err := d.stop(); err != nil {
		t.Errorf("the daemon ended with %v; it said:\n%s", err, d.said())
	}
	said := d.said()
	if in := found([]byte(said), s.all()...); len(in) > 0 {
		t.Errorf("the log holds %v:\n%s", in, said)
	}
	if !strings.Contains(said, "level=DEBUG") {
		t.Errorf("the log is not at its chattiest:\n%s", said)
	}
	l.directories()
}

// request sends a request with the token and returns the answer.
func (l leaks) request(method, path string, body any, headers ...string) (int, []byte) {
	l.t.Helper()
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			l.t.Fatal(err)
		}
		reader = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(within(l.t, time.Minute), method, "http://"+l.d.addr+path, reader)
	if err != nil {
		l.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+l.s.token)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		l.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	return resp.StatusCode, b
}

// quiet sends a request whose response must contain none of the words.
func (l leaks) quiet(method, path string, body any, words ...string) int {
	l.t.Helper()
	status, answer := l.request(method, path, body)
	if in := found(answer, words...); len(in) > 0 {
		l.t.Errorf("the answer to %s %s holds %v: %s", method, path, in, answer)
	}
	return status
}

// fathom runs programs over the Fathom protocol, some of which are refused or killed.
func (l leaks) fathom() {
	l.t.Helper()
	ctx := within(l.t, 2*time.Minute)
	c, _, err := websocket.Dial(ctx, "ws://"+l.d.addr+"/ws", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + l.s.token}}})
	if err != nil {
		l.t.Fatal(err)
	}
	defer c.CloseNow()
	execute := func(id, code string, more object) string {
		m := object{"v": 1, "type": "execute", "id": id, "ts": "2026-01-01T00:00:00.000Z", "language": "python", "code": code + " # " + l.s.code,
			"env": object{"SECRET": l.s.env}, "limits": object{"timeout_ms": 20_000, "memory_mb": 64}}
		for k, v := range more {
			m[k] = v
		}
		b, err := json.Marshal(m)
		if err != nil {
			l.t.Fatal(err)
		}
		return string(b)
	}
	for _, m := range []struct{ last, text string }{
		{"result", execute("ok", "import os; print(len(os.environ['SECRET']))", nil)},
		{"result", execute("fails", "raise SystemExit(3)", nil)},
		{"result", execute("slow", "import time; time.sleep(60)", object{"limits": object{"timeout_ms": 1000, "memory_mb": 64}})},
		{"result", execute("large", "x = bytearray(1 << 30); x[::4096] = x[::4096]", nil)},
		{"result", execute("flood", "while True: print('x' * 4096)", object{"limits": object{"timeout_ms": 20_000, "memory_mb": 64, "max_output_bytes": 4096}})},
		{"error", execute("language", "", object{"language": "cobol"})},
		{"error", execute("limits", "", object{"limits": object{"timeout_ms": -1, "memory_mb": 64}})},
		{"error", execute("env", "", object{"env": object{"SECRET": []string{l.s.env}}})},
		{"error", execute("cwd", "", object{"env": object{"A=B": l.s.env}})},
		{"error", `{"v":1,"type":"execute","id":"broken","code":"` + l.s.code + `"`},
	} {
		if err := c.Write(ctx, websocket.MessageText, []byte(m.text)); err != nil {
			l.t.Fatal(err)
		}
		for done := false; !done; {
			_, b, err := c.Read(ctx)
			if err != nil {
				l.t.Fatalf("%s: %v; the daemon said:\n%s", m.text, err, l.d.said())
			}
			var f struct{ Type, Code string }
			if err := json.Unmarshal(b, &f); err != nil {
				l.t.Fatal(err)
			}
			if f.Type != "stdout" && f.Type != "stderr" {
				if in := found(b, l.s.all()...); len(in) > 0 {
					l.t.Errorf("a message holds %v: %s", in, b)
				}
			}
			done = f.Type == m.last || f.Type == "error" && f.Code != "OUTPUT_LIMIT"
		}
	}
}

// iii runs a program over the iii protocol, and makes a request that is refused.
func (l leaks) iii(engine string) {
	l.t.Helper()
	c := dialIII(l.t, engine)
	defer c.ws.CloseNow()
	id := c.call("sandbox::create", object{"image": "python", "env": object{"SECRET": l.s.env}})["sandbox_id"]
	for function, data := range map[string]object{
		"sandbox::exec":   {"sandbox_id": id, "argv": []string{"/nowhere/" + "program", l.s.argument}, "env": object{"MORE": l.s.env}, "stdin": l.s.input},
		"sandbox::create": {"image": "nothing", "env": object{"SECRET": l.s.env}},
		"sandbox::stop":   {"sandbox_id": id},
	} {
		b, err := json.Marshal(c.invoke(function, data))
		if err != nil {
			l.t.Fatal(err)
		}
		if in := found(b, l.s.token, l.s.env, l.s.input); len(in) > 0 {
			l.t.Errorf("the answer of %s holds %v: %s", function, in, b)
		}
	}
}

// sandbox creates a long-lived sandbox with a background program that has all secrets but the
// token, and returns the sandbox's id.
func (l leaks) sandbox() string {
	l.t.Helper()
	status, b := l.request("POST", "/sandboxes", object{"image": "host", "env": object{"SECRET": l.s.env}})
	var made struct{ ID, Secret string }
	if err := json.Unmarshal(b, &made); err != nil || status != http.StatusCreated {
		l.t.Fatalf("status %d: %s", status, b)
	}
	if in := found(b, l.s.all()...); len(in) > 0 {
		l.t.Errorf("the answer to a new sandbox's maker holds %v", in)
	}
	x := "/sandboxes/" + made.ID + "/executor"
	for path, body := range map[string]object{
		"/write_file":    {"path": "/tmp/secret", "content": l.s.file},
		"/run":           {"cmd": "echo started; test -n \"$SECRET\" # " + l.s.code, "env": object{"MORE": l.s.env}},
		"/start_process": {"cmd": "sleep 1000 # " + l.s.argument, "env": object{"MORE": l.s.env}},
	} {
		if status, b := l.request("POST", x+path, body); status > 299 {
			l.t.Fatalf("%s: status %d: %s", path, status, b)
		}
	}
	for path, body := range map[string]any{
		"/read_file":  object{"path": "/nowhere"},
		"/run":        `{"cmd": "` + l.s.code,
		"/write_file": object{"path": "/proc/version", "content": l.s.file},
		"/bind_port":  object{"port": l.s.input},
	} {
		l.quiet("POST", x+path, body, l.s.token, l.s.env, l.s.file)
	}
	return made.ID
}

// processes checks the daemon's processes: their files in /proc, and that their core dumps are
// disabled.
func (l leaks) processes() {
	l.t.Helper()
	below := descendants(l.t, l.d.cmd.Process.Pid)
	if len(below) < 3 {
		l.t.Errorf("the daemon has %d processes; its spawner, an agent and a program are due", len(below))
	}
	for _, pid := range append(below, l.d.cmd.Process.Pid) {
		proc := "/proc/" + strconv.Itoa(pid)
		if pid != l.d.cmd.Process.Pid { // between fork and exec a child has its parent's memory
			own, _ := os.ReadFile("/proc/" + strconv.Itoa(l.d.cmd.Process.Pid) + "/cmdline")
			waitUntil(l.t, "a child of the daemon has become what it is to be", func() []string {
				if args, _ := os.ReadFile(proc + "/cmdline"); len(args) > 0 && bytes.Equal(args, own) {
					return []string{proc}
				}
				return nil
			})
		}
		inside := pid != l.d.cmd.Process.Pid && !outer(proc)
		args, _ := os.ReadFile(proc + "/cmdline")
		env, _ := os.ReadFile(proc + "/environ")
		hidden := l.s.all()
		if inside { // a program has its own inputs
			hidden = []string{l.s.token}
		}
		if in := found(args, hidden...); len(in) > 0 {
			l.t.Errorf("arguments of process %d hold %v: %q", pid, in, args)
		}
		if pid != l.d.cmd.Process.Pid {
			if in := found(env, hidden...); len(in) > 0 {
				l.t.Errorf("environment of process %d (%q) holds %v", pid, args, in)
			}
		}
		limits, err := os.ReadFile(proc + "/limits")
		if err != nil { // it has ended
			continue
		}
		for line := range strings.Lines(string(limits)) {
			if rest, ok := strings.CutPrefix(line, "Max core file size"); ok && !slices.Contains([]string{"0", "1"}, strings.Fields(rest)[0]) {
				l.t.Errorf("process %d (%q) may dump its core: %s", pid, args, line)
			}
		}
	}
}

// outer reports whether a process is the spawner or an agent, not a program.
func outer(proc string) bool {
	args, err := os.ReadFile(proc + "/cmdline")
	return err == nil && strings.HasPrefix(string(args), "sandbar-")
}

// descendants are the processes below one.
func descendants(t *testing.T, pid int) (below []int) {
	t.Helper()
	children := map[int][]int{}
	for _, f := range glob(t, "/proc/[0-9]*/status") {
		child, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		parent, err := strconv.Atoi(statusField(f, "PPid:"))
		if err == nil {
			children[parent] = append(children[parent], child)
		}
	}
	for next := []int{pid}; len(next) > 0; next = next[1:] {
		below = append(below, children[next[0]]...)
		next = append(next, children[next[0]]...)
	}
	return below
}

// neighbour searches for the secrets from inside another sandbox.
func (l leaks) neighbour() {
	l.t.Helper()
	const look = `
import os
def texts():
    for root in "/proc", "/tmp", "/dev/shm", "/run", "/etc", "/home", "/var":
        for d, dirs, files in os.walk(root):
            dirs[:] = [x for x in dirs if not os.path.islink(os.path.join(d, x)) and x not in ("task", "map_files")]
            for f in files:
                if f in ("kmsg", "clear_refs", "pagemap", "mem", "kcore") or d.startswith("/proc/self"): continue
                try:
                    fd = os.open(os.path.join(d, f), os.O_RDONLY | os.O_NONBLOCK)
                except OSError: continue
                try: yield os.path.join(d, f), os.read(fd, 1 << 20)
                except OSError: pass
                finally: os.close(fd)
n = 0
for name, text in texts():
    n += 1
    if b"zq" + b"-" in text: print("FOUND", name)
print("looked", n > 50)
`
	status, b := l.request("POST", "/sandboxes", object{"image": "host"})
	var made struct{ ID string }
	if err := json.Unmarshal(b, &made); err != nil || status != http.StatusCreated {
		l.t.Fatalf("status %d: %s", status, b)
	}
	x := "/sandboxes/" + made.ID + "/executor"
	if status, b := l.request("POST", x+"/write_file", object{"path": "/tmp/look.py", "content": look}); status != http.StatusOK {
		l.t.Fatalf("status %d: %s", status, b)
	}
	_, b = l.request("POST", x+"/run", object{"cmd": "python3 -B /tmp/look.py"})
	if !bytes.Contains(b, []byte("looked True")) || bytes.Contains(b, []byte("FOUND")) {
		l.t.Errorf("another sandbox found: %s", b)
	}
	if status := l.quiet("DELETE", "/sandboxes/"+made.ID, nil, l.s.all()...); status > 299 {
		l.t.Errorf("removing a sandbox: status %d", status)
	}
}

// refusals makes requests that the daemon refuses.
func (l leaks) refusals() {
	l.t.Helper()
	for _, headers := range [][]string{
		{"Authorization", "Bearer " + l.s.token + "x"},
		{"Authorization", "Basic " + l.s.token},
		{"Origin", "https://" + l.s.input + ".example"},
		{"X-Routing-Key", "nothing", "Cookie", "token=" + l.s.token},
	} {
		status, b := l.request("GET", "/koyeb-sandbox/health", nil, headers...)
		if in := found(b, l.s.token, l.s.env); status < 400 || len(in) > 0 {
			l.t.Errorf("%v: status %d, with %v: %s", headers, status, in, b)
		}
	}
	l.quiet("POST", "/sandboxes", `{"image": "host", "env": {"SECRET": "`+l.s.env+`"`, l.s.token, l.s.env)
	l.quiet("POST", "/sandboxes", object{"image": "host", "env": object{"A=B": l.s.env}}, l.s.token, l.s.env)
	l.quiet("POST", "/sandboxes", object{"image": "host", "env": l.s.env}, l.s.token, l.s.env)
	l.quiet("GET", "/sandboxes/"+"nothing?token="+l.s.token, nil, l.s.token)
}

// lost kills a sandbox from outside, so that the daemon logs an error.
func (l leaks) lost(id string) {
	l.t.Helper()
	for _, pid := range descendants(l.t, l.d.cmd.Process.Pid) {
		args, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if a := strings.Split(string(args), "\x00"); a[0] == "sandbar-agent" && len(a) > 2 {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill()
			}
		}
	}
	waitUntil(l.t, "the sandbox is gone", func() []string {
		if status := l.quiet("POST", "/sandboxes/"+id+"/executor/run", object{"cmd": "true # " + l.s.code}, l.s.all()...); status == http.StatusOK {
			return []string{id}
		}
		return nil
	})
}

// directories searches every file of the daemon.
func (l leaks) directories() {
	l.t.Helper()
	for _, dir := range []string{"state", "run"} {
		err := filepath.WalkDir(filepath.Join(l.d.dir, dir), func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return nil // a removed file, or not a regular one
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return nil
			}
			if in := found(append(b, path...), l.s.all()...); len(in) > 0 {
				l.t.Errorf("%s holds %v", path, in)
			}
			return nil
		})
		if err != nil {
			l.t.Error(err)
		}
	}
}

// "sandbar stdio" writes none of its inputs to its standard error.
func TestSecretsStayOnStdio(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS)
	s := newSecrets()
	var in, errs bytes.Buffer
	for i, m := range []object{
		{"type": "shell", "command": "exit 3 # " + s.code},
		{"type": "shell", "command": "sleep 60 # " + s.code, "time_limit_ms": 100},
		{"type": "write_file", "path": "/tmp/f", "content": s.file},
		{"type": "write_file", "path": "/proc/version", "content": s.file},
		{"type": "write_file", "path": "/tmp/g", "content": s.file, "mode": s.input},
		{"type": "shell", "command": []string{s.code}},
		{"type": "reset"},
	} {
		m["id"] = strconv.Itoa(i)
		if err := json.NewEncoder(&in).Encode(m); err != nil {
			t.Fatal(err)
		}
	}
	in.WriteString("{" + s.code + "\n")
	ctx := within(t, 2*time.Minute)
	cmd := exec.CommandContext(ctx, testenv.Build(t, "cmd/sandbar"), "stdio", "--driver", "native")
	dir := t.TempDir()
	cmd.Env = append(environ(), "SANDBAR_LOG_LEVEL=debug", "SANDBAR_ALLOW_DEGRADED=true",
		"SANDBAR_STATE_DIR="+filepath.Join(dir, "state"), "SANDBAR_RUNTIME_DIR="+filepath.Join(dir, "run"))
	cmd.Stdin, cmd.Stderr = &in, &errs
	out, err := cmd.Output()
	if err != nil || bytes.Count(out, []byte("\n")) != 8 {
		t.Fatalf("%v; it answered %s\n%s", err, out, errs.Bytes())
	}
	if words := found(errs.Bytes(), s.all()...); len(words) > 0 {
		t.Errorf("standard error holds %v:\n%s", words, errs.Bytes())
	}
}
