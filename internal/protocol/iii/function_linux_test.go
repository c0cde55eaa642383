package iii

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar/internal/protocol/iii/settings"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/backend"
)

func TestTheSpecsExample(t *testing.T) {
	testenv.Need(t, testenv.Python)
	c := newReal(t, Options{}).connect()
	// docs/protocols.md, iii: "Example: create → exec → stop".
	id := c.call("sandbox::create", object{"image": "python", "cpus": 1, "memory_mb": 512})["sandbox_id"].(string)
	out := c.call("sandbox::exec", object{"sandbox_id": id, "cmd": "python3", "args": []string{"-c", "print(2 + 2)"}})
	if out["stdout"] != "4\n" || out["exit_code"] != 0.0 || out["success"] != true || out["timed_out"] != false {
		t.Errorf("%v", out)
	}
	c.call("sandbox::stop", object{"sandbox_id": strings.ToUpper(id), "wait": true})
	c.failed("sandbox::exec", object{"sandbox_id": id, "cmd": "true"}, "S002")
}

// script returns a sandbox::exec request for a shell script.
func script(s string) object { return object{"argv": []string{"sh", "-c", s}} }

func TestExec(t *testing.T) {
	c := newReal(t, Options{}).connect()
	id := c.call("sandbox::create", object{"image": "python", "env": object{"A": "create", "B": "create"}})["sandbox_id"].(string)
	c.call("sandbox::fs::write", object{"sandbox_id": id, "path": "/tmp/plain", "content": "no program", "mode": "0644"})
	c.call("sandbox::fs::write", object{"sandbox_id": id, "path": "/tmp/prog", "content": "#!/bin/sh\necho I ran with $1\n", "mode": "0755"})
	for _, x := range []struct {
		name   string
		ask    object
		stdout string
		stderr string
		exit   int
	}{
		{"a command line", object{"cmd": `echo 'a  b' "c" $HOME && x`}, "a  b c $HOME && x\n", "", 0},
		{"a program and arguments", object{"cmd": "echo", "args": []string{"a  b", "$HOME"}}, "a  b $HOME\n", "", 0},
		{"argv", object{"argv": []string{"echo", "-n", "x y"}}, "x y", "", 0},
		{"a path", object{"cmd": "/tmp/prog me"}, "I ran with me\n", "", 0},
		{"a relative path from /", object{"cmd": "tmp/prog you"}, "I ran with you\n", "", 0},
		{"both outputs", script("echo out; echo err >&2; exit 3"), "out\n", "err\n", 3},
		{"the directory", script("pwd"), "/\n", "", 0},
		{"another directory", object{"cmd": "pwd", "workdir": "/tmp"}, "/tmp\n", "", 0},
		{"input", object{"cmd": "cat", "stdin": b64("in\x00put")}, "in\x00put", "", 0},
		{"no input", object{"cmd": "cat"}, "", "", 0},
		{"empty input", object{"cmd": "cat", "stdin": ""}, "", "", 0},
		{"null is nothing", object{"cmd": "cat", "stdin": nil, "timeout_ms": nil, "workdir": nil}, "", "", 0},
		{"variables", object{"argv": []string{"sh", "-c", "echo $A $B $C"}, "env": object{"B": "exec", "C": "exec"}}, "create exec exec\n", "", 0},
		{"variables in a list", object{"argv": []string{"sh", "-c", "echo $A $B $C"}, "env": []string{"B=1", "B=2", "nothing", "C=x=y"}}, "create 2 x=y\n", "", 0},
		{"a signal", script("kill -9 $$"), "", "", 137},
		{"another signal", script("kill -15 $$"), "", "", 143},
		{"not there", object{"cmd": "no-such-program"}, "", "exec: no-such-program: not found\n", 127},
		{"not there either", object{"cmd": "/tmp/plain/x"}, "", "exec: /tmp/plain/x: not found\n", 127},
		{"not a program", object{"cmd": "/tmp/plain"}, "", "exec: /tmp/plain: permission denied\n", 126},
		{"no such directory", object{"cmd": "pwd", "workdir": "/nope"}, "", "exec: pwd: not found\n", 127},
		{"not UTF-8", script(`printf 'a\377\376b\303'`), "a\ufffd\ufffdb\ufffd", "", 0},
		{"in the background", script("sleep 1000 >/dev/null 2>&1 & echo done"), "done\n", "", 0},
		{"unknown fields", object{"cmd": "true", "_caller_worker_id": "x", "more": 1}, "", "", 0},
	} {
		t.Run(x.name, func(t *testing.T) {
			x.ask["sandbox_id"] = id
			got := c.call("sandbox::exec", x.ask)
			delete(got, "duration_ms")
			want := object{"stdout": x.stdout, "stderr": x.stderr, "exit_code": float64(x.exit), "timed_out": false, "success": x.exit == 0}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestExecCutsOutputAndSaysSo(t *testing.T) {
	c := newReal(t, Options{}).connect()
	id := c.create()
	for _, x := range []struct {
		size      int
		truncated bool
	}{{1<<20 - 1, false}, {1 << 20, false}, {1<<20 + 1, true}, {8 << 20, true}} {
		r := c.call("sandbox::exec", object{"sandbox_id": id, "argv": []string{"sh", "-c",
			fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x; head -c %d /dev/zero | tr '\\0' y >&2; echo end >/tmp/end", x.size, x.size)}})
		_, told := r["truncated"]
		n := min(x.size, 1<<20)
		if r["success"] != true || told != x.truncated || r["stdout"] != strings.Repeat("x", n) || r["stderr"] != strings.Repeat("y", n) {
			t.Errorf("%d bytes: %d and %d came, truncated %v, exit %v", x.size, len(r["stdout"].(string)), len(r["stderr"].(string)), told, r["exit_code"])
		}
		if c.sh(id, "cat /tmp/end; rm /tmp/end") != "end\n" {
			t.Error("the program did not run to its end")
		}
	}
}

func TestExecOutOfTime(t *testing.T) {
	c := newReal(t, Options{Config: config(func(c *settings.Config) { c.MaxExecTimeoutMS = 5000 })}).connect()
	id := c.create()
	d := c.failed("sandbox::exec", object{"sandbox_id": id, "argv": []string{"sh", "-c", "echo before; echo too >&2; sleep 1000"},
		"timeout_ms": 2000, "env": object{"A": "b"}}, "S200")
	if d["message"] != "exec timed out after 2000 ms" {
		t.Errorf("%v", d["message"])
	}
	if diff := cmp.Diff(map[string]any{"stdout": "before\n", "stderr": "too\n"}, d["partial"]); diff != "" {
		t.Errorf("partial (-want +got):\n%s", diff)
	}
	// The fix is the same call with more time.
	fix := object(d["fix"].(map[string]any))
	if fix["timeout_ms"] != 4000.0 || fix["sandbox_id"] != id || fmt.Sprint(fix["env"]) != "map[A:b]" {
		t.Errorf("the fix is %v", fix)
	}
	d = c.failed("sandbox::exec", object{"sandbox_id": id, "cmd": "sleep 1000", "timeout_ms": 300}, "S200")
	if fix, _ := d["fix"].(map[string]any); fix["timeout_ms"] != 1000.0 {
		t.Errorf("the fix of a short time is %v", fix)
	}
	// A time limit beyond the maximum is reduced to it, and then there is no fix.
	d = c.failed("sandbox::exec", object{"sandbox_id": id, "cmd": "sleep 1000", "timeout_ms": 9_000_000}, "S200")
	if d["message"] != "exec timed out after 5000 ms" || d["fix"] != nil || d["fix_note"] == nil || d["partial"] != nil {
		t.Errorf("%v", d)
	}
	d = c.failed("sandbox::exec", object{"sandbox_id": id, "cmd": "true", "timeout_ms": 0}, "S200")
	if d["message"] != "exec timed out after 0 ms" {
		t.Errorf("%v", d)
	}
	if c.sh(id, "echo usable") != "usable\n" {
		t.Error("the sandbox cannot be used any more")
	}
}

// TestExecSlots fills every slot with a program that waits for a FIFO.
func TestExecSlots(t *testing.T) {
	c := newReal(t, Options{}).connect()
	id := c.create()
	c.sh(id, "mkfifo /tmp/fifo; : >/tmp/up")
	var running []chan message
	for range 4 {
		running = append(running, c.begin("sandbox::exec", text(object{"sandbox_id": id, "argv": []string{"sh", "-c", "echo up >>/tmp/up; read x </tmp/fifo"}})))
	}
	c.eventually(func() bool { return c.only(id)["exec_in_flight"] == 4.0 })
	if s := c.only(id); s["exec_in_progress"] != true || s["exec_slots_free"] != 0.0 {
		t.Errorf("%v", s)
	}
	d := c.failed("sandbox::exec", object{"sandbox_id": id, "cmd": "true"}, "S003")
	if !strings.Contains(d["message"].(string), "sandbox "+id+" is at its exec concurrency cap") {
		t.Errorf("%v", d["message"])
	}
	// File operations are not programs: a search needs no slot. A slot is taken before its program
	// runs, and a program that did not run yet would end differently.
	c.eventually(func() bool {
		up := c.call("sandbox::fs::grep", object{"sandbox_id": id, "path": "/tmp/up", "pattern": "up"})
		return len(up["matches"].([]any)) == 4
	})
	c.call("sandbox::stop", object{"sandbox_id": id, "wait": true})
	for _, r := range running {
		m := await(t, r)
		if m.Error == nil {
			t.Fatalf("it succeeded: %s", m.Result)
		}
		c.detail(m.Error, "S300")
	}
}

// only returns the sandbox's entry in sandbox::list.
func (c *client) only(id string) object {
	c.t.Helper()
	for _, s := range c.call("sandbox::list", object{})["sandboxes"].([]any) {
		if o := s.(map[string]any); o["sandbox_id"] == id {
			return o
		}
	}
	return nil
}

func TestRun(t *testing.T) {
	testenv.Need(t, testenv.Python, testenv.Node)
	r := newReal(t, Options{})
	c := r.connect()
	for _, x := range []struct {
		name, lang, code, stdout string
		more                     object
	}{
		{"node", "node", "console.log('hello from sandbox')", "hello from sandbox\n", nil},
		{"js", "js", "console.log(__filename)", "/tmp/run.js\n", nil},
		{"python", "python", "print(6*7)", "42\n", nil},
		{"py", "py", "import sys; print(sys.stdin.read())", "in\n", object{"stdin": b64("in")}},
		{"shell", "shell", "echo $0 $A", "/tmp/run.sh b\n", object{"env": object{"A": "b"}}},
		{"bash", "bash", "cat /tmp/x/data", "d", object{"files": []object{{"path": "/tmp/x/data", "content": "d"}}}},
		{"another interpreter", "/bin/cat", "itself", "itself", nil},
	} {
		if (x.lang == "node" || x.lang == "js") && !backend.Has(t, "javascript") {
			continue
		}
		t.Run(x.name, func(t *testing.T) {
			ask := object{"image": "node", "lang": x.lang, "code": x.code}
			for k, v := range x.more {
				ask[k] = v
			}
			got := c.call("sandbox::run", ask)
			if got["stdout"] != x.stdout || got["exit_code"] != 0.0 || got["success"] != true {
				t.Errorf("%v", got)
			}
			if _, there := got["sandbox_id"]; there {
				t.Error("there is a sandbox_id")
			}
		})
	}
	if n := len(c.call("sandbox::list", object{})["sandboxes"].([]any)); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
	kept := c.call("sandbox::run", object{"image": "node", "lang": "shell", "code": "exit 5", "keep_sandbox": true, "env": []string{"K=v"}})
	if kept["exit_code"] != 5.0 || kept["success"] != false {
		t.Errorf("%v", kept)
	}
	if out := c.sh(kept["sandbox_id"].(string), "cat /tmp/run.sh; echo $K"); out != "exit 5v\n" {
		t.Errorf("the kept sandbox says %q", out)
	}
}

func TestRunTellsTheStep(t *testing.T) {
	c := newReal(t, Options{}).connect()
	for _, x := range []struct {
		step, code string
		more       object
	}{
		{"create", "S100", object{"image": "nope"}},
		{"create", "S001", object{"env": object{"9": "x"}}},
		{"fs::write (sibling file)", "S216", object{"files": []object{{"path": "/tmp", "content": ""}}}},
		{"exec", "S001", object{"lang": ""}},
		{"exec", "S001", object{"lang": "two words"}},
		{"exec", "S001", object{"stdin": "!"}},
		{"exec", "S200", object{"code": "sleep 100", "timeout_ms": 100}},
	} {
		ask := object{"image": "node", "lang": "shell", "code": "true"}
		for k, v := range x.more {
			ask[k] = v
		}
		m := c.invoke("sandbox::run", text(ask))
		if m.Error == nil {
			t.Fatalf("%s: %s", x.step, m.Result)
		}
		d := c.detail(m.Error, x.code)
		message, fix := d["message"].(string), d["fix"].(map[string]any)
		if !strings.HasPrefix(message, "during sandbox::run step `"+x.step+"` (sandbox_id=") ||
			fix["context"] != "during sandbox::run step `"+x.step+"`" || fix["inner_code"] != x.code || d["fix_note"] != nil {
			t.Errorf("%s: %v", x.step, d)
		}
	}
	if n := len(c.call("sandbox::list", object{})["sandboxes"].([]any)); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
	d := c.failed("sandbox::run", object{"image": "node", "lang": "shell", "code": "sleep 100", "timeout_ms": 100, "keep_sandbox": true}, "S200")
	if id := d["fix"].(map[string]any)["sandbox_id"].(string); c.sh(id, "cat /tmp/run.sh") != "sleep 100" {
		t.Error("the sandbox was not kept")
	}
}

func TestListAndStop(t *testing.T) {
	c := newReal(t, Options{Config: config(func(c *settings.Config) { c.MaxConcurrentSandboxes = 2 })}).connect()
	if got := text(c.call("sandbox::list", object{})); got != `{"sandboxes":[]}` {
		t.Errorf("%s", got)
	}
	a := c.call("sandbox::create", object{"image": "python", "name": "first"})["sandbox_id"].(string)
	b := c.create()
	want := []any{
		map[string]any{"sandbox_id": a, "name": "first", "image": "python", "age_secs": 0.0, "exec_in_progress": false,
			"exec_in_flight": 0.0, "exec_slots_free": 4.0, "stopped": false},
		map[string]any{"sandbox_id": b, "name": nil, "image": "python", "age_secs": 0.0, "exec_in_progress": false,
			"exec_in_flight": 0.0, "exec_slots_free": 4.0, "stopped": false},
	}
	got := c.call("sandbox::list", object{})["sandboxes"].([]any)
	for _, s := range got { // a loaded machine needs time
		s.(map[string]any)["age_secs"] = 0.0
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	d := c.failed("sandbox::create", object{"image": "python"}, "S400")
	if d["message"] != "resource limit exceeded: max_concurrent_sandboxes (2) reached" {
		t.Errorf("%v", d["message"])
	}
	for i, id := range []string{a, b} {
		forms := []string{"{" + id + "}", "urn:uuid:" + strings.ToUpper(id)}
		r := c.call("sandbox::stop", object{"sandbox_id": forms[i], "wait": i == 1})
		if r["sandbox_id"] != id || r["stopped"] != true {
			t.Errorf("%v", r)
		}
		c.failed("sandbox::stop", object{"sandbox_id": strings.ReplaceAll(id, "-", "")}, "S002")
	}
	c.create() // a slot is free again
}

// TestSandboxesShareNothing tests that two sandboxes of one image share no writable file.
func TestSandboxesShareNothing(t *testing.T) {
	c := newReal(t, Options{}).connect()
	a, b := c.create(), c.create()
	places := []string{"/tmp", "/var/tmp", "/home/user", "/dev/shm", "/usr", "/etc", "/run"}
	wrote := c.sh(a, "for d in "+strings.Join(places, " ")+"; do echo secret 2>/dev/null >$d/planted && echo $d; done; true")
	if !slices.Contains(strings.Fields(wrote), "/tmp") {
		t.Errorf("nothing could be written: %q", wrote)
	}
	if seen := c.sh(b, "ls -d "+strings.Join(places, "/planted ")+"/planted 2>/dev/null; true"); seen != "" {
		t.Errorf("the other sandbox sees %s", seen)
	}
}

func TestCallsAtTheSameTime(t *testing.T) {
	c := newReal(t, Options{Config: config(func(c *settings.Config) { c.MaxConcurrentExecPerSandbox = 50 })}).connect()
	id := c.create()
	var all []chan message
	for i := range 50 {
		all = append(all, c.begin("sandbox::exec", text(object{"sandbox_id": id, "argv": []string{"sh", "-c", fmt.Sprintf("echo %d", i)}})))
	}
	for i, done := range all {
		m := await(t, done)
		if m.Error != nil || !strings.Contains(string(m.Result), fmt.Sprintf(`"stdout":"%d\n"`, i)) {
			t.Errorf("%d: %v, %s", i, m.Error, m.Result)
		}
	}
}
