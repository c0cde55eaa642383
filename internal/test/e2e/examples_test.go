package e2e

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// The examples of the executor protocol's specification run unchanged, in order, in one shell,
// so that they can use each other's variables. Only address, secret and process id are replaced.
func TestExecutorExamples(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.Linux, testenv.UserNS, testenv.Curl, testenv.JQ, testenv.Python, testenv.Node, testenv.PyKoyeb)
	// The directories and programs that the examples assume.
	x := newExecutor(t, nil)
	x.run(t, `mkdir -p /home/user/project /tmp/my/directory &&
		printf 'import time\nprint("Application started on port 8080", flush=True)\ntime.sleep(1000)\n' | tee /home/user/project/app.py >/home/user/server.py &&
		printf 'import sys\nprint("worker", *sys.argv[1:])\n' >/home/user/worker.py`)

	id := x.start(t, `echo "Application started on port 8080"; sleep 0.3; echo "Warning: debug mode" >&2`)
	for i, e := range readExamples(t) {
		want := exampleAnswers[i]
		t.Run(strings.ReplaceAll(e.title, " ", "-"), func(t *testing.T) {
			if want.title != e.title {
				t.Fatalf("example %d is %q, want %q", i, e.title, want.title)
			}
			got := x.example(t, e, id, want.follows)
			if !regexp.MustCompile(want.answer).MatchString(got) {
				t.Errorf("got %s\nwant a match of %s", got, want.answer)
			}
		})
	}
}

// exampleAnswers are the specified responses to the examples.
var exampleAnswers = []struct {
	title, answer string
	follows       string // shell text after the example: prints what it left behind
}{
	{title: "Run Command", answer: `^\{"stdout":"total .*","stderr":"","code":0\}\s*$`},
	{title: "Run Command (Streaming)", answer: `^event: output\ndata: \{"stream":"stdout","data":"1"\}\n\n` +
		`event: output\ndata: \{"stream":"stdout","data":"2"\}\n\nevent: output\ndata: \{"stream":"stdout","data":"3"\}\n\n` +
		`event: complete\ndata: \{"code":0,"error":false\}\n\n$`},
	{title: "Write File", answer: `^\{"success":true\}\s*$`},
	{title: "Read File", answer: `^\{"content":"Hello, World!"\}\s*$`},
	{title: "Delete File", answer: `^\{"success":true\}\s*$`},
	{title: "Make Directory", answer: `^\{"success":true\}\s*$`},
	{title: "Delete Directory", answer: `^\{"success":true\}\s*$`},
	{title: "List Directory", answer: `^\{"entries":\["my"\]\}\s*$`},
	{title: "Bind Port", answer: `^\{"success":true,"message":"Port binding configured","port":"8080"\}\s*$`},
	{title: "Unbind Port", answer: `^\{"success":true,"message":"Port binding removed"\}\s*$`},
	{title: "Start Process", answer: `^\{"id":"[0-9a-f-]{36}","pid":[1-9][0-9]*,"status":"running"\}\s*$`},
	{title: "List Processes", answer: `^\{"processes":\[\{.*"command":"python -u app.py".*\}\]\}\s*$`},
	{title: "Kill Process", answer: `^\{"success":false,"error":"process is not running \(status: completed\)"\}\s*$`},
	{title: "Stream Process Logs", answer: `(?s)^(id: .*\n)?event: log\n(id: .*\n)?data: \{"timestamp":"20.*Z","stream":"stdout","data":"Application started on port 8080"\}\n\n` +
		`.*"stream":"stderr","data":"Warning: debug mode"\}\n\n.*event: complete\ndata: \{"message":"stream ended"\}\n\n$`},
	{title: "Stream Process Logs", answer: `(?s)^\[stdout\] Application started on port 8080\n\[stderr\] Warning: debug mode\n$`},
	{title: "Stream Process Logs", answer: `(?s)^\[stdout\] Application started on port 8080\n\[stderr\] Warning: debug mode\n$`},
	{title: "Starting and Monitoring a Long-Running Process", answer: `^Started process: [0-9a-f-]{36}\n$`},
	// The specification's text and its reference implementation say GET, its example says POST.
	{title: "Starting and Monitoring a Long-Running Process", answer: `(?i)^Method not allowed\s*$`},
	{title: "Starting and Monitoring a Long-Running Process", answer: `"command": "python -u server.py"`},
	{title: "Starting and Monitoring a Long-Running Process", answer: `^\{"success":true,"message":"Process killed successfully"\}\s*$`},
	{title: "Running Multiple Concurrent Processes", answer: `(?s)"command": "python worker.py --task=1".*"command": "python worker.py --task=2".*event: complete`},
}

type example struct{ title, language, code string }

func readExamples(t *testing.T) (all []example) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "executor-examples.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?s)## ([^\n]*)\n\n```([a-z]+)\n(.*?)\n```").FindAllStringSubmatch(string(b), -1) {
		all = append(all, example{m[1], m[2], m[3]})
	}
	if len(all) != len(exampleAnswers) {
		t.Fatalf("%d examples, and %d answers", len(all), len(exampleAnswers))
	}
	return all
}

// example runs one example and returns its output. A file carries the shell's variables from one
// example to the next.
func (x *executor) example(t *testing.T, e example, id, follows string) string {
	t.Helper()
	code := strings.NewReplacer("localhost:8080", x.addr, "your-secret", x.secret,
		"550e8400-e29b-41d4-a716-446655440000", id).Replace(e.code)
	vars := filepath.Join(x.dir, "variables")
	var args []string
	switch e.language {
	case "bash":
		args = []string{"/bin/bash", "-c", "touch " + vars + "; . " + vars + "\n" + code + "\n" + follows +
			"\nset | grep -E '^(PROCESS_ID|WORKER_[12])=' >" + vars + " || true"}
	case "javascript":
		args = []string{"/usr/bin/node", "--input-type=module", "-e", code}
	case "python":
		args = []string{"/usr/bin/python3", "-c", code}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(environ(), "PYTHONPATH="+testenv.KoyebPath(), "PYTHONDONTWRITEBYTECODE=1", "NO_PROXY=*")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%v: %s", err, stderr.String())
	}
	return string(out)
}

// run runs a command in the executor's sandbox, which must succeed.
func (x *executor) run(t *testing.T, cmd string) string {
	t.Helper()
	var answer struct {
		Stdout, Stderr string
		Code           int
	}
	x.ask(t, "/run", map[string]any{"cmd": cmd}, &answer)
	if answer.Code != 0 {
		t.Fatalf("%s: exit code %d: %s", cmd, answer.Code, answer.Stderr)
	}
	return answer.Stdout
}

// start starts a process that exits by itself, waits for its exit, and returns its id.
func (x *executor) start(t *testing.T, cmd string) string {
	t.Helper()
	var started struct{ ID string }
	x.ask(t, "/start_process", map[string]any{"cmd": cmd}, &started)
	for range 1000 {
		var list struct{ Processes []struct{ ID, Status string } }
		x.ask(t, "/list_processes", nil, &list)
		for _, p := range list.Processes {
			if p.ID == started.ID && p.Status == "completed" {
				return p.ID
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the process does not end")
	return ""
}

func decode(t *testing.T, b []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
}
