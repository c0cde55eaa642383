//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// cli runs a command against the daemon.
func (p *process) cli(stdin string, args ...string) (code int, stdout, stderr string) {
	p.t.Helper()
	var out, errs bytes.Buffer
	cmd := p.command(args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	if err := cmd.Run(); err != nil {
		if _, ok := errors.AsType[*exec.ExitError](err); !ok {
			p.t.Fatal(err)
		}
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func (p *process) command(args ...string) *exec.Cmd {
	cmd := exec.Command("sandbar", args...)
	cmd.Env = append(isolatedEnv(p.t, p.dir), "SANDBAR_URL=unix:"+filepath.Join(p.dir, "s"), "SANDBAR_TOKEN=t")
	return cmd
}

// expect runs a command and checks its end. The outputs are matched whole.
func (p *process) expect(code int, stdout, stderr string, args ...string) string {
	p.t.Helper()
	return p.expectWith("", code, stdout, stderr, args...)
}

func (p *process) expectWith(stdin string, code int, stdout, stderr string, args ...string) string {
	p.t.Helper()
	c, out, errs := p.cli(stdin, args...)
	match := func(pattern, text string) bool {
		return regexp.MustCompile(`(?s)\A` + pattern + `\z`).MatchString(text)
	}
	if c != code || !match(stdout, out) || !match(stderr, errs) {
		p.t.Errorf("%q: exit code %d, want %d\nstdout %q, want %q\nstderr %q, want %q", args, c, code, out, stdout, errs, stderr)
	}
	return strings.TrimSpace(out)
}

// served is a daemon with a sandbox.
func served(t *testing.T, environ []string) (p *process, id string) {
	p = serve(t, "", append(environ, "SANDBAR_TOKEN=t"))
	return p, p.expect(0, `sb_[a-z2-7]{26}\n`, ``, "create", "--name", "box", "-e", "A=1", "--idle-timeout", "300")
}

func TestRemoteLifecycle(t *testing.T) {
	eachDriver(t, func(t *testing.T, environ []string) {
		p, id := served(t, environ)
		p.expect(0, `SANDBOX_ID {28}IMAGE {7}AGE_SECS  NAME\n`+id+` {9}host {8}\d+ +box\n`, ``, "list")
		p.expect(0, id+`\tbox\n:4\n`, `.*`, "__complete", "exec", "")
		var all wire.List
		if err := json.Unmarshal([]byte(p.expect(0, `.*`, ``, "ls", "--json")), &all); err != nil || len(all.Sandboxes) != 1 || all.Sandboxes[0].IdleTimeout != 300 {
			t.Errorf("%+v, %v", all, err)
		}
		// A number alone is MiB, or seconds. Without a boundary nothing holds memory.
		memory, wantMemory := "64", wire.Amount(64<<20)
		if strings.Contains(strings.Join(environ, " "), "=local") {
			memory, wantMemory = "unlimited", wire.Unlimited
		}
		var made wire.Sandbox
		if err := json.Unmarshal([]byte(p.expect(0, `.*`, ``, "create", "--json", "host", "--label", "a=b", "--timeout", "60", "--memory", memory)), &made); err != nil ||
			made.Labels["a"] != "b" || made.Limits.Timeout != 60 ||
			made.Limits.Memory != wantMemory {
			t.Errorf("%+v, %v", made, err)
		}
		one := `SANDBOX_ID[^\n]*\n` + string(made.ID) + ` [^\n]*\n`
		p.expect(0, one, ``, "list", "--label", "a=b", "--state", "running", "--driver", made.Driver)
		p.expect(0, one, ``, "list", "-l", "a")
		p.expect(0, `SANDBOX_ID[^\n]*\n`, ``, "list", "-l", "a=b", "--name", "box")
		p.expect(0, `(-|2[^ ]*T[^ ]*)\n`, ``, "renew", "box", "--idle-timeout", "120")
		p.expect(2, ``, `sandbar: idle_timeout is out of range.*`, "renew", "box", "--idle-timeout", "1000h")
		if testenv.Freezer.Err() == nil && !strings.Contains(strings.Join(environ, " "), "=local") {
			p.expect(0, `CPU_TIME +MEMORY +MEMORY_LIMIT +FILES +PROCESSES +PROCESS_LIMIT\n[0-9.]+m?s +[0-9.]+ [kM]B .*`, ``, "stats", "box")
			p.expect(0, `.*"memory_bytes":.*`, ``, "stats", "box", "--json")
		} else {
			p.expect(1, ``, `sandbar: .*`, "stats", "box")
		}
		p.expect(0, `2[^ ]*T[^ ]* sandbox\.created `+id+`\n`, ``, "events", "--after", "oldest", "--sandbox", "box", "--type", "sandbox", "--count", "1")
		p.expect(0, `{"id":"[^"]*","type":"sandbox\.created",[^\n]*\n`, ``, "events", "--after", "oldest", "--json", "--count", "1")
		p.expect(2, ``, `sandbar: type "none" is not known .*`, "events", "--type", "none")
		p.expect(2, ``, `sandbar: state is "dead" \(allowed: running and paused\)\n.*`, "list", "--state", "dead")
		if strings.Contains(strings.Join(environ, " "), "=local") || testenv.Freezer.Err() != nil {
			p.expect(1, ``, `sandbar: the driver "(native|local)" cannot save a sandbox, so it can neither be paused nor forked \(.*driver native or vm.*\)\n`, "pause", "box")
			p.expect(1, ``, `sandbar: the driver .*`, "fork", "box", "-n", "2")
		} else {
			p.expect(0, ``, ``, "exec", id, "--", "sh", "-c", "echo kept >f")
			p.expect(0, `paused box, 1 MiB on disk\n`, ``, "pause", "box")
			p.expect(125, ``, `sandbar: sandbox `+id+` is paused .*`, "exec", id, "--", "true")
			p.expect(0, `resumed box\n`, ``, "resume", "box")
			p.expect(0, `kept\n`, ``, "exec", id, "--", "cat", "f")
			for copied := range strings.FieldsSeq(p.expect(0, `(sb_[a-z2-7]{26}\n){2}`, ``, "fork", "box", "-n", "2")) {
				p.expect(0, `kept\n`, ``, "exec", copied, "--", "cat", "f")
				p.expect(0, `stopped .*`, ``, "stop", copied)
			}
		}
		p.expect(2, ``, `sandbar: --count: 0 is out of range \(allowed: 1 to 100\)\n.*`, "fork", "box", "-n", "0")
		p.expect(1, ``, `sandbar: sandbox `+id+` is not paused.*`, "resume", "box")
		p.expect(1, ``, `sandbar: there is no sandbox "nobody" .*`, "resume", "nobody")
		p.expect(1, `stopped `+string(made.ID)+`\n`, `sandbar: there is no sandbox "nobody" \(.sandbar list. lists the sandboxes\)\n`, "stop", "nobody", string(made.ID))
		p.expect(0, `stopped box\n`, ``, "rm", "box")
		p.expect(0, `SANDBOX_ID[^\n]*\n`, ``, "list")
		p.expect(1, ``, `sandbar: there is no sandbox "box" \(.sandbar list. lists the sandboxes\)\n`, "stop", "box")
		p.ends(0, syscall.SIGTERM)
	})
}

func TestRemoteWatch(t *testing.T) {
	eachDriver(t, func(t *testing.T, environ []string) {
		p, id := served(t, environ)
		p.expect(0, ``, ``, "exec", id, "--", "mkdir", "src")
		cmd := p.command("watch", "box", "src", "--recursive", "--json")
		out := transcript{changed: make(chan struct{})}
		cmd.Stdout = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// The command prints nothing when it begins to watch, so the directory appears again and again.
		// The driver local compares listings, so it is absent for a while.
		p.expect(0, `.*`, ``, "exec", "--detach", id, "--", "sh", "-c", "while mkdir src/a; do sleep 0.5; rmdir src/a; sleep 0.5; done")
		out.await(t, `{"op":"create","path":"a"}`)
		p.expect(0, ``, ``, "exec", id, "--", "mv", "src", "gone")
		if err := cmd.Wait(); err != nil {
			t.Errorf("after the directory's end: %v", err)
		}
		p.expect(1, ``, `sandbar: .*none.*\n`, "watch", id, "none")
		p.expect(2, ``, `sandbar: .*one argument too many.*`, "watch", id, "a", "b")
	})
}

func TestRemotePreview(t *testing.T) {
	eachDriver(t, func(t *testing.T, environ []string) {
		p, id := served(t, environ)
		p.expect(0, ``, ``, "preview", "box")
		p.expect(1, ``, `sandbar: the daemon listens on a UNIX socket, .*\n`, "preview", id, "8000")
		p.expect(1, ``, `sandbar: port 8000 of sandbox .* has no preview .*\n`, "preview", id, "8000", "--remove")
		p.expect(2, ``, `sandbar: "x" is not a port \(allowed: 1 to 65535\)\n.*`, "preview", id, "x")
		p.expect(2, ``, `sandbar: PORT is missing\n.*`, "preview", id, "--public")
		p.expect(0, `\{\n  "previews": \[\]\n\}\n`, ``, "preview", id, "--json")
	})
}

func TestRemoteExec(t *testing.T) {
	eachDriver(t, func(t *testing.T, environ []string) {
		p, id := served(t, environ)
		p.expect(5, `out\n`, `err\n`, "exec", id, "--", "sh", "-c", "echo out; echo err >&2; exit 5")
		p.expect(0, `1 2 /tmp\n`, ``, "exec", "box", "-e", "B=2", "--dir", "/tmp", "--", "sh", "-c", "echo $A $B $PWD")
		p.expectWith("a\x00\xff\r\nb", 0, `a\x00\x{fffd}\r\nb`, ``, "exec", id, "--", "cat")
		p.expect(124, ``, `sandbar: killed: timeout\n`, "exec", id, "--timeout", "200ms", "--", "sleep", "1000")
		p.expect(153, `y\ny\n`, `sandbar: killed: too much output\n`, "exec", id, "--output", "4B", "--", "yes")
		p.expect(128+11, ``, ``, "exec", id, "--", "sh", "-c", "kill -SEGV $$")
		p.expect(127, ``, `sandbar: .*"no-such-program".*\n`, "exec", id, "--", "no-such-program")
		p.expect(126, ``, `sandbar: .*/etc.*\n`, "exec", id, "--", "/etc")
		p.expect(125, ``, `sandbar: there is no sandbox "nobody" \(.sandbar list. lists the sandboxes\)\n`, "exec", "nobody", "--", "true")
		p.expect(2, ``, `sandbar: .*timeout.*\n`, "exec", id, "--timeout", "10h", "--", "true")
	})
}

// Input and output are passed through unchanged, in any amount.
func TestRemoteExecIsExact(t *testing.T) {
	eachDriver(t, func(t *testing.T, environ []string) {
		p, id := served(t, environ)
		in := make([]byte, 8<<20)
		for i := range in {
			in[i] = byte(i*7 + i>>8)
		}
		code, out, errs := p.cli(string(in), "exec", id, "--", "cat")
		if code != 0 || out != string(in) || errs != "" {
			t.Errorf("exit code %d, %d bytes, %s", code, len(out), errs)
		}
	})
}

// A signal ends the command in the sandbox, and not only its client.
func TestRemoteExecIsCancelled(t *testing.T) {
	eachDriver(t, func(t *testing.T, environ []string) {
		p, id := served(t, append(environ, "SANDBAR_GRACE=50s"))
		cmd := p.command("exec", id, "--", "sh", "-c", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done")
		out := transcript{changed: make(chan struct{})}
		cmd.Stdout = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		out.await(t, "up\n")
		cmd.Process.Signal(syscall.SIGINT)
		cmd.Wait()
		if text, _ := out.look(); cmd.ProcessState.ExitCode() != 130 || text != "up\nbye\n" {
			t.Errorf("exit code %d, %q", cmd.ProcessState.ExitCode(), text)
		}
	})
}

func TestRemoteProcesses(t *testing.T) {
	eachDriver(t, func(t *testing.T, environ []string) {
		p, id := served(t, environ)
		first := p.expect(0, `[0-9a-f-]{36}\n`, ``, "exec", "-d", id, "-e", "B=x y", "--", "sh", "-c", "echo \"$B\"; echo oops >&2; exit 3")
		p.expect(0, `x y\n`, `oops\n`, "logs", "-f", id, first)
		p.expect(0, `20\S+Z x y\n`, `20\S+Z oops\n`, "logs", "-t", id, first)
		second := p.expect(0, `[0-9a-f-]{36}\n`, ``, "exec", "--detach", id, "--", "sh", "-c", "echo up; exec sleep 1000")
		follower := p.command("logs", "--follow", id, second)
		out := transcript{changed: make(chan struct{})}
		follower.Stdout = &out
		if err := follower.Start(); err != nil {
			t.Fatal(err)
		}
		out.await(t, "up\n")
		p.expect(0, `up\n`, ``, "logs", id, second)
		p.expect(0, `PROCESS_ID +PID +STATUS +EXIT +COMMAND\n`+first+`  \d+ +failed +3 +sh -c '[^\n]*\n`+second+`  \d+ +running +- +sh -c '[^\n]*\n`, ``, "ps", id)
		p.expect(0, `killed `+second+`\n`, ``, "kill", id, second)
		if err := follower.Wait(); err != nil {
			t.Errorf("the follower of a process that was killed: %v", err)
		}
		var all struct {
			Processes []struct{ ID, Status string }
		}
		if err := json.Unmarshal([]byte(p.expect(0, `.*`, ``, "ps", "--json", id)), &all); err != nil || len(all.Processes) != 2 || all.Processes[1].Status != "killed" {
			t.Errorf("%+v, %v", all, err)
		}
		p.expect(1, ``, `sandbar: process is not running \(status: killed\)\n`, "kill", id, second)
		p.expect(1, ``, `sandbar: process not found: none\n`, "logs", id, "none")
	})
}

func TestRemoteFiles(t *testing.T) {
	eachDriver(t, func(t *testing.T, environ []string) {
		p, id := served(t, environ)
		here := func(name string) string { return filepath.Join(p.dir, name) }
		write := func(name, text string, mode os.FileMode) {
			t.Helper()
			if err := os.MkdirAll(filepath.Dir(here(name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(here(name), []byte(text), mode); err != nil {
				t.Fatal(err)
			}
		}
		read := func(name string) string {
			b, err := os.ReadFile(here(name))
			if err != nil {
				t.Error(err)
			}
			return string(b)
		}
		write("f", "one\x00\xff", 0o644)
		p.expect(0, `uploaded 5 bytes to box:d/f\n`, ``, "upload", "--parents", "--mode", "600", "box", here("f"), "d/f")
		p.expect(0, `600\n`, ``, "exec", id, "--", "stat", "-c", "%a", "d/f")
		p.expect(0, `downloaded 5 bytes to `+regexp.QuoteMeta(here("g"))+`\n`, ``, "download", id, "d/f", here("g"))
		p.expect(0, `one\x00\x{fffd}`, ``, "download", id, "d/f", "-")
		if got := read("g"); got != "one\x00\xff" {
			t.Errorf("%q came back", got)
		}
		p.expectWith("two", 0, `uploaded 3 bytes to `+id+`:d/f\n`, ``, "upload", id, "-", "d/f")
		p.expect(0, `downloaded 3 bytes to `+regexp.QuoteMeta(here("f"))+`\n`, ``, "download", id, "d/f", p.dir)
		if got := read("f"); got != "two" {
			t.Errorf("%q came back", got)
		}
		p.expect(1, ``, `sandbar: in `+id+`: open no/f: no such file or directory\n`, "upload", id, here("f"), "no/f")
		p.expect(1, ``, `sandbar: in `+id+`: open none: no such file or directory\n`, "download", id, "none", here("x"))
		p.expect(2, ``, `sandbar: .*/none cannot be read: no such file or directory.*`, "upload", id, here("none"), "x")
		p.expect(0, ``, ``, "download", id, "d/f", "/dev/null")
		if info, err := os.Lstat("/dev/null"); err != nil || info.Mode().IsRegular() {
			t.Errorf("/dev/null was replaced: %v, %v", info, err)
		}

		write("tree/a", "a", 0o644)
		write("tree/sub/b", "bb", 0o755)
		write("secret", "secret", 0o644)
		if err := errors.Join(os.Symlink(here("secret"), here("tree/link")), os.Mkdir(here("tree/empty"), 0o755)); err != nil {
			t.Fatal(err)
		}
		p.expect(2, ``, `sandbar: \S+/tree is a directory: use --recursive \(-r\)\n.*`, "upload", "box", here("tree"), "t")
		p.expect(0, `uploaded 3 bytes to box:t\n`, `sandbar: skipped \S+/tree/link: not a regular file [^\n]*\n`, "upload", "-r", "box", here("tree"), "t")
		p.expect(1, ``, `sandbar: in `+id+`: .*is a directory \(use --recursive \(-r\) for a directory\)\n`, "download", id, "t", here("x"))
		p.expect(0, `a\nempty\nsub\nsub/b\n755\n`, ``, "exec", id, "--", "sh", "-c", "cd t; ls -d * sub/*; stat -c %a sub/b")
		p.expect(0, ``, ``, "exec", id, "--", "sh", "-c", "ln -s /etc/passwd t/passwd; mkfifo t/pipe")
		p.expect(0, `downloaded 3 bytes to \S+\n`, `sandbar: skipped t/passwd: not a regular file \(link\)\nsandbar: skipped t/pipe: not a regular file \(other\)\n`,
			"download", "-r", id, "t", here("back"))
		if read("back/a") != "a" || read("back/sub/b") != "bb" {
			t.Error("the tree came back otherwise")
		}
		if info, err := os.Stat(here("back/sub/b")); err != nil || info.Mode().Perm()&0o111 == 0 {
			t.Errorf("%v, %v", info, err)
		}
		// What is there as a link is replaced, not followed.
		if err := errors.Join(os.Remove(here("back/a")), os.Symlink(here("secret"), here("back/a"))); err != nil {
			t.Fatal(err)
		}
		p.expect(0, `.*`, `.*`, "download", "-r", id, "t", here("back"))
		if read("secret") != "secret" || read("back/a") != "a" {
			t.Error("a link was followed")
		}
		if left, err := filepath.Glob(here("back/.sandbar-*")); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
}

// No file name in a sandbox leads out of the directory of a download.
func TestHostileNames(t *testing.T) {
	for _, name := range []string{"..", ".", "", "/etc/x", "a/b", "../x", "a\x00b"} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/dir") {
				json.NewEncoder(w).Encode(wire.Dir{Entries: []wire.Entry{{Name: name, Type: wire.TypeFile, Mode: "0644"}}})
				return
			}
			io.WriteString(w, "planted")
		}))
		dir := t.TempDir()
		code, _, stderr := invocation{args: []string{"download", "-r", "box", "t", filepath.Join(dir, "in")},
			environ: []string{"SANDBAR_URL=" + s.URL, "SANDBAR_TOKEN=t"}}.run(t)
		s.Close()
		if code != 1 || !strings.Contains(stderr, "which is not a valid file name on this host") {
			t.Errorf("%q: exit code %d, %s", name, code, stderr)
		}
		found, err := filepath.Glob(filepath.Join(dir, "*", "*"))
		if all, _ := os.ReadDir(dir); err != nil || len(found) > 0 || len(all) != 1 {
			t.Errorf("%q: %v, %v, %v", name, found, all, err)
		}
	}
}

func TestRemotePort(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.Python)
	p, id := served(t, nil)
	p.expect(0, `[0-9a-f-]{36}\n`, ``, "exec", "-d", id, "--", "python3", "-c", `
import socket
s = socket.create_server(("127.0.0.1", 8000))
print("up", flush=True)
while True:
    c, _ = s.accept()
    n = 0
    while True:
        b = c.recv(65536)
        if not b: break
        n += len(b)
    c.sendall(b"%d bytes" % n)
    c.close()
`)
	cmd := p.command("port", "box", "8000:0")
	out := transcript{changed: make(chan struct{})}
	cmd.Stderr = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	address := out.await(t, `forwarding (127\.0\.0\.1:\d+) to port 8000 of box\n`)[1]
	for range 3 {
		var answer []byte
		for len(answer) == 0 { // the program may not listen yet
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			conn.Write(make([]byte, 1<<20))
			conn.(*net.TCPConn).CloseWrite()
			answer, _ = io.ReadAll(conn)
			conn.Close()
		}
		if string(answer) != strconv.Itoa(1<<20)+" bytes" {
			t.Errorf("%q", answer)
		}
	}
	cmd.Process.Signal(syscall.SIGINT)
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d", code)
	}
	p.expect(1, ``, `sandbar: there is no sandbox "nobody" \(.sandbar list. lists the sandboxes\)\n`, "port", "nobody", "80:0")
	p.ends(0, syscall.SIGTERM)
}

// Mistakes on the command line are reported before a request to a daemon.
func TestRemoteUsage(t *testing.T) {
	for _, tc := range []struct {
		args string
		says string
	}{
		{"exec", "ID is missing"},
		{"exec box", `the command comes after "--"`},
		{"exec box ls", `the command comes after "--"`},
		{"exec box --", "no command was given"},
		{"exec -- ls", "ID is missing"},
		{"exec box --timeout fast -- ls", "is not a duration"},
		{"exec box --timeout 0s -- ls", "is zero"},
		{"exec box -d --timeout 5s -- ls", "--detach excludes --timeout"},
		{"exec box -e =x -- ls", "has no name"},
		{"exec box --stdin /no/file -- cat", "cannot be read"},
		{"create a b", "is one argument too many"},
		{"create --memory lots", "--memory"},
		{"create --label x", "is not a label"},
		{"create --secret-file /no/file", "--secret-file"},
		{"create --idle-timeout -5s", "--idle-timeout"},
		{"list x", "takes no arguments"},
		{"list --label =x", "has no name"},
		{"stats", "ID is missing"},
		{"events x", "takes no arguments"},
		{"events --count -1", "out of range"},
		{"renew", "ID is missing"},
		{"renew box --idle-timeout 0", "--idle-timeout"},
		{"stop", "ID is missing"},
		{"ps", "ID is missing"},
		{"ps a b", "is one argument too many"},
		{"kill box", "PROCESS is missing"},
		{"logs box", "PROCESS is missing"},
		{"upload box x", "REMOTE is missing"},
		{"upload box x y --mode 999", "is not a file mode"},
		{"upload -r box - y", "--recursive excludes - and --mode"},
		{"download box x", "LOCAL is missing"},
		{"download -r box x -", "--recursive excludes -"},
		{"port box", "PORT is missing"},
		{"port box 0", "is not PORT or PORT:LOCAL"},
		{"port box 80:x", "is not PORT or PORT:LOCAL"},
		{"port box 65536", "is not PORT or PORT:LOCAL"},
		{"list --url box:80", "is not the address of a daemon"},
		{"list --token-file /no/file", "token_file"},
	} {
		code, stdout, stderr := invocation{args: strings.Fields(tc.args), environ: []string{"SANDBAR_URL=unix:/none/s", "SANDBAR_TOKEN=t"}[:1+b2i(!strings.Contains(tc.args, "token"))]}.run(t)
		if code != 2 || stdout != "" || !strings.Contains(stderr, tc.says) {
			t.Errorf("%s: exit code %d\n%s%s", tc.args, code, stdout, stderr)
		}
	}
	code, _, stderr := invocation{args: []string{"list"}, environ: []string{"SANDBAR_URL=unix:/none/s", "SANDBAR_TOKEN=t"}}.run(t)
	if code != 1 || !strings.Contains(stderr, `no daemon answers at unix:/none/s: connect: no such file or directory (start one with "sandbar serve"`) {
		t.Errorf("no daemon: exit code %d, %s", code, stderr)
	}
	code, _, stderr = invocation{args: []string{"list"}}.run(t)
	if code != 1 || !strings.Contains(stderr, "no token was found") {
		t.Errorf("no token: exit code %d, %s", code, stderr)
	}
	code, _, stderr = invocation{args: []string{"exec", "box", "--", "true"}, environ: []string{"SANDBAR_URL=unix:/none/s", "SANDBAR_TOKEN=t"}}.run(t)
	if code != 125 || !strings.Contains(stderr, "no daemon answers") {
		t.Errorf("exec without a daemon: exit code %d, %s", code, stderr)
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestShellWords(t *testing.T) {
	for _, args := range [][]string{{"ls", "-l", "/tmp"}, {"sh", "-c", `echo "a b" 'c' $HOME; x`}, {"", " ", "'", "''", "a'b"}, {"ü", "a\nb", "*", "~", "#", "!", "[x]", "a=b"}} {
		out, err := exec.Command("sh", "-c", `printf '%s\0' `+shellWords(args)).Output()
		if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); err != nil || !slices.Equal(got, args) {
			t.Errorf("%q is %s for a shell: %q, %v", args, shellWords(args), got, err)
		}
	}
}

// A sandbox's secret gives commands access to that sandbox only.
func TestRemoteSecret(t *testing.T) {
	p := serve(t, "", []string{"SANDBAR_DRIVER=local", "SANDBAR_ALLOW_DEGRADED=true", "SANDBAR_TOKEN=t"})
	file := filepath.Join(p.dir, "secret")
	if err := os.WriteFile(file, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	id, other := p.expect(0, `.*`, ``, "create", "--secret-file", file), p.expect(0, `.*`, ``, "create")
	with := func(args ...string) (int, string) {
		cmd := p.command(args...)
		cmd.Env = append(cmd.Env, "SANDBAR_TOKEN=0123456789abcdef")
		out, _ := cmd.CombinedOutput()
		return cmd.ProcessState.ExitCode(), string(out)
	}
	if code, out := with("exec", id, "--", "echo", "hi"); code != 0 || out != "hi\n" {
		t.Errorf("%d %s", code, out)
	}
	for _, args := range [][]string{{"exec", other, "--", "true"}, {"list"}, {"stop", id}} {
		if code, out := with(args...); code == 0 || !strings.Contains(out, "the token is missing or wrong (set SANDBAR_TOKEN, or the file of --token-file,") || strings.Contains(out, "header") {
			t.Errorf("%v: %d %s", args, code, out)
		}
	}
	text, _ := p.stderr.look()
	if strings.Contains(text, "0123456789abcdef") {
		t.Error("the secret is in the log")
	}
	p.ends(0, syscall.SIGTERM)
}

// The shutdown of a daemon ends followed streams, and lets finishing commands finish.
func TestDaemonEndsWithClients(t *testing.T) {
	eachDriver(t, func(t *testing.T, environ []string) {
		p, id := served(t, append(environ, "SANDBAR_SHUTDOWN_TIMEOUT=50s"))
		proc := p.expect(0, `.*`, ``, "exec", "-d", id, "--", "sleep", "1000")
		follower := p.command("logs", "-f", id, proc)
		command := p.command("exec", id, "--", "sh", "-c", "echo up; sleep 0.5; echo done; exit 7")
		out := transcript{changed: make(chan struct{})}
		command.Stdout = &out
		for _, cmd := range []*exec.Cmd{follower, command} {
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
		}
		out.await(t, "up\n")
		p.ends(0, syscall.SIGTERM)
		command.Wait()
		if text, _ := out.look(); command.ProcessState.ExitCode() != 7 || text != "up\ndone\n" {
			t.Errorf("the command: exit code %d, %q", command.ProcessState.ExitCode(), text)
		}
		follower.Process.Signal(syscall.SIGINT) // it would ask again for a while
		if err := follower.Wait(); err == nil {
			t.Error("the follower did not notice")
		}
	})
}
