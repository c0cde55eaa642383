package executor

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/protocol/bulk"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/backend"
)

// newReal is newRig over real sandboxes, for behaviour of real programs: native ones, or below
// TestOver those of another driver.
func newReal(t testing.TB, o Options) *rig {
	t.Helper()
	return newRig(t, backends.New(t), engine.Config{
		AllowDegraded: true, IdleTimeout: -1,
		Default: sandbar.Limits{Memory: 1 << 30, Disk: 3 << 30, Timeout: 5 * time.Minute, Output: 64 << 20},
		Max:     sandbar.Limits{Memory: 4 << 30},
	}, o)
}

// wantRun runs a command and compares the whole response.
func (r *rig) wantRun(cmd string, want m) {
	r.t.Helper()
	if got := fmt.Sprint(r.run(cmd)); got != fmt.Sprint(want) {
		r.t.Errorf("%s\n got %.300s\nwant %.300s", cmd, got, fmt.Sprint(want))
	}
}

func TestRun(t *testing.T) {
	r := newReal(t, Options{})
	r.wantRun("echo hello", m{"stdout": "hello\n", "stderr": "", "code": 0.0})
	r.wantRun("", m{"stdout": "", "stderr": "", "code": 0.0})
	r.wantRun("echo no >&2; exit 3", m{"stdout": "", "stderr": "no\n", "code": 3.0, "error": "Non-zero exit code"})
	r.wantRun("kill -9 $$", m{"stdout": "", "stderr": "", "code": -1.0, "error": "Non-zero exit code"})
	r.wantRun("cat; pwd", m{"stdout": "/home/user\n", "stderr": "", "code": 0.0})
	r.wantRun(`printf 'a\377b\342\202'`, m{"stdout": "a\uFFFDb\uFFFD", "stderr": "", "code": 0.0})
	got := r.call("/run", m{"cmd": `printf 'a\377b'`, "encoding": "base64"})
	if got["stdout"] != base64.StdEncoding.EncodeToString([]byte("a\xffb")) || got["encoding"] != "base64" {
		t.Errorf("base64: %v", got)
	}
	got = r.call("/run", m{"cmd": "pwd; echo $A", "cwd": "/tmp", "env": m{"A": "b c"}, "unknown": []any{1, m{}}})
	if got["stdout"] != "/tmp\nb c\n" {
		t.Errorf("cwd and env: %v", got)
	}
}

// TestWorkingDirectory tests that an invalid working directory is a bad request at every endpoint.
func TestWorkingDirectory(t *testing.T) {
	r := newReal(t, Options{})
	r.run("mkdir /tmp/d; ln -s d /tmp/link; ln -s nowhere /tmp/dangling; touch /tmp/file; mkdir rel")
	for _, path := range []string{"/run", "/run_streaming", "/start_process"} {
		for _, cwd := range []string{"/nowhere", "/tmp/file", "/tmp/dangling", "/tmp/file/x", "no/such", "\x00", strings.Repeat("x", 5000)} {
			b, _ := json.Marshal(m{"cmd": "echo x", "cwd": cwd})
			a := r.post(path, string(b))
			if a.status != 400 || !strings.HasPrefix(a.body, "Invalid working directory: "+cwd[:1]) {
				t.Errorf("%s in %.20q: %d %.100q", path, cwd, a.status, a.body)
			}
		}
		for _, cwd := range []string{"/tmp/d", "/tmp/link", "rel", "."} {
			b, _ := json.Marshal(m{"cmd": "pwd", "cwd": cwd})
			if a := r.post(path, string(b)); a.status > 299 {
				t.Errorf("%s in %q: %d %q", path, cwd, a.status, a.body)
			}
		}
	}
}

// TestRunReadsBothPipes writes 200 kB to one pipe while the other is open: a server that read one
// pipe to its end first would block for ever.
func TestRunReadsBothPipes(t *testing.T) {
	r := newReal(t, Options{})
	const cmd = "head -c 200000 /dev/zero | tr '\\0' e >&2; head -c 200000 /dev/zero | tr '\\0' o; echo end"
	got := r.run(cmd)
	if got["stderr"] != strings.Repeat("e", 200000) || got["stdout"] != strings.Repeat("o", 200000)+"end\n" || got["code"] != 0.0 {
		t.Errorf("%d bytes of stderr, %d of stdout, code %v", len(got["stderr"].(string)), len(got["stdout"].(string)), got["code"])
	}
	all := r.runStreaming(cmd).all()
	if fmt.Sprint(texts(all, "stderr")) != "["+strings.Repeat("e", 200000)+"]" || fmt.Sprint(texts(all, "stdout")) != "["+strings.Repeat("o", 200000)+"end]" {
		t.Errorf("streamed: %d events", len(all))
	}
}

// alive counts the sandbox's processes whose command has this word.
func (r *rig) alive(word string) int {
	r.t.Helper()
	out := r.run(`n=0; for p in /proc/[0-9]*; do [ "${p#/proc/}" != $$ ] && tr '\0' ' ' <$p/cmdline 2>/dev/null | grep -q "` + word + `" && grep -q '^State:.[^Z]' $p/status 2>/dev/null && n=$((n+1)); done; echo $n`)
	n, err := strconv.Atoi(strings.TrimSpace(fmt.Sprint(out["stdout"])))
	if err != nil {
		r.t.Fatalf("%v", out)
	}
	return n
}

// TestBackgroundChildren tests that a command with a background process ends, with all of its own
// output.
func TestBackgroundChildren(t *testing.T) {
	r := newReal(t, Options{})
	for range 20 {
		r.wantRun("sleep 1000 & echo x", m{"stdout": "x\n", "stderr": "", "code": 0.0})
		if all := r.runStreaming("sleep 1000 & echo x").all(); len(all) != 2 || all[0].data["data"] != "x" || all[1].raw != `{"code":0,"error":false}` {
			t.Errorf("streamed: %v", all)
		}
	}
	if n := r.alive("sleep 1000"); n != 40 {
		t.Errorf("%d of 40 are still there", n)
	}
}

// TestWholeTreesEnd tests that all descendants of a program end when it is killed or its client
// leaves.
func TestWholeTreesEnd(t *testing.T) {
	r := newReal(t, Options{})
	const tree = `trap '' TERM; setsid sh -c 'trap "" TERM; sleep 2000; sleep 2000' & (setsid setsid sleep 2000 &) ; sleep 2000 & echo up; wait; sleep 2000`
	for round := range 5 {
		id := r.start(tree)
		log := r.logs(id, "")
		if e := log.event(); e.data["data"] != "up" {
			t.Fatalf("%v", e)
		}
		if got := r.call("/kill_process", m{"id": id}); got["success"] != true {
			t.Errorf("kill: %v", got)
		}
		if n := r.alive("sleep 2000"); n != 0 {
			t.Errorf("round %d: %d processes are left of a killed one", round, n)
		}
		// Before its own end, a shell may have reported that its child was killed.
		if all := log.all(); len(all) == 0 || all[len(all)-1].name != "complete" {
			t.Errorf("the log of a killed process: %v", all)
		}
		s := r.runStreaming(tree)
		s.event()
		s.resp.Body.Close()
		r.await("the end of what a client left behind", func() bool { return r.alive("sleep 2000") == 0 })
	}
	got := r.call("/run", m{"cmd": tree, "timeout": 5.5})
	if got["code"] != -1.0 || got["stdout"] != "up\n" || got["error"] != "timed out after 5.5s" {
		t.Errorf("timeout: %v", got)
	}
	if n := r.alive("sleep 2000"); n != 0 {
		t.Errorf("%d processes are left of one that timed out", n)
	}
}

// TestLongRealLine tests that a line of 2 MiB is one event of a stream, and complete in a log.
func TestLongRealLine(t *testing.T) {
	r := newReal(t, Options{})
	const cmd = "head -c 2097152 /dev/zero | tr '\\0' z; echo; echo after"
	want := strings.Repeat("z", 2<<20)
	if got := texts(r.runStreaming(cmd).all(), "stdout"); len(got) != 2 || got[0] != want || got[1] != "after" {
		t.Errorf("streamed: %d lines", len(got))
	}
	got := texts(r.logs(r.start(cmd), "").all(), "stdout")
	if len(got) < 2 || strings.Join(got[:len(got)-1], "") != want || got[len(got)-1] != "after" {
		t.Errorf("logged: %d lines", len(got))
	}
}

func TestInvalidUTF8(t *testing.T) {
	r := newReal(t, Options{})
	const cmd = `printf 'a\377b\nc\342\202\n\342\202\254\n\360\237\230'; printf '\200\n'`
	want := "[a\uFFFDb c\uFFFD € 😀]"
	if got := fmt.Sprint(texts(r.runStreaming(cmd).all(), "stdout")); got != want {
		t.Errorf("streamed: %q", got)
	}
	if got := fmt.Sprint(texts(r.logs(r.start(cmd), "").all(), "stdout")); got != want {
		t.Errorf("logged: %q", got)
	}
}

// TestShortProcesses tests, repeatedly, that the last lines of a short process are not lost.
func TestShortProcesses(t *testing.T) {
	r := newReal(t, Options{KeepLines: 20_000, KeepBytes: 1 << 30})
	for round := range 4 {
		const cmd = "seq 10000; seq 10000 >&2"
		sources := map[string]*sseReader{"run_streaming": r.runStreaming(cmd), "logs": r.logs(r.start(cmd), "")}
		id := r.start(cmd)
		r.await("the end", func() bool { return r.listed(id)["status"] == "completed" })
		sources["logs of the past"] = r.logs(id, "")
		for name, s := range sources {
			all := s.all()
			for _, stream := range []string{"stdout", "stderr"} {
				if err := counted(texts(all, stream), 10000); err != nil {
					t.Errorf("round %d, %s, %s: %v", round, name, stream, err)
				}
			}
			if all[len(all)-1].name != "complete" {
				t.Errorf("round %d, %s: ends with %v", round, name, all[len(all)-1])
			}
		}
	}
}

// counted checks that the lines are 1 to n.
func counted(lines []string, n int) error {
	for i, l := range lines {
		if l != strconv.Itoa(i+1) {
			return fmt.Errorf("line %d is %.40q", i+1, l)
		}
	}
	if len(lines) != n {
		return fmt.Errorf("%d lines of %d", len(lines), n)
	}
	return nil
}

// TestHundredSubscribers tests a hundred concurrent readers of a real process, half of them from
// its start and half from its middle.
func TestHundredSubscribers(t *testing.T) {
	r := newReal(t, Options{})
	id := r.start("seq 2000; while [ ! -e /tmp/go ]; do sleep 0.01; done; seq 2001 4000")
	var all sync.WaitGroup
	var firsts sync.WaitGroup
	firsts.Add(50)
	follow := func(c int) {
		s := r.logs(id, "")
		all.Go(func() {
			var events []sse
			for range 100 {
				events = append(events, s.event())
			}
			if c < 50 {
				firsts.Done()
			}
			events = append(events, s.all()...)
			if err := counted(texts(events, "stdout"), 4000); err != nil {
				t.Errorf("subscriber %d: %v", c, err)
			}
		})
	}
	for c := range 50 {
		follow(c)
	}
	firsts.Wait()
	for c := range 50 {
		follow(50 + c)
	}
	r.run("touch /tmp/go")
	all.Wait()
}

// TestKillDuringOutput kills a process while it prints: its output has no gap, and the stream ends
// properly.
func TestKillDuringOutput(t *testing.T) {
	r := newReal(t, Options{KeepLines: 1 << 30, KeepBytes: 1 << 40})
	for round := range 5 {
		id := r.start("i=0; while :; do i=$((i+1)); echo $i; done")
		s := r.logs(id, "")
		var all []sse
		for range 1000 {
			all = append(all, s.event())
		}
		if got := r.call("/kill_process", m{"id": id}); got["success"] != true {
			t.Errorf("kill: %v", got)
		}
		all = append(all, s.all()...)
		lines := texts(all, "stdout")
		// The kill may have cut the last line.
		if err := counted(lines[:len(lines)-1], len(lines)-1); err != nil || all[len(all)-1].name != "complete" {
			t.Errorf("round %d: %v; ends with %v", round, err, all[len(all)-1])
		}
		if again := texts(r.logs(id, "").all(), "stdout"); len(again) != len(lines) {
			t.Errorf("round %d: %d lines live, %d afterwards", round, len(lines), len(again))
		}
	}
}

// TestEveryLine tests that a program with more output than fits into memory loses no line, although
// its client is slow at first.
func TestEveryLine(t *testing.T) {
	r := newReal(t, Options{})
	const n = 300_000
	s := r.runStreaming(fmt.Sprintf("seq %d", n))
	for next := 1; ; next++ {
		e := s.event()
		if e.name == "complete" {
			if next != n+1 {
				t.Errorf("%d lines of %d", next-1, n)
			}
			return
		}
		if e.data["data"] != strconv.Itoa(next) {
			t.Fatalf("line %d is %v", next, e.data)
		}
	}
}

// TestRealFiles tests the kernel's treatment of special files.
func TestRealFiles(t *testing.T) {
	r := newReal(t, Options{})
	r.run(`cd /tmp; mkfifo fifo; mkdir full; touch full/x; echo old >old; chmod 640 old; ln -s old link; mkdir in; ln -s ../in/new in/rel; ln -s loop loop;
		ln -s nowhere/x broken; touch locked; chmod 444 locked; printf 'a\377b' >bytes; touch "$(printf 'bad\377name')"; mkdir closed; chmod 0 closed; ln -s in lindir`)
	const ok = `{"success":true}`
	no := func(text string) string { return `{"success":false,"error":"` + text + `"}` }
	r.wantJSON("/read_file", `{"path":"/tmp"}`, `{"content":"","error":"read /tmp: is a directory"}`)
	r.wantJSON("/read_file", `{"path":"/tmp/old/x"}`, `{"content":"","error":"open /tmp/old/x: not a directory"}`)
	r.wantJSON("/read_file", `{"path":"/tmp/bytes"}`, `{"content":"a`+"\uFFFD"+`b"}`)
	r.wantJSON("/read_file", `{"path":"/tmp/loop"}`, `{"content":"","error":"open /tmp/loop: too many levels of symbolic links"}`)
	r.wantJSON("/read_file", `{"path":"../../tmp/old"}`, `{"content":"old\n"}`)
	for _, path := range []string{"/tmp/fifo", "/dev/zero", "/proc/self/environ"} {
		if got := r.call("/read_file", m{"path": path}); got["error"] == nil || got["content"] != "" {
			t.Errorf("read %s: %v", path, got)
		}
	}
	for _, path := range []string{"/tmp/fifo", "/dev/null"} {
		r.wantJSON("/write_file", `{"path":"`+path+`","content":"x"}`, no("open "+path+": not a regular file"))
	}
	r.wantJSON("/write_file", `{"path":"/tmp/old/x","content":"x"}`, no("open /tmp/old/x: not a directory"))
	if !backend.Root(t) {
		r.wantJSON("/write_file", `{"path":"/tmp/locked","content":"x"}`, no("open /tmp/locked: permission denied"))
	}
	readOnly := "read-only file system"
	if backend.Name(t) == "gvisor" {
		readOnly = "permission denied" // gVisor checks this first, and root owns /usr
	}
	if !backend.Root(t) {
		r.wantJSON("/write_file", `{"path":"/usr/x","content":"x"}`, no("open /usr/x: "+readOnly))
	}
	r.wantJSON("/write_file", `{"path":"/tmp/loop","content":"x"}`, no("open /tmp/loop: too many levels of symbolic links"))
	r.wantJSON("/write_file", `{"path":"/tmp/broken","content":"x"}`, no("open /tmp/broken: no such file or directory"))
	r.wantJSON("/write_file", `{"path":"/tmp/..","content":"x"}`, no("open /tmp/..: is a directory"))
	r.wantJSON("/write_file", `{"path":"/tmp/a\u0000b","content":"x"}`, no(`open /tmp/a\u0000b: invalid argument`))
	// Links are followed and kept; a mode is kept.
	r.wantJSON("/write_file", `{"path":"/tmp/link","content":"new"}`, ok)
	r.wantJSON("/write_file", `{"path":"/tmp/lindir/rel","content":"through"}`, ok)
	r.wantRun("cd /tmp; stat -c '%A %s' old; readlink link; cat in/new; stat -c %a in/new; readlink in/rel", m{"stdout": "-rw-r----- 3\nold\nthrough644\n../in/new\n", "stderr": "", "code": 0.0})
	r.wantJSON("/delete_file", `{"path":"/tmp/full"}`, no("remove /tmp/full: directory not empty"))
	r.wantJSON("/delete_file", `{"path":"/tmp/link"}`, ok)
	r.wantJSON("/make_dir", `{"path":"/tmp/old"}`, no("mkdir /tmp/old: not a directory"))
	r.wantJSON("/make_dir", `{"path":"/tmp/old/x/y"}`, no("mkdir /tmp/old/x/y: not a directory"))
	r.wantJSON("/make_dir", `{"path":"/tmp/lindir"}`, ok)
	for _, path := range []string{"/", "/tmp/", ".", "/tmp/p/q/r", "/tmp/p/q/r"} {
		r.wantJSON("/make_dir", `{"path":"`+path+`"}`, ok)
	}
	r.wantRun("stat -c %a /tmp/p/q/r", m{"stdout": "755\n", "stderr": "", "code": 0.0})
	r.wantJSON("/list_dir", `{"path":"/tmp/old"}`, `{"entries":[],"error":"readdirent /tmp/old: not a directory"}`)
	r.wantJSON("/list_dir", `{"path":"/tmp/full"}`, `{"entries":["x"]}`)
	r.wantJSON("/delete_dir", `{"path":"/tmp/full"}`, ok)
	r.wantJSON("/delete_dir", `{"path":"/tmp/nowhere"}`, ok)
	r.wantJSON("/delete_dir", `{"path":"/tmp/old"}`, ok)
	if got := fmt.Sprint(r.call("/list_dir", m{"path": "/tmp"})["entries"]); got != "[bad\uFFFDname broken bytes closed fifo in lindir locked loop p]" {
		t.Errorf("list: %s", got)
	}
	for _, path := range []string{"/tmp/fifo", "/dev/zero", "/tmp", "/tmp/loop"} {
		if a := r.get("/files?path=" + path); a.status != 409 {
			t.Errorf("GET %s: %d %q", path, a.status, a.body)
		}
	}
	if a := r.put("path=/usr/x", "x"); a.status != 403 && !backend.Root(t) {
		t.Errorf("PUT to /usr: %d %q", a.status, a.body)
	}
	if a := r.put("path=/tmp/mode&mode=600", "x"); a.status != 201 {
		t.Errorf("PUT: %d %q", a.status, a.body)
	}
	r.wantRun("stat -c %a /tmp/mode", m{"stdout": "600\n", "stderr": "", "code": 0.0})
}

// TestLongDirectory lists a directory of more than one page.
func TestLongDirectory(t *testing.T) {
	r := newReal(t, Options{})
	r.run("mkdir /tmp/many; cd /tmp/many; seq -f %05.0f 3500 | xargs touch")
	entries, _ := r.call("/list_dir", m{"path": "/tmp/many"})["entries"].([]any)
	for i, e := range entries {
		if e != fmt.Sprintf("%05d", i+1) {
			t.Fatalf("entry %d is %v", i, e)
		}
	}
	if len(entries) != 3500 {
		t.Errorf("%d entries", len(entries))
	}
}

// digits returns n bytes that do not repeat at any power of two.
func digits(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%07d\n", i)
	}
	return b.String()[:n]
}

// TestBigRealFiles tests that files of real sandboxes are transferred completely by all endpoints,
// and that an aborted upload leaves nothing.
func TestBigRealFiles(t *testing.T) {
	r := newReal(t, Options{})
	content := digits(20 << 20)
	if a := r.put("path=/tmp/big", content); a.status != 201 {
		t.Fatalf("PUT: %d %q", a.status, a.body)
	}
	q := r.request(http.MethodPut, "/files?path=/tmp/chunked", io.MultiReader(strings.NewReader(content))) // without a known length
	if a := r.send(q); a.status != 201 {
		t.Fatalf("PUT in chunks: %d %q", a.status, a.body)
	}
	for _, path := range []string{"/tmp/big", "/tmp/chunked"} {
		if a := r.get("/files?path=" + path); a.body != content {
			t.Errorf("GET %s: %d bytes", path, len(a.body))
		}
	}
	q = r.request(http.MethodGet, "/files?path=/tmp/big", nil)
	q.Header.Set("Range", "bytes=5000001-15000000")
	if a := r.send(q); a.status != 206 || a.body != content[5000001:15000001] {
		t.Errorf("a range: %d, %d bytes", a.status, len(a.body))
	}
	if got := r.call("/read_file", m{"path": "/tmp/big"}); got["content"] != content {
		t.Errorf("/read_file: %d bytes", len(got["content"].(string)))
	}
	body, _ := json.Marshal(m{"content": content})
	// encoding/json sorts the members by name, so path is put first here.
	body = append([]byte(`{"path":"/tmp/json",`), body[1:]...)
	r.wantJSON("/write_file", string(body), `{"success":true}`)
	r.wantRun("cd /tmp; cmp big json && cmp big chunked && echo same", m{"stdout": "same\n", "stderr": "", "code": 0.0})

	before := fmt.Sprint(r.call("/list_dir", m{"path": "/tmp"}))
	for name, head := range map[string]string{
		"PUT":         "PUT /files?path=/tmp/cut HTTP/1.1\r\n",
		"PUT replace": "PUT /files?path=/tmp/big HTTP/1.1\r\n",
		"write_file":  "POST /write_file HTTP/1.1\r\n",
	} {
		conn := r.raw(head + "Host: test\r\nAuthorization: Bearer " + secret + "\r\nContent-Length: 100000000\r\n\r\n")
		if name == "write_file" {
			io.WriteString(conn, `{"path":"/tmp/cut","content":"`)
		}
		io.WriteString(conn, content[:5<<20])
		conn.Close()
	}
	r.await("the broken uploads being gone", func() bool { return fmt.Sprint(r.call("/list_dir", m{"path": "/tmp"})) == before })
	if a := r.get("/files?path=/tmp/big"); a.body != content {
		t.Errorf("an upload that broke off changed the file: %d bytes", len(a.body))
	}
	r.wantJSON("/write_file", `{"path":"/tmp/cut","content":"`+strings.Repeat("x", 1<<20)+`"}`, `{"success":true}`)
	if a := r.post("/write_file", `{"path":"/tmp/cut","content":"`+strings.Repeat("y", 1<<20)+`"} trailing`); a.status != 400 {
		t.Errorf("bad JSON after the content: %d", a.status)
	}
	if a := r.get("/files?path=/tmp/cut"); a.body != strings.Repeat("x", 1<<20) {
		t.Error("a bad request changed the file")
	}
}

// TestSendfile tests that the kernel can copy a file to the connection: the writer gets the
// *os.File itself.
func TestSendfile(t *testing.T) {
	r := newReal(t, Options{})
	r.put("path=/tmp/x", "content")
	files := r.sandbox.FS()
	f, err := files.Open(t.Context(), "/tmp/x")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, ok := bulk.Innermost(f).(interface{ Fd() uintptr }); !ok {
		t.Errorf("%T is no file of the host", bulk.Innermost(f))
	}
}

// echoServer is a program that sends back everything it receives on a connection, after the
// client's half-close.
const echoServer = `import socket, threading
s = socket.create_server(("127.0.0.1", 7000))
print("listening", flush=True)
def serve(c):
    data = b""
    while b := c.recv(1 << 20): data += b
    c.sendall(data)
    c.close()
while True:
    threading.Thread(target=serve, args=(s.accept()[0],)).start()
`

// TestProxyHalfClose tests that one direction can end before the other, which many protocols use as
// the end of a request.
func TestProxyHalfClose(t *testing.T) {
	testenv.Need(t, testenv.Python)
	r := newReal(t, Options{})
	addr := r.proxy()
	r.call("/write_file", m{"path": "/tmp/echo.py", "content": echoServer})
	log := r.logs(r.start("python3 /tmp/echo.py"), "")
	if e := log.event(); e.data["data"] != "listening" {
		t.Fatalf("%v", e)
	}
	r.post("/bind_port", `{"port":"7000"}`)
	var all sync.WaitGroup
	for c := range 20 {
		conn := dial(t, addr)
		all.Go(func() {
			defer conn.Close()
			text := []byte(strings.Repeat(fmt.Sprintf("client %d ", c), 100_000))
			go func() {
				conn.Write(text)
				conn.CloseWrite()
			}()
			got, err := io.ReadAll(conn)
			if err != nil || !bytes.Equal(got, text) {
				t.Errorf("client %d: %d bytes of %d came back: %v", c, len(got), len(text), err)
			}
		})
	}
	all.Wait()
}

// TestTwoHundredClients tests two hundred concurrent clients.
func TestTwoHundredClients(t *testing.T) {
	r := newReal(t, Options{})
	var all sync.WaitGroup
	for c := range 200 {
		all.Go(func() {
			path := fmt.Sprintf("/tmp/f%d", c)
			for range 3 {
				if got := r.run(fmt.Sprintf("echo %d", c)); got["stdout"] != fmt.Sprintln(c) {
					t.Errorf("client %d: %v", c, got)
				}
				r.call("/write_file", m{"path": path, "content": path})
				if got := r.call("/read_file", m{"path": path}); got["content"] != path {
					t.Errorf("client %d: %v", c, got)
				}
			}
		})
	}
	all.Wait()
}

// TestStalledRealClient tests that a client that stops reading uses little memory and delays no
// other client.
func TestStalledRealClient(t *testing.T) {
	r := newReal(t, Options{})
	body := `{"cmd":"yes | head -c 1000000000; echo unreachable >/tmp/done"}`
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", r.http.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /run_streaming HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", secret, len(body), body)
	io.ReadFull(conn, make([]byte, 1000))
	for range 50 {
		r.wantRun("echo x", m{"stdout": "x\n", "stderr": "", "code": 0.0})
	}
	if got := r.call("/read_file", m{"path": "/tmp/done"}); got["error"] == nil {
		t.Error("the program has ended although its output was not read")
	}
}
